//! Checkpoints: whole or not there, whatever byte a writer is stopped at, and refused where they do not fit.

use super::*;
use crate::Position;
use onestep_ir::Array;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn manifest(step: u64) -> Manifest {
    Manifest::new("test", step, Position { epoch: 1, batch: step }).setting("--seed", 7)
}

fn tensors(step: u64) -> Tensors {
    let number = step as f32;
    let of = |name: &str, array| (name.to_string(), array);
    Tensors::from([
        of("w", Array::new(&[2, 3], &[number; 6]).unwrap()),
        of("opt/w/m", Array::new(&[2, 3], &[-number; 6]).unwrap()),
        of("opt/step", Array::scalar(step as i32)),
        of("rng/key", Array::new(&[2], &[1u32, 2]).unwrap()),
    ])
}

fn checkpoint(step: u64) -> Checkpoint {
    Checkpoint { manifest: manifest(step), tensors: tensors(step) }
}

/// A folder with a checkpoint of step 1.
fn begun() -> (tempfile::TempDir, CheckpointFolder) {
    let root = tempfile::tempdir().unwrap();
    let folder = CheckpointFolder::open(root.path().join("kept"), 2).unwrap();
    folder.save(&manifest(1), &tensors(1)).unwrap();
    (root, folder)
}

fn names(folder: &CheckpointFolder) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Takes so many bytes and no more.
struct StopsAfter<'w> {
    file: &'w mut dyn Write,
    left: usize,
}

impl Write for StopsAfter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len().min(self.left);
        if n == 0 && !bytes.is_empty() {
            return Err(io::Error::other("no byte more"));
        }
        self.left -= n;
        self.file.write_all(&bytes[..n])?;
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[test]
fn what_is_written_is_read() {
    let (_root, folder) = begun();
    let path = folder.save(&manifest(20), &tensors(20)).unwrap();
    assert_eq!(path.file_name().unwrap(), "step-0000000020.safetensors");
    assert_eq!(Checkpoint::load(&path).unwrap(), checkpoint(20));
    let newest = newest_checkpoint(folder.path()).unwrap();
    assert_eq!((newest.checkpoint, newest.path, newest.damaged.len()), (checkpoint(20), path, 0));
}

#[test]
fn the_last_few_are_kept() {
    let (_root, folder) = begun();
    fs::write(folder.path().join("notes.txt"), "mine").unwrap();
    for step in [5, 9, 12] {
        folder.save(&manifest(step), &tensors(step)).unwrap();
    }
    assert_eq!(names(&folder), ["notes.txt", "step-0000000009.safetensors", "step-0000000012.safetensors"]);
    // A run taken up from an earlier one never removes what it has just written.
    folder.save(&manifest(3), &tensors(3)).unwrap();
    assert_eq!(names(&folder), ["notes.txt", "step-0000000003.safetensors", "step-0000000012.safetensors"]);
    let one = CheckpointFolder::open(folder.path(), 0).unwrap();
    one.save(&manifest(13), &tensors(13)).unwrap();
    assert_eq!(names(&folder), ["notes.txt", "step-0000000013.safetensors"]);
}

#[test]
fn a_writer_that_stops_at_any_byte_leaves_the_one_before() {
    let (_root, folder) = begun();
    let whole = fs::metadata(folder.path().join("step-0000000001.safetensors")).unwrap().len() as usize;
    for n in 0..whole {
        fn stops<'w>(left: usize, file: &'w mut dyn Write) -> Box<dyn Write + 'w> {
            Box::new(StopsAfter { file, left })
        }
        let error = folder.save_through(&manifest(2), &tensors(2), &|file| stops(n, file)).unwrap_err();
        assert!(error.to_string().contains("no byte more"), "{error}");
        assert_eq!(newest_checkpoint(folder.path()).unwrap().checkpoint, checkpoint(1));
        assert_eq!(names(&folder), ["step-0000000001.safetensors"]);
    }
    folder.save(&manifest(2), &tensors(2)).unwrap();
    assert_eq!(newest_checkpoint(folder.path()).unwrap().checkpoint, checkpoint(2));
}

/// The states of the disk that a kill may leave: any part of the file beside its place.
#[test]
fn what_a_killed_writer_leaves_is_no_checkpoint_and_goes() {
    let (_root, folder) = begun();
    let bytes = fs::read(folder.save(&manifest(2), &tensors(2)).unwrap()).unwrap();
    fs::remove_file(folder.path().join("step-0000000002.safetensors")).unwrap();
    for n in 0..=bytes.len() {
        fs::write(folder.path().join(".step-0000000002.safetensors.77-0.tmp"), &bytes[..n]).unwrap();
        assert_eq!(newest_checkpoint(folder.path()).unwrap().checkpoint, checkpoint(1));
    }
    CheckpointFolder::open(folder.path(), 2).unwrap();
    assert_eq!(names(&folder), ["step-0000000001.safetensors"]);
}

/// What a disk that loses data may leave: the name of a whole file on a part of it.
#[test]
fn a_file_cut_off_at_any_length_is_passed_over_and_named() {
    let (_root, folder) = begun();
    let path = folder.save(&manifest(2), &tensors(2)).unwrap();
    let bytes = fs::read(&path).unwrap();
    for n in 0..bytes.len() {
        fs::write(&path, &bytes[..n]).unwrap();
        let newest = newest_checkpoint(folder.path()).unwrap();
        assert_eq!((newest.checkpoint, newest.damaged.len()), (checkpoint(1), 1));
        assert!(newest.damaged[0].to_string().contains("step-0000000002"), "{:?}", newest.damaged);
    }
}

