//! A device for tests whose memory is its own: the CPU's kernels on memory that only the device touches. It can be told to
//! fail, as a GPU that is lost does, and to have little memory.

use crate::Error;
use crate::device::{Device, Kind};
use crate::driver::{DeviceBound, DeviceMemory, DeviceProgram, Driver};
use onestep_cpu::pool::Pool;
use onestep_cpu::{CpuProgram, CpuTarget};
use onestep_cuda::CudaError;
use onestep_cuda::code::Code;
use onestep_passes::Target;
use onestep_passes::indices;
use onestep_passes::plan::{Place, Plan};
use onestep_passes::schedule::{BufferId, BufferKind, Schedule};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What a test can do to the device.
#[derive(Debug)]
pub(crate) struct Switches {
    /// Every call fails.
    pub lost: AtomicBool,
    /// Bytes that are free.
    pub free: AtomicUsize,
}

impl Switches {
    fn alive(&self) -> Result<(), Error> {
        match self.lost.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(CudaError::Driver { call: "the fake", message: "the device is lost".into() }.into()),
        }
    }
}

/// A device, and its switches.
pub(crate) fn device() -> (Device, Arc<Switches>) {
    let switches = Arc::new(Switches { lost: false.into(), free: usize::MAX.into() });
    (Kind::Own(Arc::new(Fake(switches.clone()))).into(), switches)
}

#[derive(Debug)]
struct Fake(Arc<Switches>);

impl Driver for Fake {
    fn target(&self) -> &'static dyn Target {
        &CpuTarget
    }
    fn lower(&self, schedule: &Schedule, plan: &Plan) -> Result<Code, Error> {
        let mut code = Code::default();
        code.arena_bytes = plan.arena_bytes;
        code.input_bytes = plan.input_bytes;
        code.labels = schedule.kernels.iter().map(|_| "a kernel".to_string()).collect();
        Ok(code)
    }
    fn compile(&self, schedule: &Schedule, plan: &Plan) -> Result<Arc<dyn DeviceProgram>, Error> {
        Ok(Arc::new(Compiled {
            code: self.lower(schedule, plan)?,
            program: Arc::new(CpuProgram::new(schedule)?),
            schedule: schedule.clone(),
            plan: plan.clone(),
            switches: self.0.clone(),
        }))
    }
    fn free_bytes(&self) -> Result<usize, Error> {
        Ok(self.0.free.load(Ordering::Relaxed))
    }
    fn upload(&self, bytes: &[u8]) -> Result<Box<dyn DeviceMemory>, Error> {
        self.0.alive()?;
        let mut memory =
            Allocation { words: words(bytes.len()), bytes: bytes.len(), switches: self.0.clone() };
        memory.write(bytes)?;
        Ok(Box::new(memory))
    }
}

/// Zeros, aligned for every element.
fn words(bytes: usize) -> Box<[u128]> {
    vec![0; bytes.div_ceil(16) + 1].into()
}

fn at(words: &[u128]) -> *mut u8 {
    words.as_ptr().cast_mut().cast()
}

#[derive(Debug)]
struct Allocation {
    words: Box<[u128]>,
    bytes: usize,
    switches: Arc<Switches>,
}

