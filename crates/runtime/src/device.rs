//! Where programs run.

use crate::Error;
use crate::driver::Driver;
use crate::memory::{Memory, Remedy};
use onestep_cpu::CpuTarget;
use onestep_cpu::pool::Pool;
use onestep_cuda::CudaTarget;
use onestep_passes::Target;
use std::sync::Arc;

/// A device. Cloning shares it, with its threads.
#[derive(Clone)]
pub struct Device {
    pub(crate) kind: Kind,
    /// The most bytes that a program may take.
    limit: Option<usize>,
}

/// What a device is.
#[derive(Clone)]
pub(crate) enum Kind {
    Cpu(Arc<Pool>),
    /// One with memory of its own; a build without any knows none.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    Own(Arc<dyn Driver>),
    /// An NVIDIA GPU that is not there.
    Offline,
}

impl From<Kind> for Device {
    fn from(kind: Kind) -> Device {
        Device { kind, limit: None }
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.kind {
            Kind::Cpu(pool) => write!(f, "cpu ({} threads)", pool.threads()),
            Kind::Own(driver) => write!(f, "{} ({driver:?})", self.name()),
            Kind::Offline => write!(f, "{} (by its description)", self.name()),
        }
    }
}

impl Device {
    /// The CPU, with as many threads as the process may use.
    pub fn cpu() -> Result<Device, Error> {
        Device::cpu_with(std::thread::available_parallelism().map_or(1, |n| n.get()))
    }

    /// The CPU with this many threads; results do not depend on the number.
    pub fn cpu_with(threads: usize) -> Result<Device, Error> {
        if threads == 0 || threads > 1024 {
            return Err(Error::Threads { threads });
        }
        let pool =
            Pool::new(threads).map_err(|source| Error::Spawn { threads, message: source.to_string() })?;
        Ok(Kind::Cpu(Arc::new(pool)).into())
    }

    /// The first NVIDIA GPU. The error names a library that is not there.
    #[cfg(feature = "cuda")]
    pub fn cuda() -> Result<Device, Error> {
        Ok(Kind::Own(Arc::new(crate::cuda::Cuda::open()?)).into())
    }

    /// An NVIDIA GPU by its description alone. Programs are compiled for it to text, launches and a memory plan, on any
    /// machine; none can be bound.
    pub fn cuda_offline() -> Device {
        Kind::Offline.into()
    }

    /// The same device, of whose memory a program may take this much at most, its state included. One that needs more is
    /// refused when it is bound, before anything is allocated: [`Error::OutOfMemory`].
    pub fn limited(self, bytes: usize) -> Device {
        Device { limit: Some(bytes), ..self }
    }

    /// The device with this name: `cpu`, or `cuda` in a build with that feature. `threads` are those of the CPU.
    pub fn named(name: &str, threads: Option<usize>) -> Result<Device, Error> {
        match name {
            "cpu" => match threads {
                Some(n) => Device::cpu_with(n),
                None => Device::cpu(),
            },
            #[cfg(feature = "cuda")]
            "cuda" => Device::cuda(),
            _ => Err(Error::NoDevice { name: name.to_string() }),
        }
    }

    /// Every device that this build knows, by name, with what it is or why it cannot be used; then what there is to know of a
    /// GPU, and the libraries that it asks for, each with whether it was found.
    pub fn survey() -> Vec<(&'static str, String)> {
        let said = |device: &Result<Device, Error>| match device {
            Ok(device) => format!("{device:?}"),
            Err(e) => format!("not usable: {e}"),
        };
        let mut all = vec![("cpu", said(&Device::cpu()))];
        #[cfg(feature = "cuda")]
        {
            let device = Device::cuda();
            all.push(("cuda", said(&device)));
            match device.map(|d| d.driver().map_or(Ok(vec![]), |driver| driver.facts())) {
                Ok(Ok(facts)) => all.extend(facts),
                Ok(Err(e)) => all.push(("cuda", format!("not usable: {e}"))),
                Err(_) => {}
            }
            for l in onestep_cuda::device::libraries() {
                let found = if l.found { "found" } else { "missing" };
                all.push((l.file, format!("{found} ({})", l.purpose)));
            }
        }
        #[cfg(not(feature = "cuda"))]
        all.push(("cuda", said(&Device::named("cuda", None))));
        all
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.target().name()
    }

    /// Bytes of its own memory that are free now; `None` of the CPU, which has none.
    pub fn free_bytes(&self) -> Result<Option<usize>, Error> {
        self.driver().map(|driver| driver.free_bytes()).transpose()
    }

    /// How many threads of the host compute: all of the CPU's, and one that starts the work of a GPU.
    pub fn threads(&self) -> usize {
        self.pool().map_or(1, Pool::threads)
    }

    /// The CPU's threads; of a GPU, none are needed.
    pub(crate) fn pool(&self) -> Option<&Pool> {
        match &self.kind {
            Kind::Cpu(pool) => Some(pool),
            _ => None,
        }
    }

    /// The driver of a device with memory of its own.
    pub(crate) fn driver(&self) -> Option<&Arc<dyn Driver>> {
        match &self.kind {
            Kind::Own(driver) => Some(driver),
            _ => None,
        }
    }

    /// What it takes, for the passes.
    pub(crate) fn target(&self) -> &'static dyn Target {
        match &self.kind {
            Kind::Cpu(_) => &CpuTarget,
            Kind::Own(driver) => driver.target(),
            Kind::Offline => &CudaTarget::HOPPER,
        }
    }

    /// Refuses a program that needs more memory than there is for it, of whose state so many bytes are there already.
    pub(crate) fn afford(&self, memory: &Memory, resident: usize) -> Result<(), Error> {
        // The system's memory is known to be short only when it refuses.
        let free = self.free_bytes()?.map_or(usize::MAX, |free| free.saturating_add(resident));
        let (needed, free) = (memory.peak(), free.min(self.limit.unwrap_or(usize::MAX)));
        if needed <= free {
            return Ok(());
        }
        Err(Error::OutOfMemory { device: self.name(), needed, free, remedy: Remedy::Smaller })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_survey_names_every_device() {
        let all = Device::survey();
        assert!(all[0].0 == "cpu" && all[0].1.contains("threads"), "{all:?}");
        assert_eq!(all[1].0, "cuda");
    }

    #[test]
    fn devices_by_name() {
        assert_eq!(Device::named("cpu", Some(2)).unwrap().threads(), 2);
        let error = |name| Device::named(name, None).unwrap_err().to_string();
        assert!(error("tpu").starts_with("there is no device 'tpu' in this build; use 'cpu'"));
        #[cfg(not(feature = "cuda"))]
        assert_eq!(
            error("cuda"),
            "there is no device 'cuda' in this build; build with the feature `cuda`, or use 'cpu'"
        );
    }
}
