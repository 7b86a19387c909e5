//! A program with its memory: one allocation for inputs, constants, arena, scratch and workspace, the addresses of the state,
//! and all launches captured in one CUDA graph, on as many branches as the program has.

use super::feed::Feed;
use super::launch::{Launch, tensor_map};
use super::memory::{Memory, Pinned, copy_out};
use super::{CudaProgram, driver};
use crate::CudaError;
use crate::areas::Areas;
use crate::code::{Address, Space, Step};
use cudarc::driver::sys::{CUevent_flags, CUgraphInstantiate_flags, CUstream, CUstreamCaptureMode};
use cudarc::driver::{CudaEvent, CudaGraph, CudaStream, result};
use onestep_ir::{Array, ArrayError};
use onestep_passes::schedule::BufferId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A program bound to state tensors. A run has the inputs copied from pinned memory and launches one graph.
pub struct CudaBound {
    program: Arc<CudaProgram>,
    places: Places,
    states: Vec<u64>,
    feeds: Vec<Feed>,
    /// The feed of the last run; where inputs were put since, of the next one.
    turn: usize,
    fresh: bool,
    /// Where runs leave the number of a bad index.
    notice: Pinned,
    // Freed last.
    memory: Memory,
}

// SAFETY: handles of a context, used through an exclusive borrow from any thread that is bound to it.
unsafe impl Send for CudaBound {}

/// Addresses of the areas.
#[derive(Clone, Copy)]
struct Places {
    constants: u64,
    arena: u64,
    /// That of the first branch; the others' follow.
    scratch: u64,
    workspace: u64,
}