impl DeviceMemory for Allocation {
    fn address(&self) -> u64 {
        at(&self.words) as u64
    }
    fn read(&self, into: &mut [u8]) -> Result<(), Error> {
        self.switches.alive()?;
        assert_eq!(into.len(), self.bytes);
        // SAFETY: the allocation has as many bytes.
        unsafe { at(&self.words).copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
        Ok(())
    }
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.switches.alive()?;
        assert_eq!(bytes.len(), self.bytes);
        // SAFETY: as above.
        unsafe { at(&self.words).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }
}

struct Compiled {
    code: Code,
    program: Arc<CpuProgram>,
    schedule: Schedule,
    plan: Plan,
    switches: Arc<Switches>,
}

impl DeviceProgram for Compiled {
    fn code(&self) -> &Code {
        &self.code
    }
    unsafe fn bind(&self, states: &[u64]) -> Result<Box<dyn DeviceBound>, Error> {
        self.switches.alive()?;
        let (s, p) = (&self.schedule, &self.plan);
        let arena = words(p.arena_bytes);
        let inputs: Vec<Box<[u128]>> = s.inputs.iter().map(|(_, b)| words(s.buffer(*b).bytes())).collect();
        let mut constants = vec![];
        let addresses = s.buffers.iter().zip(&p.places).map(|(b, place)| match (*place, &b.kind) {
            (Place::Input(n), _) => at(&inputs[n]),
            (Place::State(n), _) => states[n] as *mut u8,
            // SAFETY: the plan's check keeps every offset inside the arena.
            (Place::Arena(offset), _) => unsafe { at(&arena).add(offset) },
            (Place::Constant, BufferKind::Constant(array)) => {
                let memory = words(array.bytes().len());
                // SAFETY: the memory has as many bytes.
                unsafe { at(&memory).copy_from_nonoverlapping(array.bytes().as_ptr(), array.bytes().len()) };
                constants.push(memory);
                at(&constants[constants.len() - 1])
            }
            (Place::Constant, _) => panic!("a constant has a value"),
        });
        let addresses: Vec<usize> = addresses.map(|a| a as usize).collect();
        let commits =
            p.commits.iter().map(|(b, n)| (addresses[b.index()], states[*n] as usize, s.buffer(*b).bytes()));
        Ok(Box::new(Bound {
            commits: commits.collect(),
            addresses,
            sizes: s.buffers.iter().map(|b| b.bytes()).collect(),
            inputs: s
                .inputs
                .iter()
                .zip(inputs)
                .map(|((_, b), memory)| (memory, s.buffer(*b).bytes()))
                .collect(),
            scratch: words(self.program.scratch_bytes(1)),
            program: self.program.clone(),
            pool: Pool::new(1).expect("one thread is the caller's own"),
            flag: indices::flag(s),
            noted: Mutex::default(),
            switches: self.switches.clone(),
            _memory: (arena, constants),
        }))
    }
}

struct Bound {
    program: Arc<CpuProgram>,
    pool: Pool,
    addresses: Vec<usize>,
    sizes: Vec<usize>,
    /// Source, destination, bytes.
    commits: Vec<(usize, usize, usize)>,
    inputs: Vec<(Box<[u128]>, usize)>,
    scratch: Box<[u128]>,
    flag: Option<BufferId>,
    /// What the flag held after each run that was not looked at.
    noted: Mutex<VecDeque<i32>>,
    switches: Arc<Switches>,
    _memory: (Box<[u128]>, Vec<Box<[u128]>>),
}

impl DeviceBound for Bound {
    fn input(&mut self, n: usize) -> Result<&mut [u8], Error> {
        self.switches.alive()?;
        let (memory, bytes) = &mut self.inputs[n];
        // SAFETY: the memory has as many bytes, and the borrow is exclusive.
        Ok(unsafe { std::slice::from_raw_parts_mut(at(memory), *bytes) })
    }
    fn run(&mut self, _: Option<&mut [u64]>) -> Result<(), Error> {
        self.switches.alive()?;
        let addresses: Vec<*mut u8> = self.addresses.iter().map(|a| *a as *mut u8).collect();
        // SAFETY: every address is of a live buffer of the size that the schedule says.
        unsafe { self.program.run(&self.pool, &addresses, at(&self.scratch)) };
        for &(from, to, bytes) in &self.commits {
            // SAFETY: both are live buffers of that many bytes, and apart.
            unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
        }
        if let Some(b) = self.flag {
            // SAFETY: the flag is an i32.
            let number = unsafe { (self.addresses[b.index()] as *const i32).read() };
            self.noted.lock().expect("no holder panics").push_back(number);
        }
        Ok(())
    }
    fn read(&self, b: BufferId, into: &mut [u8]) -> Result<(), Error> {
        self.switches.alive()?;
        assert_eq!(into.len(), self.sizes[b.index()]);
        // SAFETY: the buffer has as many bytes.
        unsafe {
            (self.addresses[b.index()] as *const u8).copy_to_nonoverlapping(into.as_mut_ptr(), into.len())
        };
        Ok(())
    }
    fn look(&mut self, wait: bool) -> Result<Option<i32>, Error> {
        self.switches.alive()?;
        let mut noted = self.noted.lock().expect("no holder panics");
        // A run is over when somebody waits for it, or when another one has been started behind it.
        while noted.len() > usize::from(!wait) {
            match noted.pop_front() {
                Some(number) if number != 0 => return Ok(Some(number)),
                _ => {}
            }
        }
        Ok(None)
    }
    fn bytes(&self) -> usize {
        self.sizes.iter().sum()
    }
}

mod tests {
    use super::*;
    use crate::{Options, Program, Remedy, State};
    use onestep_ir::{Array, DType, Graph, GraphBuilder, Init, Role};

