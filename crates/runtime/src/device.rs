//! Where programs run.

use crate::Error;
use onestep_cpu::pool::Pool;
use std::sync::Arc;

/// A device. Cloning shares it, with its threads.
#[derive(Clone)]
pub struct Device {
    pool: Arc<Pool>,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cpu ({} threads)", self.threads())
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
        Ok(Device { pool: Arc::new(pool) })
    }

    /// The device with this name: `cpu`.
    pub fn named(name: &str, threads: Option<usize>) -> Result<Device, Error> {
        match name {
            "cpu" => match threads {
                Some(n) => Device::cpu_with(n),
                None => Device::cpu(),
            },
            _ => Err(Error::NoDevice { name: name.to_string() }),
        }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        "cpu"
    }

    /// How many threads it computes with.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }
}
