//! A step as a timeline: the trace event format that Perfetto (ui.perfetto.dev) and Chrome (`chrome://tracing`) open.
//!
//! The kernels stand on one track, each as a complete event (`"ph": "X"`) with its start and duration in microseconds;
//! what it costs is in its arguments. A counter track (`"ph": "C"`) shows the bytes of the arena that are live.

use serde_json::{Value, json};

/// One kernel of the step.
#[derive(Clone, Debug, Default)]
pub struct Span {
    /// Its name, with sizes.
    pub name: String,
    /// Its kind: `loop`, `matmul`, the op of a library kernel.
    pub kind: String,
    /// How long it took.
    pub nanoseconds: u64,
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Bytes of the arena that are live while it runs.
    pub live: u64,
}

impl Span {
    /// Thousand millions a second; 0 for a kernel too short to be timed.
    pub fn rate(amount: u64, nanoseconds: u64) -> f64 {
        if nanoseconds == 0 { 0.0 } else { amount as f64 / nanoseconds as f64 }
    }
}

/// The trace of one step.
pub fn trace(program: &str, device: &str, spans: &[Span]) -> Value {
    let named = |kind: &str, tid: u32, name: &str| json!({ "ph": "M", "name": kind, "pid": 1, "tid": tid, "args": { "name": name } });
    let mut events =
        vec![named("process_name", 0, &format!("{program} on {device}")), named("thread_name", 1, "kernels")];
    let mut start = 0u64;
    for (i, s) in spans.iter().enumerate() {
        let at = start as f64 / 1e3;
        events.push(json!({
            "ph": "C", "name": "arena, live", "pid": 1, "tid": 0, "ts": at, "args": { "bytes": s.live },
        }));
        events.push(json!({
            "ph": "X", "name": s.name, "cat": s.kind, "pid": 1, "tid": 1, "ts": at, "dur": s.nanoseconds as f64 / 1e3,
            "args": {
                "kernel": format!("k{i}"), "kind": s.kind, "flops": s.flops, "bytes": s.bytes,
                "GFLOP/s": Span::rate(s.flops, s.nanoseconds), "GB/s": Span::rate(s.bytes, s.nanoseconds),
            },
        }));
        start = start.saturating_add(s.nanoseconds);
    }
    json!({ "displayTimeUnit": "ns", "traceEvents": events })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_follow_each_other_and_say_what_they_cost() {
        let span = |nanoseconds| Span {
            name: "a \"<k>\"".into(),
            kind: "loop".into(),
            nanoseconds,
            flops: 3000,
            bytes: 500,
            live: 64,
        };
        let text = trace("p", "cpu", &[span(1500), span(0), span(250)]).to_string();
        let back: Value = serde_json::from_str(&text).unwrap();
        let events = back["traceEvents"].as_array().unwrap();
        let spans: Vec<&Value> = events.iter().filter(|e| e["ph"] == "X").collect();
        let at: Vec<(f64, f64)> =
            spans.iter().map(|e| (e["ts"].as_f64().unwrap(), e["dur"].as_f64().unwrap())).collect();
        assert_eq!(at, [(0.0, 1.5), (1.5, 0.0), (1.5, 0.25)]);
        assert_eq!(spans[0]["args"]["GFLOP/s"], 2.0);
        assert_eq!(spans[1]["args"]["GB/s"], 0.0);
        for e in events {
            assert!(e["name"].is_string() && e["pid"].is_u64() && e["tid"].is_u64() && e["args"].is_object());
            assert!(["M", "X", "C"].contains(&e["ph"].as_str().unwrap()));
        }
    }
}