/// Where the kernels of a branch are started, their scratch, and the inputs.
struct Lane {
    stream: Arc<CudaStream>,
    scratch: u64,
    inputs: u64,
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
        let areas = Areas::of(code);
        let mut memory = Memory::new(device, areas.bytes())?;
        let [inputs, constants, arena, scratch, workspace] = areas.starts();
        memory.write(constants, &code.constants)?;
        let place = |start: usize| memory.pointer() + start as u64;
        let places = Places {
            constants: place(constants),
            arena: place(arena),
            scratch: place(scratch),
            workspace: place(workspace),
        };
        let feed = |turn: usize| {
            let start = inputs + turn * Areas::inputs_of_turn(code);
            Feed::new(device, place(start), code.input_bytes)
        };
        let feeds = (0..Areas::turns(code)).map(feed).collect::<Result<_, _>>()?;
        let notice = Pinned::new(device, size_of::<i32>())?;
        let states = states.to_vec();
        let (turn, fresh) = (0, false);
        let mut bound =
            CudaBound { program: program.clone(), places, states, feeds, turn, fresh, notice, memory };
        if capture && !code.steps.is_empty() {
            for turn in 0..bound.feeds.len() {
                let graph =
                    bound.captured(turn, code.branches.count, |lanes| bound.launch_branches(lanes))?;
                bound.feeds[turn].graph = Some(graph);
            }
        }
        Ok(bound)
    }

    /// The device's stream with the first branch's scratch and the inputs of this turn.
    fn lane(&self) -> Lane {
        let stream = self.program.device.stream.clone();
        Lane { stream, scratch: self.places.scratch, inputs: self.feeds[self.turn].inputs }
    }

    /// What is launched on so many lanes with the inputs of a turn, as one graph. They are streams of their own: what other
    /// threads start on the device's meanwhile stays out of it.
    fn captured(
        &self,
        turn: usize,
        branches: usize,
        launch: impl FnOnce(&[Lane]) -> Result<(), CudaError>,
    ) -> Result<CudaGraph, CudaError> {
        let device = &self.program.device;
        let lane = |branch: usize| {
            let stream = device.context.new_stream().map_err(driver("creating a stream"))?;
            let before = (branch * Areas::scratch_of_branch(&self.program.code)) as u64;
            Ok(Lane { stream, scratch: self.places.scratch + before, inputs: self.feeds[turn].inputs })
        };
        let lanes = (0..branches.max(1)).map(lane).collect::<Result<Vec<Lane>, CudaError>>()?;
        let stream = &lanes[0].stream;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        stream.begin_capture(mode).map_err(driver("beginning a capture"))?;
        let launched = launch(&lanes);
        let graph = stream.end_capture(CUgraphInstantiate_flags(0)).map_err(driver("ending a capture"));
        launched?;
        let missing = || CudaError::Driver { call: "ending a capture", message: "no graph".into() };
        let graph = graph?.ok_or_else(missing)?;
        // SAFETY: both are alive.
        unsafe { result::graph::upload(graph.cu_graph_exec(), self.stream()) }
            .map_err(driver("uploading the graph"))?;
        Ok(graph)
    }

    /// The device's stream.
    fn stream(&self) -> CUstream {
        self.program.device.stream.cu_stream()
    }

    /// Starts a graph on the device's stream.
    fn replay(&self, graph: &CudaGraph) -> Result<(), CudaError> {
        // SAFETY: both are alive; a graph is launched by its owner alone.
        unsafe { result::graph::launch(graph.cu_graph_exec(), self.stream()) }
            .map_err(driver("launching the graph"))
    }

    /// Starts all steps on the device's stream, as one graph if there is one.
    fn start(&self) -> Result<(), CudaError> {
        match &self.feeds[self.turn].graph {
            Some(graph) => self.replay(graph),
            None => self.launch(0..self.program.code.steps.len(), &self.lane(), false).map(|_| ()),
        }
    }

    fn address(&self, a: Address, lane: &Lane) -> u64 {
        let base = match a.space {
            Space::Inputs => lane.inputs,
            Space::State(n) => self.states[n],
            Space::Constants => self.places.constants,
            Space::Arena => self.places.arena,
            Space::Notice => self.notice.address(),
            Space::Scratch | Space::Body(_) => lane.scratch,
        };
        base + a.offset as u64
    }

    /// Starts all steps, each branch on its lane; only while those are captured.
    fn launch_branches(&self, lanes: &[Lane]) -> Result<(), CudaError> {
        let code = &self.program.code;
        let event = |lane: &Lane| lane.stream.record_event(None).map_err(driver("recording an event"));
        let wait =
            |lane: &Lane, event: &CudaEvent| lane.stream.wait(event).map_err(driver("waiting for an event"));
        let begin = event(&lanes[0])?;
        lanes[1..].iter().try_for_each(|lane| wait(lane, &begin))?;
        let awaited: BTreeSet<usize> = code.branches.waits.iter().flatten().copied().collect();
        let mut events: BTreeMap<usize, CudaEvent> = BTreeMap::new();
        // By branch: whether the last thing on its stream is a kernel.
        let mut behind = vec![false; lanes.len()];
        let mut start = 0;
        for (unit, (&branch, waits)) in code.branches.of.iter().zip(&code.branches.waits).enumerate() {
            let lane = &lanes[branch];
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
        lanes[1..].iter().try_for_each(|lane| wait(&lanes[0], &event(lane)?))
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
                    let pairs = text.maps.iter().zip(&values);
                    let mut maps = pairs.map(|(m, a)| tensor_map(m, *a)).collect::<Result<Vec<_>, _>>()?;
                    // SAFETY: the arguments are the addresses that the kernel's text names, in its order, of buffers of
                    // the sizes that its text was made for; the plan's check proved that no step overwrites what is
                    // still read.
                    unsafe { launch.start(stream, &mut maps, &mut values) }?;
                }
                Step::Product(p) => {
                    let blas = program.device.blas.as_ref().zip(program.products[at].as_ref());
                    let lost = || CudaError::Driver { call: "cuBLASLt", message: "not prepared".into() };
                    let (blas, prepared) = blas.ok_or_else(lost)?;
                    let addresses = [p.lhs.0, p.rhs.0, p.out].map(|a| self.address(a, lane));
                    // SAFETY: as above; products stay in order with each other, so one at a time uses the workspace.
                    unsafe { blas.launch(prepared, addresses, self.places.workspace, stream) }?;
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

    /// The bytes of an input's area, to be overwritten before a run. A run takes either all inputs anew, or those of the last
    /// one.
    pub fn input(&mut self, n: usize) -> Result<&mut [u8], CudaError> {
        if !self.fresh {
            self.turn = (self.turn + 1) % self.feeds.len();
            self.fresh = true;
        }
        let (_, b) = self.program.schedule.inputs[n];
        let (start, bytes) =
            (self.program.code.homes[b.index()].offset, self.program.schedule.buffer(b).bytes());
        Ok(&mut self.feeds[self.turn].staging()?[start..start + bytes])
    }

    /// The number of a bad index that a run has met since somebody looked last; where there were several, of the last one.
    /// With `wait`, of all runs so far.
    pub fn look(&mut self, wait: bool) -> Result<Option<i32>, CudaError> {
        if wait {
            self.program.device.synchronize()?;
        }
        Ok(Some(self.notice.take()).filter(|number| *number != 0))
    }

    /// Runs the program once: returns when it is under way.
    pub fn run(&mut self) -> Result<(), CudaError> {
        self.feed()?;
        self.start()?;
        self.feeds[self.turn].note_run()
    }

    /// Has fresh inputs copied to the device.
    fn feed(&mut self) -> Result<(), CudaError> {
        self.program.device.context.bind_to_thread().map_err(driver("binding the context"))?;
        if std::mem::take(&mut self.fresh) { self.feeds[self.turn].copy() } else { Ok(()) }
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
        let lane = self.lane();
        let mut start = 0;
        for kernel in 0..program.code.labels.len() {
            let count = program.code.steps[start..].iter().take_while(|(of, _)| *of == kernel).count();
            self.launch(start..start + count, &lane, false)?;
            start += count;
            events.push(event()?);
        }
        self.launch(start..program.code.steps.len(), &lane, false)?;
        self.feeds[self.turn].note_run()?;
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
        copy_out(&self.program.device, self.address(self.program.code.homes[b.index()], &self.lane()), into)
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
        self.timed(runs, CudaBound::start)
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
            let launch = |lanes: &[Lane]| {
                (0..runs).try_for_each(|_| self.launch(first..last + 1, &lanes[0], false).map(|_| ()))
            };
            let graph = self.captured(self.turn, 1, launch)?;
            let all = self.timed(1, |bound| bound.replay(&graph))?;
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
        // The last copy may still read the staging memory, and the last run write the notice.
        let device = &self.program.device;
        for stream in [&device.copies, &device.stream] {
            device.context.record_err(stream.synchronize());
        }
    }
}
