//! A host buffer's copy on a GPU. Each side is copied to the other when it is asked for and behind, and not before: in a loop
//! of steps nothing is copied at all.

use onestep_cuda::CudaError;
use onestep_cuda::device::{CudaDevice, Memory};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The copy, if there is one, and which side is behind the other.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    memory: Mutex<Option<Memory>>,
    host_behind: AtomicBool,
    device_behind: AtomicBool,
}

impl Mirror {
    fn memory(&self) -> MutexGuard<'_, Option<Memory>> {
        self.memory.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Brings the host up to date.
    ///
    /// # Safety
    ///
    /// `host` is writable for the buffer's `bytes`, and whoever reads them asks for this first.
    pub unsafe fn to_host(&self, host: *mut u8, bytes: usize) -> Result<(), CudaError> {
        if !self.host_behind.load(Ordering::Acquire) {
            return Ok(());
        }
        // The lock is held until the bytes are there: another reader waits for them.
        let memory = self.memory();
        if self.host_behind.load(Ordering::Acquire)
            && let Some(memory) = &*memory
        {
            // SAFETY: the caller's contract; while the flag is set nobody reads the bytes.
            memory.read(0, unsafe { std::slice::from_raw_parts_mut(host, bytes) })?;
            self.host_behind.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Brings the device up to date, and makes the copy at first; its address.
    pub fn to_device(&self, device: &Arc<CudaDevice>, host: &[u8]) -> Result<u64, CudaError> {
        let mut memory = self.memory();
        match &mut *memory {
            Some(memory) => {
                if self.device_behind.swap(false, Ordering::AcqRel) {
                    memory.write(0, host)?;
                }
                Ok(memory.pointer())
            }
            None => {
                self.device_behind.store(false, Ordering::Release);
                Ok(memory.insert(Memory::of(device, host)?).pointer())
            }
        }
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
