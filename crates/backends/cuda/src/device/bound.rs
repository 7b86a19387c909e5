//! A program with its memory: one allocation for inputs, constants, arena, scratch and workspace, the addresses of the state,
//! and all launches captured in one CUDA graph, on as many branches as the program has.

use super::blas::WORKSPACE;
use super::launch::Launch;
use super::memory::{Memory, Pinned, copy_out};
use super::{CudaProgram, driver};
use crate::CudaError;
use crate::code::{Address, Space, Step};
use cudarc::driver::sys::{CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaEvent, CudaGraph, CudaStream, result};
use onestep_ir::{Array, ArrayError};
use onestep_passes::schedule::BufferId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A program bound to state tensors. A run copies the inputs from pinned memory and launches one graph.
pub struct CudaBound {
    program: Arc<CudaProgram>,
    /// Addresses of the areas, by their order in [`Areas`].
    areas: Areas,
    /// One for each branch; without a graph the first alone.
    lanes: Vec<Lane>,
    states: Vec<u64>,
    staging: Pinned,
    /// The last copy from `staging`.
    fed: CudaEvent,
    graph: Option<CudaGraph>,
    // Freed last.
    memory: Memory,
}

// SAFETY: handles of a context, used through an exclusive borrow from any thread that is bound to it.
unsafe impl Send for CudaBound {}

#[derive(Clone, Copy)]
struct Areas {
    inputs: u64,
    constants: u64,
    arena: u64,
    workspace: u64,
}

/// What the steps of a branch have for themselves.
struct Lane {
    stream: Arc<CudaStream>,
    scratch: u64,
}

impl CudaBound {
    /// Allocates everything and, with `capture`, records the graph. `states` are the addresses of the state tensors in the
    /// schedule's order.
    ///
    /// # Safety
    ///
    /// Each address is of device memory of the state's size, at a multiple of 256, that lives as long as this binding and
    /// that nobody else accesses during a run.
    pub unsafe fn new(
        program: &Arc<CudaProgram>,
        states: &[u64],
        capture: bool,
    ) -> Result<CudaBound, CudaError> {
        let (device, code) = (&program.device, &program.code);
        let branches = if capture { code.branches.count } else { 1 };
        let workspace = if program.products.iter().any(Option::is_some) { WORKSPACE } else { 0 };
        let mut total = 0;
        let mut area = |bytes: usize| {
            let start = total;
            total += bytes.next_multiple_of(256);
            start as u64
        };
        let [inputs, constants, arena, scratch, space] = [
            area(code.input_bytes),
            area(code.constants.len()),
            area(code.arena_bytes),
            area(branches * code.scratch_bytes.next_multiple_of(256)),
            area(workspace),
        ];
        let mut memory = Memory::new(device, total)?;
        memory.write(constants as usize, &code.constants)?;
        let base = memory.pointer();
        let areas = Areas {
            inputs: base + inputs,
            constants: base + constants,
            arena: base + arena,
            workspace: base + space,
        };
        let lane = |branch: usize| {
            let stream = match branch {
                0 => device.stream.clone(),
                _ => device.context.new_stream().map_err(driver("creating a stream"))?,
            };
            let before = branch * code.scratch_bytes.next_multiple_of(256);
            Ok(Lane { stream, scratch: base + scratch + before as u64 })
        };
        let lanes = (0..branches).map(lane).collect::<Result<Vec<Lane>, CudaError>>()?;
        let staging = Pinned::new(device, code.input_bytes)?;
        let fed = device.context.new_event(None).map_err(driver("creating an event"))?;
        let mut bound = CudaBound {
            program: program.clone(),
            areas,
            lanes,
            states: states.to_vec(),
            staging,
            fed,
            graph: None,
            memory,
        };
        if capture && !code.steps.is_empty() {
            bound.graph = Some(bound.captured(|| bound.launch_branches())?);
        }
        Ok(bound)
    }

    /// What is launched as one graph.
    fn captured(&self, launch: impl FnOnce() -> Result<(), CudaError>) -> Result<CudaGraph, CudaError> {
        let stream = &self.program.device.stream;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        stream.begin_capture(mode).map_err(driver("beginning a capture"))?;
        let launched = launch();
        let graph = stream.end_capture(CUgraphInstantiate_flags(0)).map_err(driver("ending a capture"));
        launched?;
        let missing = || CudaError::Driver { call: "ending a capture", message: "no graph".into() };
        let graph = graph?.ok_or_else(missing)?;
        graph.upload().map_err(driver("uploading the graph"))?;
        Ok(graph)
    }

    fn address(&self, a: Address, lane: &Lane) -> u64 {
        let base = match a.space {
            Space::Inputs => self.areas.inputs,
            Space::State(n) => self.states[n],
            Space::Constants => self.areas.constants,
            Space::Arena => self.areas.arena,
            Space::Scratch | Space::Body(_) => lane.scratch,
        };
        base + a.offset as u64
    }

