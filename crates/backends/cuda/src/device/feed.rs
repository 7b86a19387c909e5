//! What a run is fed from: memory of the host where inputs are put, the area of the device that they are copied to, and the
//! graph that reads them there.
//!
//! A binding has two of these where inputs are not large, and takes them in turn: while a run reads the inputs of one, the next
//! ones are copied into the other, on a stream that has nothing else to do. Events keep the order: a copy waits for the last run
//! that reads its area, a run for the copy of its inputs, and who writes the host's memory for the last copy from there.

use super::memory::Pinned;
use super::{CudaDevice, driver};
use crate::CudaError;
use cudarc::driver::{CudaEvent, CudaGraph, result};
use std::sync::Arc;

pub(super) struct Feed {
    device: Arc<CudaDevice>,
    /// The area of the device.
    pub inputs: u64,
    staging: Pinned,
    /// The last copy from `staging`.
    copied: CudaEvent,
    /// The last run that reads `inputs`.
    read: CudaEvent,
    pub graph: Option<CudaGraph>,
}

impl Feed {
    /// One with an area of so many bytes.
    pub fn new(device: &Arc<CudaDevice>, inputs: u64, bytes: usize) -> Result<Feed, CudaError> {
        let staging = Pinned::new(device, bytes)?;
        let event = || device.context.new_event(None).map_err(driver("creating an event"));
        let (copied, read) = (event()?, event()?);
        let feed = Feed { device: device.clone(), inputs, staging, copied, read, graph: None };
        // The first copy comes after what has made the area.
        feed.note_run()?;
        Ok(feed)
    }

    /// Where inputs are put.
    pub fn staging(&mut self) -> Result<&mut [u8], CudaError> {
        self.copied.synchronize().map_err(driver("waiting for the last inputs"))?;
        Ok(self.staging.bytes_mut())
    }

    /// Copies the inputs to the device: behind the last run that reads them there, and before any that is started from now on.
    pub fn copy(&self) -> Result<(), CudaError> {
        let (runs, copies) = (&self.device.stream, &self.device.copies);
        let order = driver("waiting for an event");
        copies.wait(&self.read).map_err(&order)?;
        // SAFETY: the area has as many bytes; whoever writes the staging memory waits for the event.
        unsafe { result::memcpy_htod_async(self.inputs, self.staging.bytes(), copies.cu_stream()) }
            .map_err(driver("copying inputs"))?;
        self.copied.record(copies).map_err(driver("recording an event"))?;
        runs.wait(&self.copied).map_err(&order)
    }

    /// Notes that what was started last reads the inputs.
    pub fn note_run(&self) -> Result<(), CudaError> {
        self.read.record(&self.device.stream).map_err(driver("recording an event"))
    }
}
