//! A host buffer's copy on a device with memory of its own. Each side is copied to the other when it is asked for and behind,
//! and not before: in a loop of steps nothing is copied at all.

use crate::Error;
use crate::driver::{DeviceMemory, Driver};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The copy, if there is one, and which side is behind the other.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    memory: Mutex<Option<Box<dyn DeviceMemory>>>,
    host_behind: AtomicBool,
    device_behind: AtomicBool,
}

impl Mirror {
    fn memory(&self) -> MutexGuard<'_, Option<Box<dyn DeviceMemory>>> {
        self.memory.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Brings the host up to date.
    ///
    /// # Safety
    ///
    /// `host` is writable for the buffer's `bytes`, and whoever reads them asks for this first.
    pub unsafe fn to_host(&self, host: *mut u8, bytes: usize) -> Result<(), Error> {
        if !self.host_behind.load(Ordering::Acquire) {
            return Ok(());
        }
        // The lock is held until the bytes are there: another reader waits for them.
        let memory = self.memory();
        if self.host_behind.load(Ordering::Acquire)
            && let Some(memory) = &*memory
        {
            // SAFETY: the caller's contract; while the flag is set nobody reads the bytes.
            memory.read(unsafe { std::slice::from_raw_parts_mut(host, bytes) })?;
            self.host_behind.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Brings the device up to date, and makes the copy at first; its address. `host` has the buffer's bytes: it is up to date
    /// if it is ahead of the device, or if there is no copy.
    pub fn to_device(&self, driver: &dyn Driver, host: &[u8]) -> Result<u64, Error> {
        let mut memory = self.memory();
        let address = match &mut *memory {
            Some(memory) => {
                if self.is_device_behind() {
                    memory.write(host)?;
                }
                memory.address()
            }
            None => memory.insert(driver.upload(host)?).address(),
        };
        self.device_behind.store(false, Ordering::Release);
        Ok(address)
    }

    /// Whether there is a copy.
    pub fn is_resident(&self) -> bool {
        self.memory().is_some()
    }

    /// Whether [`Mirror::to_device`] has something to copy.
    pub fn is_device_behind(&self) -> bool {
        self.device_behind.load(Ordering::Acquire)
    }

    /// Notes that the host's bytes were changed: all of them, or some of bytes that were up to date.
    pub fn host_changed(&self) {
        self.host_behind.store(false, Ordering::Release);
        self.device_behind.store(true, Ordering::Release);
    }

    /// Notes that the device's bytes were changed.
    pub fn device_changed(&self) {
        self.host_behind.store(true, Ordering::Release);
    }
}