    /// Starts all steps, each branch on its stream; only while that is captured.
    fn launch_branches(&self) -> Result<(), CudaError> {
        let code = &self.program.code;
        let event = |lane: &Lane| lane.stream.record_event(None).map_err(driver("recording an event"));
        let wait =
            |lane: &Lane, event: &CudaEvent| lane.stream.wait(event).map_err(driver("waiting for an event"));
        let begin = event(&self.lanes[0])?;
        self.lanes[1..].iter().try_for_each(|lane| wait(lane, &begin))?;
        let awaited: BTreeSet<usize> = code.branches.waits.iter().flatten().copied().collect();
        let mut events: BTreeMap<usize, CudaEvent> = BTreeMap::new();
        // By branch: whether the last thing on its stream is a kernel.
        let mut behind = vec![false; self.lanes.len()];
        let mut start = 0;
        for (unit, (&branch, waits)) in code.branches.of.iter().zip(&code.branches.waits).enumerate() {
            let lane = &self.lanes[branch];
            for event in waits.iter().filter_map(|w| events.get(w)) {
                wait(lane, event)?;
                behind[branch] = false;
            }
            let count = code.steps[start..].iter().take_while(|(of, _)| *of == unit).count();
            behind[branch] = self.launch(start..start + count, lane, behind[branch])?;
            start += count;
            if awaited.contains(&unit) {
                events.insert(unit, event(lane)?);
            }
        }
        self.lanes[1..].iter().try_for_each(|lane| wait(&self.lanes[0], &event(lane)?))
    }

    /// Starts all steps in order.
    fn launch_all(&self) -> Result<(), CudaError> {
        self.launch(0..self.program.code.steps.len(), &self.lanes[0], false).map(|_| ())
    }

    /// Starts steps on a lane. `behind` says whether the last thing on its stream is a kernel; so does what is returned.
    fn launch(
        &self,
        steps: std::ops::Range<usize>,
        lane: &Lane,
        mut behind: bool,
    ) -> Result<bool, CudaError> {
        let (program, stream) = (&self.program, lane.stream.cu_stream());
        for at in steps {
            match &program.code.steps[at].1 {
                Step::Launch { kernel, grid, arguments } => {
                    let text = &program.code.kernels[*kernel];
                    let launch = Launch {
                        function: program.functions[*kernel],
                        grid: *grid,
                        threads: text.threads,
                        shared_bytes: text.shared_bytes,
                        early: program.device.early && behind,
                    };
                    let mut values: Vec<u64> = arguments.iter().map(|a| self.address(*a, lane)).collect();
                    // SAFETY: the arguments are the addresses that the kernel's text names, in its order, of buffers of
                    // the sizes that its text was made for; the plan's check proved that no step overwrites what is
                    // still read.
                    unsafe { launch.start(stream, &mut values) }?;
                }
                Step::Product(p) => {
                    let blas = program.device.blas.as_ref().zip(program.products[at].as_ref());
                    let lost = || CudaError::Driver { call: "cuBLASLt", message: "not prepared".into() };
                    let (blas, prepared) = blas.ok_or_else(lost)?;
                    let addresses = [p.lhs.0, p.rhs.0, p.out].map(|a| self.address(a, lane));
                    // SAFETY: as above; products keep their order, so that one at a time uses the workspace.
                    unsafe { blas.launch(prepared, addresses, self.areas.workspace, stream) }?;
                }
                Step::Copy { from, to, bytes } => {
                    // SAFETY: both are of that many bytes, and apart.
                    unsafe {
                        let (to, from) = (self.address(*to, lane), self.address(*from, lane));
                        result::memcpy_dtod_async(to, from, *bytes, stream)
                    }
                    .map_err(driver("copying within the device"))?;
                }
            }
            behind = !matches!(program.code.steps[at].1, Step::Copy { .. });
        }
        Ok(behind)
    }

    /// The bytes of an input's area, to be overwritten before a run.
    pub fn input(&mut self, n: usize) -> Result<&mut [u8], CudaError> {
        self.fed.synchronize().map_err(driver("waiting for the last inputs"))?;
        let (_, b) = self.program.schedule.inputs[n];
        let (start, bytes) =
            (self.program.code.homes[b.index()].offset, self.program.schedule.buffer(b).bytes());
        Ok(&mut self.staging.bytes_mut()[start..start + bytes])
    }

    /// Runs the program once: returns when it is under way.
    pub fn run(&mut self) -> Result<(), CudaError> {
        self.feed()?;
        match &self.graph {
            Some(graph) => graph.launch().map_err(driver("launching the graph")),
            None => self.launch_all(),
        }
    }

