//! A number of the program after each run, for the host to look at later: so that no run is waited for.
//!
//! Behind each run the number is copied to a place of its own in pinned memory, followed by an event.

use super::memory::Pinned;
use super::{CudaDevice, driver};
use crate::CudaError;
use cudarc::driver::{CudaEvent, result};
use std::sync::Arc;

/// How many runs the host may be ahead of what it has looked at; then it waits for the first of them.
const AHEAD: usize = 64;

/// Bytes of the number.
const SIZE: usize = size_of::<i32>();

pub(super) struct Watch {
    device: Arc<CudaDevice>,
    /// Where the number is on the device.
    from: u64,
    places: Pinned,
    events: Vec<CudaEvent>,
    /// Runs so far, and how many of them were looked at.
    noted: usize,
    seen: usize,
    /// The first number that is not 0, of those looked at to make room.
    found: Option<i32>,
}

impl Watch {
    pub fn new(device: &Arc<CudaDevice>, from: u64) -> Result<Watch, CudaError> {
        let places = Pinned::new(device, AHEAD * SIZE)?;
        let event = |_| device.context.new_event(None).map_err(driver("creating an event"));
        let events = (0..AHEAD).map(event).collect::<Result<_, _>>()?;
        Ok(Watch { device: device.clone(), from, places, events, noted: 0, seen: 0, found: None })
    }

    /// Copies the number, behind the run that was started last.
    pub fn note(&mut self) -> Result<(), CudaError> {
        if self.noted - self.seen == AHEAD {
            let number = self.next(true)?;
            self.found = self.found.or(number.filter(|n| *n != 0));
        }
        let (stream, slot) = (&self.device.stream, self.noted % AHEAD);
        let place = &mut self.places.bytes_mut()[slot * SIZE..][..SIZE];
        // SAFETY: the number is of that size on both sides; the place is read after the event alone.
        unsafe { result::memcpy_dtoh_async(place, self.from, stream.cu_stream()) }
            .map_err(driver("copying from the device"))?;
        self.events[slot].record(stream).map_err(driver("recording an event"))?;
        self.noted += 1;
        Ok(())
    }

    /// The number after the first run, of those not looked at yet, that left another than 0. Without `wait`, of the runs that
    /// are over.
    pub fn look(&mut self, wait: bool) -> Result<Option<i32>, CudaError> {
        if let Some(found) = self.found.take() {
            return Ok(Some(found));
        }
        while let Some(number) = self.next(wait)? {
            if number != 0 {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// The number after the next run, if there is one that is over or waited for.
    fn next(&mut self, wait: bool) -> Result<Option<i32>, CudaError> {
        let slot = self.seen % AHEAD;
        let (event, all) = (&self.events[slot], self.seen == self.noted);
        if all || !(wait || event.is_complete()) {
            return Ok(None);
        }
        event.synchronize().map_err(driver("waiting for a run"))?;
        self.seen += 1;
        let bytes = &self.places.bytes()[slot * SIZE..][..SIZE];
        Ok(bytes.try_into().ok().map(i32::from_le_bytes))
    }
}
