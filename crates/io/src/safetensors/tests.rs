//! Round trips, and what is said of files that are not whole or not honest. The crate of the format's authors is the
//! oracle of what is well-formed.

use super::*;
use crate::SplitMix64;
use ::safetensors::SafeTensors;
use onestep_ir::DType;

/// A tensor of every dtype, of none, one and several axes.
fn sample() -> (Tensors, Metadata) {
    let mut tensors = Tensors::new();
    for dtype in DType::ALL {
        for shape in [&[][..], &[3], &[2, 1, 2], &[0, 4]] {
            let n = shape.iter().product();
            let values: Vec<f64> = (0..n).map(|i| (i % 2) as f64).collect();
            tensors
                .insert(format!("{dtype}.{}", shape.len()), Array::from_f64(dtype, shape, &values).unwrap());
            if n == 0 {
                tensors.insert(format!("{dtype}.empty"), Array::zeros(dtype, shape).unwrap());
            }
        }
    }
    (tensors, Metadata::from([("format".into(), "pt".into()), ("Wort \"ü\"\n".into(), String::new())]))
}

fn pairs(tensors: &Tensors) -> impl Iterator<Item = (&str, &Array)> {
    tensors.iter().map(|(name, array)| (&**name, array))
}

/// A file with this header, which `data` zeros follow.
fn file(header: &str, data: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; data]].concat()
}

fn fault(bytes: &[u8]) -> String {
    from_bytes(bytes).expect_err("a malformed file").to_string()
}

#[test]
fn every_dtype_comes_back_bit_for_bit() {
    let (tensors, metadata) = sample();
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("model.safetensors");
    save(&path, pairs(&tensors), &metadata).unwrap();
    assert_eq!(load(&path).unwrap(), (tensors.clone(), metadata.clone()));
    assert_eq!(std::fs::read(&path).unwrap(), to_bytes(pairs(&tensors), &metadata).unwrap());
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1);
    let odd = Array::new(&[4], &[f32::NAN, -0.0, f32::INFINITY, f32::from_bits(0x7fa0_0001)]).unwrap();
    let bytes = to_bytes([("odd", &odd)], &Metadata::new()).unwrap();
    assert_eq!(from_bytes(&bytes).unwrap().0["odd"], odd);
}

#[test]
fn the_authors_crate_reads_what_is_written_and_writes_what_is_read() {
    let (tensors, metadata) = sample();
    let bytes = to_bytes(pairs(&tensors), &metadata).unwrap();
    let theirs = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(theirs.len(), tensors.len());
    for (name, view) in theirs.iter() {
        assert_eq!((view.shape(), view.data()), (tensors[name].shape(), tensors[name].bytes()), "{name}");
        let at = view.data().as_ptr().addr() - bytes.as_ptr().addr();
        assert_eq!(at % tensors[name].dtype().size(), 0, "{name} is not aligned");
    }
    let views: Vec<_> = theirs.iter().collect();
    let written = ::safetensors::serialize(views, None).unwrap();
    assert_eq!(from_bytes(&written).unwrap().0, tensors);
    assert_eq!(written, to_bytes(pairs(&tensors), &Metadata::new()).unwrap());
}

#[test]
fn the_order_given_changes_no_byte() {
    let (tensors, metadata) = sample();
    let backwards: Vec<_> = pairs(&tensors).collect::<Vec<_>>().into_iter().rev().collect();
    assert_eq!(to_bytes(backwards, &metadata).unwrap(), to_bytes(pairs(&tensors), &metadata).unwrap());
}

#[test]
fn what_cannot_be_written_is_refused_and_leaves_the_old_file() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.safetensors");
    let one = Array::scalar(1f32);
    save(&path, [("a", &one)], &Metadata::new()).unwrap();
    let twice = save(&path, [("a", &one), ("b", &one), ("a", &one)], &Metadata::new()).unwrap_err();
    assert!(twice.to_string().contains("two tensors `a`"), "{twice}");
    let reserved = save(&path, [("__metadata__", &one)], &Metadata::new()).unwrap_err();
    assert!(reserved.to_string().contains("choose another name"), "{reserved}");
    let large = Metadata::from([("k".into(), "v".repeat(100_000_000))]);
    let large = save(&path, [("a", &one)], &large).unwrap_err();
    assert!(matches!(large, IoError::Format { source: FormatError::HeaderTooLarge { .. }, .. }));
    assert_eq!(load(&path).unwrap().0.len(), 1);
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1);
    let nowhere = save(root.path().join("no/such"), [("a", &one)], &Metadata::new()).unwrap_err();
    assert!(matches!(nowhere, IoError::Unwritable { .. }));
}