    /// Copies the inputs to the device.
    fn feed(&mut self) -> Result<(), CudaError> {
        let device = self.program.device.clone();
        device.context.bind_to_thread().map_err(driver("binding the context"))?;
        if !self.staging.bytes().is_empty() {
            // SAFETY: the area has as many bytes; whoever writes the staging memory waits for the event.
            unsafe {
                result::memcpy_htod_async(self.areas.inputs, self.staging.bytes(), device.stream.cu_stream())
            }
            .map_err(driver("copying inputs"))?;
            self.fed.record(&device.stream).map_err(driver("recording an event"))?;
        }
        Ok(())
    }

    /// Runs the program once, kernel by kernel, waits, and adds the nanoseconds of each to `nanoseconds`, in the order of
    /// [`CudaProgram::names`]. What stands between launches counts for the later one.
    pub fn run_timed(&mut self, nanoseconds: &mut [u64]) -> Result<(), CudaError> {
        self.feed()?;
        let program = self.program.clone();
        let event = || {
            let flags = Some(CUevent_flags::CU_EVENT_DEFAULT);
            program.device.stream.record_event(flags).map_err(driver("recording an event"))
        };
        let mut events = vec![event()?];
        let mut start = 0;
        for kernel in 0..program.code.labels.len() {
            let count = program.code.steps[start..].iter().take_while(|(of, _)| *of == kernel).count();
            self.launch(start..start + count, &self.lanes[0], false)?;
            start += count;
            events.push(event()?);
        }
        self.launch(start..program.code.steps.len(), &self.lanes[0], false)?;
        for (time, pair) in nanoseconds.iter_mut().zip(events.windows(2)) {
            let milliseconds = pair[0].elapsed_ms(&pair[1]).map_err(driver("reading an event"))?;
            *time += (f64::from(milliseconds) * 1e6) as u64;
        }
        program.device.synchronize()
    }

    /// Copies a buffer of the schedule, such as an output, after all runs so far; `into` has its size.
    pub fn read_into(&self, b: BufferId, into: &mut [u8]) -> Result<(), CudaError> {
        assert_eq!(into.len(), self.program.schedule.buffer(b).bytes(), "the caller has the buffer's size");
        if into.is_empty() {
            return Ok(());
        }
        copy_out(&self.program.device, self.address(self.program.code.homes[b.index()], &self.lanes[0]), into)
    }

    /// The same as an array.
    pub fn read(&self, b: BufferId) -> Result<Array, CudaError> {
        let buffer = self.program.schedule.buffer(b);
        let mut bytes = vec![0; buffer.bytes()];
        self.read_into(b, &mut bytes)?;
        let wrong = |e: ArrayError| CudaError::Driver { call: "reading a buffer", message: e.to_string() };
        Array::from_bytes(buffer.dtype, &buffer.shape, &bytes).map_err(wrong)
    }

    /// Bytes that this binding owns on the device.
    pub fn bytes(&self) -> usize {
        self.memory.len()
    }

    /// Milliseconds of a run, the mean of `runs` in a row, without inputs.
    pub fn time(&mut self, runs: usize) -> Result<f64, CudaError> {
        self.timed(runs, |bound| match &bound.graph {
            Some(graph) => graph.launch().map_err(driver("launching the graph")),
            None => bound.launch_all(),
        })
    }

    /// Milliseconds of each kernel of the schedule, in the order of [`CudaProgram::names`]: the mean of `runs` in one graph.
    /// What the buffers and the state hold afterwards is of no use.
    pub fn time_kernels(&mut self, runs: usize) -> Result<Vec<f64>, CudaError> {
        let program = self.program.clone();
        let mut times = vec![];
        for kernel in 0..program.code.labels.len() {
            let steps: Vec<usize> =
                (0..program.code.steps.len()).filter(|s| program.code.steps[*s].0 == kernel).collect();
            let Some((&first, &last)) = steps.first().zip(steps.last()) else {
                times.push(0.0);
                continue;
            };
            let launch = || self.launch(first..last + 1, &self.lanes[0], false).map(|_| ());
            let graph = self.captured(|| (0..runs).try_for_each(|_| launch()))?;
            let all = self.timed(1, |_| graph.launch().map_err(driver("launching the graph")))?;
            times.push(all / runs.max(1) as f64);
        }
        Ok(times)
    }

    fn timed(
        &mut self,
        runs: usize,
        run: impl Fn(&CudaBound) -> Result<(), CudaError>,
    ) -> Result<f64, CudaError> {
        let stream = self.program.device.stream.clone();
        let event = || stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
        run(self)?;
        let start = event().map_err(driver("recording an event"))?;
        for _ in 0..runs {
            run(self)?;
        }
        let end = event().map_err(driver("recording an event"))?;
        let milliseconds = start.elapsed_ms(&end).map_err(driver("reading an event"))?;
        Ok(f64::from(milliseconds) / runs.max(1) as f64)
    }
}

impl Drop for CudaBound {
    fn drop(&mut self) {
        // The last run may still read the staging memory.
        let done = self.program.device.stream.synchronize();
        self.program.device.context.record_err(done);
    }
}