#[test]
fn a_changed_byte_anywhere_is_found() {
    let (_root, folder) = begun();
    let path = folder.save(&manifest(2), &tensors(2)).unwrap();
    let bytes = fs::read(&path).unwrap();
    for (at, flip) in (0..bytes.len()).flat_map(|at| [1u8, 0x20, 0xff].map(|flip| (at, flip))) {
        let mut other = bytes.clone();
        other[at] ^= flip;
        fs::write(&path, &other).unwrap();
        if let Ok(found) = Checkpoint::load(&path) {
            // Such as a digit of the digest in the other case.
            assert_eq!(found, checkpoint(2), "byte {at}");
        }
        let newest = newest_checkpoint(folder.path()).unwrap().checkpoint;
        assert!(newest == checkpoint(1) || newest == checkpoint(2), "byte {at}");
    }
}

#[test]
fn files_that_are_no_checkpoints() {
    let (root, folder) = begun();
    let path = folder.path().join("step-0000000001.safetensors");
    let wrong = |path: &Path| match Checkpoint::load(path) {
        Err(IoError::Checkpoint { source, .. }) => source,
        other => panic!("{other:?}"),
    };
    let model: Vec<_> = tensors(1).into_iter().collect();
    let model = || model.iter().map(|(name, array)| (name.as_str(), array));
    safetensors::save(&path, model(), &Metadata::new()).unwrap();
    assert!(matches!(wrong(&path), CheckpointError::NoManifest));
    let says = |text: &str| Metadata::from([(MANIFEST.to_string(), text.to_string())]);
    safetensors::save(&path, model(), &says("{")).unwrap();
    assert!(matches!(wrong(&path), CheckpointError::Manifest(_)));
    safetensors::save(&path, model(), &says(r#"{"format": 2, "new": []}"#)).unwrap();
    let error = wrong(&path);
    assert!(matches!(error, CheckpointError::Format { found: 2 }), "{error}");
    let text = serde_json::to_string(&manifest(1)).unwrap();
    safetensors::save(&path, model(), &says(&text)).unwrap();
    assert!(matches!(wrong(&path), CheckpointError::Damaged), "without its digest");
    let error = newest_checkpoint(folder.path()).unwrap_err();
    assert!(error.to_string().contains("none of its 1 checkpoints"), "{error}");
    let error = newest_checkpoint(root.path()).unwrap_err();
    assert!(error.to_string().contains("holds no checkpoint"), "{error}");
    for (path, none) in [(root.path().join("none"), true), (path, false)] {
        match newest_checkpoint(path).unwrap_err() {
            IoError::Checkpoint { source: CheckpointError::None, .. } => assert!(none),
            IoError::Unreadable { .. } => assert!(!none),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn another_run_is_refused_and_the_setting_named() {
    let kept = manifest(5).setting("--lr", 0.1).graph("graph");
    assert!(kept.check(&manifest(0).setting("--lr", 0.1).graph("graph")).is_ok());
    let refused = |run: Manifest| kept.check(&run).unwrap_err().to_string();
    let says = refused(manifest(0).setting("--lr", 0.2).graph("graph"));
    assert!(says.contains("made with --lr '0.1', but here --lr is '0.2'"), "{says}");
    assert!(refused(manifest(0)).contains("--lr is not set"));
    assert!(refused(manifest(0).setting("--lr", 0.1).setting("--z", 1)).contains("made with --z not set"));
    let says = refused(Manifest { program: "other".into(), ..kept.clone() });
    assert!(says.contains("'test'") && says.contains("'other'"), "{says}");
    let graph = manifest(0).setting("--lr", 0.1).graph("another");
    assert!(refused(graph.clone()).contains("another graph"));
    // Another version may write the same program as another graph.
    assert!(kept.check(&Manifest { onestep: "9.9.9".into(), ..graph }).is_ok());
}

const CHILD: &str = "ONESTEP_IO_CHECKPOINTS";

/// Not a test of its own: the process that [`a_killed_process`] kills.
#[test]
fn child() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let folder = CheckpointFolder::open(PathBuf::from(path), 2).unwrap();
    // Some megabytes, so that most of its time is spent writing.
    let large = Array::zeros(onestep_ir::DType::F32, &[1 << 19]).unwrap();
    let first = newest_checkpoint(folder.path()).map_or(0, |newest| newest.checkpoint.manifest.step);
    for step in first + 1.. {
        let mut tensors = tensors(step);
        tensors.insert("large".to_string(), large.clone());
        folder.save(&manifest(step), &tensors).unwrap();
        println!("saved {step}");
    }
}

#[test]
fn a_killed_process_leaves_a_whole_checkpoint_not_older_than_the_last_it_told_of() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("kept");
    for round in 0..12u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["checkpoint::tests::child", "--exact", "--nocapture"])
            .env(CHILD, &folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let step = |line: String| line.rsplit_once("saved ").and_then(|(_, n)| n.parse::<u64>().ok());
        let mut told = lines.by_ref().find_map(step).unwrap();
        std::thread::sleep(std::time::Duration::from_micros(700 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        told = lines.filter_map(step).last().unwrap_or(told);
        let newest = newest_checkpoint(&folder).unwrap();
        assert_eq!(newest.damaged.len(), 0);
        let Checkpoint { manifest: found, tensors: mut read } = newest.checkpoint;
        assert!(found.step == told || found.step == told + 1, "{} after {told}", found.step);
        assert_eq!(found, manifest(found.step));
        read.remove("large");
        assert_eq!(read, tensors(found.step));
    }
}