    /// A table of which rows are read and scaled: the program checks an index, and changes state under a guard.
    fn lookup() -> Graph {
        let g = GraphBuilder::new("lookup");
        let ids = g.input("ids", DType::I32, [2]);
        let table = g.parameter("table", &[4, 3], Init::ONES);
        let count = g.state("count", Role::Buffer, DType::F32, &[], Init::ZEROS);
        let rows = table.gather(0, ids);
        g.update(table, table * 2.0, true);
        g.update(count, count + 1.0, true);
        let gradient = g.state("grad/table", Role::Gradient, DType::F32, &[4, 3], Init::ZEROS);
        g.update(gradient, table * 0.5, false);
        g.output("loss", rows.sum_all());
        g.build().unwrap()
    }

    fn ids(a: i32, b: i32) -> [Array; 1] {
        [Array::new(&[2], &[a, b]).unwrap()]
    }

    fn program(device: &Device) -> (Program, State) {
        let program = Program::new(&lookup(), device, &Options::default()).unwrap();
        let state = program.init(0).unwrap();
        (program, state)
    }

    fn lost<T>(result: Result<T, Error>) {
        let error = result.err().expect("the device is lost").to_string();
        assert!(error.contains("the device is lost"), "{error}");
    }

    #[test]
    fn both_devices_give_the_same_and_hand_the_state_over() {
        let (device, _) = device();
        let (mut here, mut state) = program(&Device::cpu_with(1).unwrap());
        let (mut there, _) = program(&device);
        let mut losses = vec![];
        for remote in [false, true, true, false] {
            let program = if remote { &mut there } else { &mut here };
            losses.push(program.run(&mut state, ids(0, 3)).unwrap().loss().unwrap());
        }
        assert_eq!(losses, [6.0, 12.0, 24.0, 48.0]);
        assert_eq!(state.as_slice::<f32>("table").unwrap(), [16.0; 12]);
        // A row written here is there at the next run.
        state.write_row("table", 0, &Array::new(&[3], &[1f32; 3]).unwrap()).unwrap();
        assert_eq!(there.run(&mut state, ids(0, 0)).unwrap().loss().unwrap(), 6.0);
    }

    #[test]
    fn a_lost_device_is_an_error_everywhere() {
        let (device, switches) = device();
        let (mut there, mut state) = program(&device);
        state.adopt("table", &[4, 3], vec![1f32; 12]).unwrap();
        there.run(&mut state, ids(0, 1)).unwrap().loss().unwrap();
        switches.lost.store(true, Ordering::Relaxed);
        lost(state.get("table"));
        lost(state.scalar("count"));
        lost(state.try_clone());
        lost(state.digests());
        lost(state.arrays());
        lost(state.as_slice::<f32>("table"));
        lost(state.as_mut_slice::<f32>("table"));
        lost(state.release::<f32>("table"));
        lost(state.write_row("table", 0, &Array::new(&[3], &[1f32; 3]).unwrap()));
        let folder = tempfile::tempdir().unwrap();
        lost(state.save(folder.path().join("state.safetensors")));
        lost(there.update_with(&mut state, ["table"], |_, _, w: &mut [f32], g: &[f32]| w.copy_from_slice(g)));
        lost(there.executable().unwrap().clone().values(&state, ids(0, 1)));
        lost(there.run(&mut state, ids(0, 1)).map(|_| ()));
        // The CPU cannot go on with what it has not got.
        let (mut here, _) = program(&Device::cpu_with(1).unwrap());
        lost(here.run(&mut state, ids(0, 1)).map(|_| ()));
        // Nothing was taken out of the state meanwhile; and what is put there anew is known again.
        switches.lost.store(false, Ordering::Relaxed);
        assert_eq!(state.release::<f32>("table").unwrap(), [2.0; 12]);
        switches.lost.store(true, Ordering::Relaxed);
        state.set("count", &Array::scalar(7f32));
        assert_eq!(state.scalar("count").unwrap(), 7.0);
    }

    #[test]
    fn own_optimizers_reach_the_state_there() {
        let (device, _) = device();
        let (mut there, mut state) = program(&device);
        there.run(&mut state, ids(0, 1)).unwrap();
        there
            .update_with(&mut state, ["table"], |_, _, w: &mut [f32], g: &[f32]| w.copy_from_slice(g))
            .unwrap();
        assert_eq!(there.run(&mut state, ids(0, 1)).unwrap().loss().unwrap(), 3.0);
    }

