//! Records: what is written is read back, and where two runs part.

use super::*;
use std::fs;
use std::path::Path;

fn digest(text: &str) -> Digest {
    Digest::of_bytes(text.as_bytes())
}

fn origin(value: &str, op: &str) -> Origin {
    Origin { value: value.into(), op: op.into(), at: Some(format!("model.rs:{}", value.len())) }
}

/// Of a program with the states `w`, updated late, `b`, updated early, and `lr`, which no op computes.
fn run(threads: usize) -> RunLine {
    let tensor = |name: &str, update| RecordedTensor { name: name.into(), ty: "f32[2]".into(), update };
    RunLine {
        format: FORMAT,
        onestep: "0.1.0".into(),
        program: "test".into(),
        device: "cpu".into(),
        threads,
        settings: [("--seed".to_string(), "1".to_string())].into(),
        graph: digest("graph"),
        inputs: vec!["x".into(), "y".into()],
        tensors: vec![
            tensor("w", Some(origin("%112", "sub"))),
            tensor("b", Some(origin("%12", "add"))),
            tensor("lr", None),
        ],
    }
}

fn step(n: u64) -> StepLine {
    let state = ["w", "b"].map(|name| digest(&format!("{name} after {n}")));
    let inputs = if n == 0 { vec![] } else { vec![digest(&format!("x {n}")), digest(&format!("y {n}"))] };
    let state = state.into_iter().chain([digest("lr")]).collect();
    StepLine { step: n, inputs, state, values: vec![] }
}

fn values(n: u64) -> Vec<RecordedValue> {
    let value = |name: &str, op| RecordedValue {
        origin: origin(name, op),
        ty: "f32[2]".into(),
        digest: digest(&format!("{name} of {n}")),
    };
    vec![value("%7", "matmul"), value("%12", "add"), value("%112", "sub")]
}

fn write(path: &Path, run: &RunLine, steps: impl IntoIterator<Item = StepLine>) {
    let mut writer = RecordWriter::create(path, run).unwrap();
    steps.into_iter().for_each(|s| writer.step(s).unwrap());
}

/// Compares runs of five steps, the second changed by `change`.
fn compared(change: impl Fn(&mut RunLine, &mut Vec<StepLine>)) -> Result<Comparison, RecordError> {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
    write(&a, &run(1), (0..6).map(step));
    let (mut other, mut steps) = (run(4), (0..6).map(step).collect());
    change(&mut other, &mut steps);
    write(&b, &other, steps);
    compare(a, b)
}

fn parted(change: impl Fn(&mut RunLine, &mut Vec<StepLine>)) -> Parting {
    match compared(change) {
        Ok(Comparison::Parted(parting)) => *parting,
        other => panic!("{other:?}"),
    }
}

#[test]
fn equal_runs_are_identical_whatever_their_machines() {
    assert_eq!(compared(|_, _| ()).unwrap(), Comparison::Identical { steps: 5, last: 5 });
    // As far as both go.
    let shorter = compared(|_, steps| steps.truncate(3)).unwrap();
    assert_eq!(shorter, Comparison::Identical { steps: 2, last: 2 });
    let later = compared(|_, steps| drop(steps.drain(..4))).unwrap();
    assert_eq!(later, Comparison::Identical { steps: 2, last: 5 });
}

#[test]
fn the_first_step_and_tensor_and_its_op() {
    let parting = parted(|_, steps| {
        for late in &mut steps[3..] {
            late.state = vec![digest("?"); 3];
        }
    });
    assert_eq!((parting.step, parting.equal), (3, Some(2)));
    assert_eq!(parting.runs.map(|r| r.threads), [1, 4]);
    assert_eq!(parting.inputs, [""; 0]);
    let names: Vec<&str> = parting.tensors.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["lr", "b", "w"], "what no op computes, then in the order of the graph");
    assert_eq!(parting.tensors[1].update.as_ref().unwrap().to_string(), "%12 add at model.rs:3");
    assert_eq!(parting.inside, Inside::NotRecorded);
}

#[test]
fn the_data_may_be_to_blame() {
    let parting = parted(|_, steps| steps[2].inputs[1] = digest("?"));
    assert_eq!((parting.step, parting.inputs, parting.tensors.len()), (2, vec!["y".to_string()], 0));
    assert_eq!(parted(|_, steps| steps[0].state[0] = digest("?")).equal, None);
}

#[test]
fn the_first_op_inside_a_step() {
    let folder = tempfile::tempdir().unwrap();
    let inside = |name: &str, change: &dyn Fn(&mut Vec<RecordedValue>)| {
        let [a, b] = ["a", name].map(|name| folder.path().join(name));
        let mut other = step(1);
        (other.state[0], other.values) = (digest("?"), values(1));
        change(&mut other.values);
        let _ = fs::remove_file(&a);
        write(&a, &self::run(1), [StepLine { values: values(1), ..step(1) }]);
        write(&b, &self::run(2), [other]);
        match compare(a, b).unwrap() {
            Comparison::Parted(parting) => parting.inside,
            other => panic!("{other:?}"),
        }
    };
    let changed = |values: &mut Vec<RecordedValue>| {
        values[2].digest = digest("?");
        values[1].digest = digest("?");
    };
    match inside("op", &changed) {
        Inside::Op(value) => assert_eq!(value.origin, origin("%12", "add")),
        other => panic!("{other:?}"),
    }
    assert_eq!(inside("equal", &|_| ()), Inside::Equal);
    assert_eq!(inside("none", &|values| values.clear()), Inside::NotRecorded);
    assert_eq!(inside("other", &|values| values[0].origin.op = "exp".into()), Inside::OtherGraph);
    assert_eq!(inside("fewer", &|values| values.truncate(2)), Inside::OtherGraph);
    // Another version of a source file has other lines.
    assert_eq!(inside("lines", &|values| values[0].origin.at = None), Inside::Equal);
}