#[test]
fn a_missing_file_or_a_folder_is_named() {
    let root = tempfile::tempdir().unwrap();
    for path in [root.path().join("none"), root.path().to_path_buf()] {
        let error = load(&path).unwrap_err();
        assert!(matches!(&error, IoError::Unreadable { path: named, .. } if *named == path), "{error:?}");
    }
    let path = root.path().join("empty");
    std::fs::write(&path, "").unwrap();
    let error = load(&path).unwrap_err().to_string();
    assert!(error.contains("empty") && error.contains("has 0 bytes"), "{error}");
}

/// The malformed files of the authors' tests, and more of their kinds.
#[test]
fn malformed_files_are_named_for_what_they_are() {
    let i32s = |shape: &str, begin: usize, end: usize| {
        format!(r#"{{"test":{{"dtype":"I32","shape":{shape},"data_offsets":[{begin},{end}]}}}}"#)
    };
    let good = i32s("[2,2]", 0, 16);
    assert!(from_bytes(&file(&good, 16)).is_ok());
    assert!(from_bytes(&file("{}\r \t\n", 0)).unwrap().0.is_empty());
    assert!(from_bytes(&file("\t\n{}\r ", 0)).unwrap().0.is_empty());
    assert_eq!(from_bytes(&file(&i32s("[]", 0, 4), 4)).unwrap().0["test"].shape(), [0; 0]);
    assert_eq!(from_bytes(&file(&i32s("[2,0]", 0, 0), 0)).unwrap().0["test"].shape(), [2, 0]);
    assert!(from_bytes(&file(r#"{"__metadata__":null}"#, 0)).unwrap().1.is_empty());

    let two = |a: &str, b: &str| {
        format!(
            r#"{{"a":{{"dtype":"U8","shape":[4],"data_offsets":{a}}},"b":{{"dtype":"U8","shape":[4],"data_offsets":{b}}}}}"#
        )
    };
    let dtype = |dtype: &str| format!(r#"{{"test":{{"dtype":"{dtype}","shape":[0],"data_offsets":[0,0]}}}}"#);
    for (bytes, says) in [
        (vec![], "has 0 bytes, but it must begin with 8"),
        (vec![0; 7], "has 7 bytes, but it must begin with 8"),
        (b"<\0\0\0\0\0\0\0".to_vec(), "should have 60 bytes, but only 0 follow"),
        (b"<\0\0\0\0\xff\xff\xff{}".to_vec(), "exceeds the format's 100000000 bytes"),
        (u64::MAX.to_le_bytes().to_vec(), "exceeds the format's 100000000 bytes"),
        (b"\x01\0\0\0\0\0\0\0\xff".to_vec(), "is not UTF-8"),
        (file("{", 0), "not as the format asks: EOF"),
        (file("", 0), "not as the format asks: EOF"),
        (file("[]", 0), "an object with an entry for each tensor"),
        (file("{} {}", 0), "trailing characters"),
        (file(&"[".repeat(10_000), 0), "not as the format asks"),
        (file(&format!(r#"{{"test":{}"#, r#"{"x":"#.repeat(10_000)), 0), "tensor `test`: EOF"),
        (file(r#"{"__metadata__":{"a":1}}"#, 0), "metadata: invalid type: integer `1`, expected a string"),
        (file(r#"{"test":1}"#, 0), "tensor `test`: invalid type"),
        (file(r#"{"test":{"dtype":"I32","shape":[]}}"#, 0), "tensor `test`: missing field `data_offsets`"),
        (file(&i32s("[-1]", 0, 0), 0), "tensor `test`: invalid value: integer `-1`"),
        (file(&i32s("[1.5]", 0, 0), 0), "tensor `test`: invalid type: floating point `1.5`"),
        (file(&i32s("[99999999999999999999]", 0, 0), 0), "tensor `test`: invalid type: floating point"),
        (file(&good, 14), "describes 16 bytes of tensors, but 14 follow"),
        (file(&good, 33), "describes 16 bytes of tensors, but 33 follow"),
        (file("{}", 1), "describes 0 bytes of tensors, but 1 follow"),
        (file(&i32s("[2,2]", 0, 4), 4), "tensor `test`, I32 of shape [2, 2], does not fit the 4 bytes"),
        (file(&i32s("[1]", 0, 16), 16), "tensor `test`, I32 of shape [1], does not fit the 16 bytes"),
        (file(&i32s("[2,18446744073709551614]", 0, 16), 16), "does not fit the 16 bytes"),
        (file(&i32s("[2,9223372036854775807]", 0, 16), 16), "does not fit the 16 bytes"),
        (file(&i32s("[4611686018427387904]", 0, 0), 0), "does not fit the 0 bytes"),
        (file(&i32s("[2,2]", 4, 20), 20), "tensor `test`, bytes 4 to 20, does not follow"),
        (file(&i32s("[1]", 4, 0), 4), "tensor `test`, bytes 4 to 0, does not follow"),
        (file(&i32s("[0]", 0, usize::MAX), 0), "does not fit"),
        (file(&two("[0,4]", "[0,4]"), 4), "bytes 0 to 4, does not follow"),
        (file(&two("[0,4]", "[2,6]"), 6), "tensor `b`, bytes 2 to 6, does not follow"),
        (file(&two("[0,4]", "[5,9]"), 9), "tensor `b`, bytes 5 to 9, does not follow"),
        (file(&two("[0,4]", "[4,8]").replace('b', "a"), 8), "two tensors `a`"),
        (
            file(&dtype("F8_E8M0"), 0),
            "tensor `test` is \"F8_E8M0\", which is not supported; convert it to one of F64",
        ),
        (file(&dtype("f32"), 0), "tensor `test` is \"f32\", which is not supported"),
    ] {
        let error = fault(&bytes);
        assert!(error.contains(says), "{error:?} does not say {says:?}");
    }
    for missing in ["I16", "U16", "U64", "C64", "F4", "F8_E8M0"] {
        assert!(fault(&file(&dtype(missing), 0)).contains(&format!("tensor `test` is {missing:?}")));
    }
}

#[test]
fn ten_tensors_over_the_same_bytes_are_refused() {
    let entry = |i| format!(r#""weight_{i}":{{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}"#);
    let header = format!("{{{}}}", (0..10).map(entry).collect::<Vec<_>>().join(","));
    assert!(matches!(from_bytes(&file(&header, 16)), Err(FormatError::Offsets { .. })));
}

/// A truth value that is neither 0 nor 1 would be another value on each device.
#[test]
fn truth_values_are_made_0_or_1() {
    let mut bytes = file(r#"{"mask":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}}"#, 3);
    let at = bytes.len() - 3;
    bytes[at..].copy_from_slice(&[0, 1, 7]);
    assert_eq!(from_bytes(&bytes).unwrap().0["mask"].bytes(), [0, 1, 1]);
}

#[test]
fn a_file_cut_off_anywhere_is_refused() {
    let (tensors, metadata) = sample();
    let bytes = to_bytes(pairs(&tensors), &metadata).unwrap();
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("cut");
    for length in 0..bytes.len() {
        let error = from_bytes(&bytes[..length]).expect_err("a file cut off");
        assert!(!matches!(error, FormatError::Read(_)), "at {length}: {error}");
    }
    for length in (0..bytes.len()).step_by(97) {
        std::fs::write(&path, &bytes[..length]).unwrap();
        assert!(matches!(load(&path), Err(IoError::Format { .. })), "at {length}");
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_an_error() {
    let whole = file(r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#, 4);
    for length in 0..whole.len() {
        let error = read(&mut &whole[..length], whole.len() as u64).unwrap_err();
        let end = |e: &io::Error| e.kind() == io::ErrorKind::UnexpectedEof;
        assert!(matches!(&error, FormatError::Read(source) if end(source)), "at {length}: {error}");
    }
}

/// Whatever bytes are changed, there is no panic, and what is read is what the authors' crate reads.
#[test]
fn changed_bytes_are_read_as_the_authors_crate_does_or_refused() {
    let (tensors, metadata) = sample();
    let bytes = to_bytes(pairs(&tensors), &metadata).unwrap();
    let mut random = SplitMix64::new(5);
    let (mut read, mut refused) = (0, 0);
    for round in 0..4000 {
        let mut changed = bytes.clone();
        for _ in 0..=random.below(3) {
            // Mostly the header, where there is more to go wrong.
            let at = if round % 4 == 0 { random.below(bytes.len()) } else { random.below(1000) };
            changed[at] = match random.below(3) {
                0 => changed[at] ^ (1 << random.below(8)),
                1 => b"0123456789[]{},:\""[random.below(17)],
                _ => random.below(256) as u8,
            };
        }
        match (from_bytes(&changed), SafeTensors::deserialize(&changed)) {
            (Ok((tensors, _)), Ok(theirs)) => {
                read += 1;
                assert_eq!(tensors.len(), theirs.len());
                for (name, view) in theirs.iter() {
                    assert_eq!(tensors[name].shape(), view.shape());
                    assert!(tensors[name].dtype() == DType::Bool || tensors[name].bytes() == view.data());
                }
            }
            (Ok(_), Err(error)) => panic!("read what the authors' crate refuses: {error}"),
            // A dtype that Onestep does not have, or one name for two tensors.
            (Err(error), Ok(_)) => {
                assert!(matches!(error, FormatError::DType { .. } | FormatError::Repeated { .. }), "{error}");
            }
            (Err(_), Err(_)) => refused += 1,
        }
    }
    assert!(read > 100 && refused > 100, "{read} read, {refused} refused");
}