    /// A run is not waited for: a bad index is the error of the first read behind it, or of a later call.
    #[test]
    fn a_bad_index_is_found_later() {
        let (device, _) = device();
        let (mut there, mut state) = program(&device);
        let bad = |e: Error| assert!(matches!(e, Error::BadIndex { bound: 3, .. }), "{e}");
        let out = there.run(&mut state, ids(0, 9)).unwrap();
        bad(out.loss().unwrap_err());
        bad(out.array("loss").unwrap_err());
        assert_eq!(state.as_slice::<f32>("table").unwrap(), [1.0; 12], "nothing guarded was written");
        // Told once, it does not come back.
        assert_eq!(there.run(&mut state, ids(0, 0)).unwrap().loss().unwrap(), 6.0);
        // Nobody reads: the runs behind it are fine, and a later call says so and runs nothing.
        there.run(&mut state, ids(0, -1)).unwrap();
        there.run(&mut state, ids(0, 0)).unwrap();
        bad(there.run(&mut state, ids(0, 0)).map(|_| ()).unwrap_err());
        assert_eq!(state.scalar("count").unwrap(), 2.0);
        assert_eq!(there.run(&mut state, ids(0, 0)).unwrap().loss().unwrap(), 24.0);
        // Nor is it forgotten where the program binds again.
        there.run(&mut state, ids(0, 9)).unwrap();
        state.adopt("table", &[4, 3], vec![1f32; 12]).unwrap();
        bad(there.run(&mut state, ids(0, 0)).map(|_| ()).unwrap_err());
        assert_eq!(there.run(&mut state, ids(0, 0)).unwrap().loss().unwrap(), 6.0);
        // Gradients of a run that was bad are not for an optimizer.
        there.run(&mut state, ids(0, 9)).unwrap();
        bad(there.update_with(&mut state, ["table"], |_, _, _: &mut [f32], _| {}).unwrap_err());
    }

    #[test]
    fn what_does_not_fit_is_refused_before_it_is_bound() {
        let (device, switches) = device();
        let (mut there, mut state) = program(&device);
        let memory = there.executable().unwrap().memory();
        assert_eq!(memory.state, 4 * 3 * 4 * 2 + 4);
        assert_eq!(memory.peak(), memory.state + memory.binding());
        switches.free.store(memory.peak() - 1, Ordering::Relaxed);
        let error = there.run(&mut state, ids(0, 0)).map(|_| ()).unwrap_err();
        let Error::OutOfMemory { needed, free, remedy: Remedy::Smaller, .. } = error else {
            panic!("{error}")
        };
        assert_eq!((needed, free), (memory.peak(), memory.peak() - 1));
        // The caller knows a remedy.
        there.on_short_memory(Box::new(|_, budget| Remedy::Recompute { budget, peak: budget - 7 }));
        let error = there.run(&mut state, ids(0, 0)).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(&format!("FitIn({free})")), "{error}");
        switches.free.store(memory.peak(), Ordering::Relaxed);
        there.run(&mut state, ids(0, 0)).unwrap();
        // State that is there already need not fit a second time.
        let (mut again, _) = program(&device);
        switches.free.store(memory.binding(), Ordering::Relaxed);
        again.run(&mut state, ids(0, 0)).unwrap();
        // A limit holds on every device.
        for device in [device, Device::cpu_with(1).unwrap()] {
            let peak = program(&device).0.executable().unwrap().memory().peak();
            let (mut limited, mut state) = program(&device.clone().limited(peak - 1));
            switches.free.store(usize::MAX, Ordering::Relaxed);
            let error = limited.run(&mut state, ids(0, 0)).map(|_| ()).unwrap_err();
            assert!(matches!(error, Error::OutOfMemory { free, .. } if free == peak - 1), "{error}");
            let (mut limited, mut state) = program(&device.limited(peak));
            limited.run(&mut state, ids(0, 0)).unwrap();
        }
    }

    #[test]
    fn a_described_device_runs_nothing() {
        let (mut there, mut state) = program(&Device::cuda_offline());
        let executable = there.executable().unwrap();
        let report = executable.report();
        assert_eq!(report.launches().count(), report.to_string().matches(" <").count());
        assert!(report.launches().count() >= 3 && executable.texts().count() >= 2, "{report}");
        assert!(executable.texts().all(|(name, text)| text.contains(name)));
        let error = there.run(&mut state, ids(0, 0)).map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::Offline { device: "cuda" }), "{error}");
    }
}