#[test]
fn records_that_cannot_be_compared() {
    let refused = |change: &dyn Fn(&mut RunLine, &mut Vec<StepLine>)| compared(change).unwrap_err();
    let error = refused(&|run, _| run.program = "other".into());
    assert!(matches!(&error, RecordError::Program { a, b } if a == "test" && b == "other"), "{error}");
    let error = refused(&|run, _| run.inputs[0] = "z".into());
    assert!(error.to_string().contains(r#"["z", "y"]"#), "{error}");
    let error = refused(&|run, _| run.tensors[1].ty = "f64[2]".into());
    assert!(error.to_string().contains("state 'b' of type f64[2]"), "{error}");
    let error = refused(&|run, steps| {
        run.tensors.truncate(2);
        steps.iter_mut().for_each(|s| s.state.truncate(2));
    });
    assert!(error.to_string().contains("no further state"), "{error}");
    let error = refused(&|_, steps| *steps = (10..13).map(step).collect());
    assert!(matches!(error, RecordError::NoCommonStep { .. }), "{error}");
    assert!(error.to_string().ends_with("the first has steps 0 to 5, the second steps 10 to 12"), "{error}");
    let error = refused(&|_, steps| steps.clear());
    assert!(matches!(error, RecordError::NoCommonStep { .. }), "{error}");
}

#[test]
fn a_record_is_taken_up_after_a_step() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record");
    write(&path, &run(1), (0..5).map(step));
    // As a kill leaves it.
    let mut torn = fs::read(&path).unwrap();
    torn.extend(br#"{"line":"step","st"#);
    fs::write(&path, &torn).unwrap();
    let mut writer = RecordWriter::resume(&path, &run(4), 3).unwrap();
    (4..7).for_each(|n| writer.step(step(n)).unwrap());
    let mut reader = RecordReader::open(&path).unwrap();
    let mut found = vec![];
    while let Some(RecordedStep { run, step }) = reader.next_step().unwrap() {
        found.push((run.threads, step.step));
    }
    assert_eq!(found, [(1, 0), (1, 1), (1, 2), (1, 3), (4, 4), (4, 5), (4, 6)]);
    let fresh = folder.path().join("fresh");
    RecordWriter::resume(&fresh, &run(1), 3).unwrap().step(step(4)).unwrap();
    assert_eq!(RecordReader::open(&fresh).unwrap().next_step().unwrap().unwrap().step, step(4));
    assert!(matches!(RecordWriter::create(&path, &run(1)), Err(RecordError::Unwritable { .. })));
}

#[test]
fn files_that_are_no_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record");
    let line = |line: &Line| serde_json::to_string(line).unwrap() + "\n";
    let (begin, first) = (line(&Line::Run(run(1))), line(&Line::Step(step(1))));
    let error = |text: &str| {
        fs::write(&path, text).unwrap();
        let read = RecordReader::open(&path).and_then(|mut r| {
            while r.next_step()?.is_some() {}
            Ok(())
        });
        read.unwrap_err()
    };
    assert!(matches!(error(""), RecordError::Empty { .. }));
    assert!(matches!(error(begin.trim_end()), RecordError::Empty { .. }));
    assert!(matches!(error("prose\n"), RecordError::Line { line: 1, .. }));
    assert!(matches!(error("{}\n"), RecordError::Line { line: 1, .. }));
    assert!(matches!(error(&first), RecordError::Line { line: 1, .. }));
    assert!(matches!(error(&format!("{begin}{first}\n")), RecordError::Line { line: 3, .. }));
    let twice = error(&format!("{begin}{first}{first}"));
    assert!(
        twice.to_string().contains("line 3") && twice.to_string().contains("step 1 follows step 1"),
        "{twice}"
    );
    let few = line(&Line::Step(StepLine { inputs: vec![digest("x")], ..step(1) }));
    assert!(error(&format!("{begin}{few}")).to_string().contains("1 digests for 2 inputs"));
    let later = begin.replace(r#""format":1"#, r#""format":2"#);
    assert!(matches!(error(&later), RecordError::Format { found: 2, .. }));
    assert!(
        matches!(error(&begin.replace(&digest("graph").to_string(), "graph")), RecordError::Line { .. }),
        "a digest that is none"
    );
    for n in 0..first.len() - 1 {
        // A line cut off in the middle, with others behind it.
        let cut = error(&format!("{begin}{}\n{first}", &first[..n]));
        assert!(matches!(cut, RecordError::Line { line: 2, .. }), "{cut}");
    }
    assert!(matches!(RecordReader::open(folder.path()), Err(RecordError::Unreadable { .. })));
    assert!(matches!(RecordReader::open(folder.path().join("none")), Err(RecordError::Unreadable { .. })));
}
