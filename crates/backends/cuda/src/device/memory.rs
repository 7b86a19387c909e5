//! Memory of the device, and pinned memory of the host.

use super::{CudaDevice, driver};
use crate::CudaError;
use cudarc::driver::{result, sys};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// An allocation of the device, at least a byte.
#[derive(Debug)]
pub struct Memory {
    device: Arc<CudaDevice>,
    pointer: sys::CUdeviceptr,
    bytes: usize,
}

impl Memory {
    /// `bytes` zeros, or the error that the device does not have them.
    pub fn new(device: &Arc<CudaDevice>, bytes: usize) -> Result<Memory, CudaError> {
        device.context.bind_to_thread().map_err(driver("binding the context"))?;
        let (free, _) = device.memory()?;
        let refused = CudaError::Memory { needed: bytes, free };
        if bytes > free {
            return Err(refused);
        }
        // SAFETY: the memory is cleared before anything reads it.
        let pointer = unsafe { result::malloc_sync(bytes.max(1)) }.map_err(|_| refused)?;
        let memory = Memory { device: device.clone(), pointer, bytes };
        // SAFETY: the allocation has that many bytes.
        unsafe { result::memset_d8_async(pointer, 0, bytes.max(1), device.stream.cu_stream()) }
            .map_err(driver("clearing memory"))?;
        Ok(memory)
    }

    /// An allocation that holds these bytes.
    pub fn of(device: &Arc<CudaDevice>, bytes: &[u8]) -> Result<Memory, CudaError> {
        let mut memory = Memory::new(device, bytes.len())?;
        memory.write(0, bytes)?;
        Ok(memory)
    }

    /// Its address.
    pub fn pointer(&self) -> u64 {
        self.pointer
    }

    /// Its size.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Overwrites the bytes from `offset` on, after all work of the device so far.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), CudaError> {
        assert!(offset + bytes.len() <= self.bytes, "the caller has checked the size");
        copy_in(&self.device, self.pointer + offset as u64, bytes)
    }

    /// Copies bytes from `offset` on, after all work of the device so far.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), CudaError> {
        assert!(offset + into.len() <= self.bytes, "the caller has checked the size");
        copy_out(&self.device, self.pointer + offset as u64, into)
    }
}

/// Copies to the device and waits.
pub(super) fn copy_in(device: &CudaDevice, to: u64, bytes: &[u8]) -> Result<(), CudaError> {
    device.context.bind_to_thread().map_err(driver("binding the context"))?;
    // SAFETY: the caller has checked that so many bytes are there; the source outlives the copy, which is waited for.
    unsafe { result::memcpy_htod_async(to, bytes, device.stream.cu_stream()) }
        .map_err(driver("copying to the device"))?;
    device.synchronize()
}

/// Copies from the device and waits.
pub(super) fn copy_out(device: &CudaDevice, from: u64, into: &mut [u8]) -> Result<(), CudaError> {
    device.context.bind_to_thread().map_err(driver("binding the context"))?;
    // SAFETY: the caller has checked that so many bytes are there; the destination outlives the copy, which is waited for.
    unsafe { result::memcpy_dtoh_async(into, from, device.stream.cu_stream()) }
        .map_err(driver("copying from the device"))?;
    device.synchronize()
}

impl Drop for Memory {
    fn drop(&mut self) {
        let bound = self.device.context.bind_to_thread();
        self.device.context.record_err(bound);
        // SAFETY: allocated by `new` and freed once; freeing waits for work that uses it.
        self.device.context.record_err(unsafe { result::free_sync(self.pointer) });
    }
}

/// Memory of the host that the device copies from and to by itself.
pub(super) struct Pinned {
    device: Arc<CudaDevice>,
    pointer: *mut u8,
    bytes: usize,
}

// SAFETY: the memory is owned, and its methods borrow it as a vector's would.
unsafe impl Send for Pinned {}

impl Pinned {
    pub fn new(device: &Arc<CudaDevice>, bytes: usize) -> Result<Pinned, CudaError> {
        device.context.bind_to_thread().map_err(driver("binding the context"))?;
        // SAFETY: the memory is cleared before anything reads it.
        let pointer = unsafe { result::malloc_host(bytes.max(1), 0) }.map_err(driver("pinning memory"))?;
        let pointer = pointer.cast::<u8>();
        // SAFETY: the allocation has that many bytes.
        unsafe { pointer.write_bytes(0, bytes.max(1)) };
        Ok(Pinned { device: device.clone(), pointer, bytes })
    }

    /// Where the device finds it: addresses are one for both sides.
    pub fn address(&self) -> u64 {
        self.pointer as u64
    }

    /// The number at its start, which the device may be writing, and 0 in its place.
    pub fn take(&self) -> i32 {
        assert!(self.bytes >= size_of::<i32>(), "the owner has asked for as much");
        // SAFETY: a page has the alignment of every number, and both sides write the number as a whole.
        unsafe { AtomicI32::from_ptr(self.pointer.cast()) }.swap(0, Ordering::Acquire)
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: initialised by `new`, and alive as long as `self`; what the device writes is read after it has.
        unsafe { std::slice::from_raw_parts(self.pointer, self.bytes) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`; whoever writes has waited for the device's last copy from there.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let bound = self.device.context.bind_to_thread();
        self.device.context.record_err(bound);
        // SAFETY: allocated by `new` and freed once, after the owner has waited for the device.
        self.device.context.record_err(unsafe { result::free_host(self.pointer.cast()) });
    }
}
