//! Choices of algorithms for products by measuring: every candidate of the library runs on the device on random numbers, and
//! the fastest one is recorded.
//!
//! Only on request, since another algorithm may give other bits. A candidate adds in an order that is fixed, as those of the
//! heuristic do; one that gives two results for the same factors is dropped all the same.

use super::blas::{Blas, Prepared};
use super::{CudaDevice, Memory, driver};
use crate::CudaError;
use crate::areas::WORKSPACE;
use crate::code::Product;
use cudarc::driver::result;
use cudarc::driver::sys::CUevent_flags;
use onestep_ir::DType;
use std::sync::Arc;

/// Candidates to ask for.
const CANDIDATES: usize = 48;
/// Those that are measured a second time.
const FINALISTS: usize = 4;
/// Milliseconds of a measurement, about.
const MEASURED: f32 = 1.0;
/// Another choice than the library's is at least this much faster.
const GAIN: f32 = 0.99;
/// Bytes at either end of a result that are compared between two runs.
const COMPARED: usize = 1 << 20;

/// What measuring a product found.
#[derive(Clone, PartialEq, Debug)]
pub struct Tuned {
    /// The product.
    pub product: Product,
    /// Candidates that ran.
    pub candidates: usize,
    /// Milliseconds by the library's own choice.
    pub before: f32,
    /// Milliseconds by the recorded one.
    pub after: f32,
}

impl CudaDevice {
    /// Measures products, distinct ones once each, and records what is fastest: programs that are compiled from now on use it.
    /// Products that the vendor's library does not take are left out.
    pub fn tune<'a>(
        self: &Arc<CudaDevice>,
        products: impl IntoIterator<Item = &'a Product>,
    ) -> Result<Vec<Tuned>, CudaError> {
        let Some(blas) = &self.blas else { return Ok(vec![]) };
        self.context.bind_to_thread().map_err(driver("binding the context"))?;
        let (mut found, mut choices): (Vec<Tuned>, _) = (vec![], vec![]);
        for product in products {
            if found.iter().any(|t| Blas::shape(&t.product) == Blas::shape(product)) {
                continue;
            }
            let candidates = blas.candidates(product, CANDIDATES);
            if candidates.is_empty() {
                continue;
            }
            let bench = Bench::new(self, blas, product)?;
            let (best, tuned) = bench.best(candidates)?;
            choices.push((product.clone(), best));
            found.push(tuned);
        }
        blas.record(&choices);
        Ok(found)
    }
}

/// A product in memory of its own.
struct Bench<'a> {
    device: &'a Arc<CudaDevice>,
    blas: &'a Blas,
    product: &'a Product,
    /// Left and right factor, result, workspace.
    areas: [Memory; 4],
}

impl<'a> Bench<'a> {
    fn new(
        device: &'a Arc<CudaDevice>,
        blas: &'a Blas,
        product: &'a Product,
    ) -> Result<Bench<'a>, CudaError> {
        let [batch, rows, columns, depth] = product.sizes;
        let far = |sizes: [usize; 3], strides: [usize; 3]| {
            1 + sizes.iter().zip(strides).map(|(n, s)| (n - 1) * s).sum::<usize>()
        };
        let factor = |dtype, elements: usize, seed: u64| random(device, dtype, elements, seed);
        let areas = [
            factor(product.dtype, far([batch, rows, depth], product.lhs.1), 1)?,
            factor(product.right_dtype, far([batch, depth, columns], product.rhs.1), 2)?,
            Memory::new(device, batch * rows * columns * product.result.size())?,
            Memory::new(device, WORKSPACE)?,
        ];
        Ok(Bench { device, blas, product, areas })
    }

    fn run(&self, p: &Prepared) -> Result<(), CudaError> {
        let [lhs, rhs, out, workspace] = self.areas.each_ref().map(Memory::pointer);
        // SAFETY: the areas have the product's sizes, and nothing else uses them.
        unsafe { self.blas.launch(p, [lhs, rhs, out], workspace, self.device.stream.cu_stream()) }
    }

    /// Milliseconds of a run, the mean of so many.
    fn time(&self, p: &Prepared, runs: usize) -> Result<f32, CudaError> {
        let event = || {
            let recorded = self.device.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
            recorded.map_err(driver("recording an event"))
        };
        let start = event()?;
        (0..runs).try_for_each(|_| self.run(p))?;
        let all = start.elapsed_ms(&event()?).map_err(driver("reading an event"))?;
        Ok(all / runs as f32)
    }

    /// The fastest candidate; the library's own choice is the first.
    fn best(&self, candidates: Vec<Arc<Prepared>>) -> Result<(Arc<Prepared>, Tuned), CudaError> {
        let mut timed: Vec<(f32, usize)> = vec![];
        for (n, p) in candidates.iter().enumerate() {
            // What a candidate of the library refuses is not run again.
            if self.run(p).is_ok() {
                timed.push((self.time(p, 2)?, n));
            }
        }
        let runs = |ms: f32| (MEASURED / ms.max(1e-3)).ceil().clamp(2.0, 50.0) as usize;
        for (ms, n) in &mut timed {
            *ms = self.time(&candidates[*n], runs(*ms))?;
        }
        let ran = timed.len();
        let own = timed.iter().position(|(_, n)| *n == 0);
        timed.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut finalists: Vec<usize> = timed.iter().take(FINALISTS).map(|(_, n)| *n).collect();
        if own.is_some() && !finalists.contains(&0) {
            finalists.push(0);
        }
        let mut least = vec![f32::INFINITY; finalists.len()];
        for _ in 0..3 {
            for (ms, n) in least.iter_mut().zip(&finalists) {
                let p = &candidates[*n];
                *ms = ms.min(self.time(p, runs(timed[0].0))?);
            }
        }
        let before = finalists.iter().position(|n| *n == 0).map_or(f32::INFINITY, |at| least[at]);
        let mut best = (before, 0);
        for (ms, n) in least.iter().zip(&finalists) {
            if *ms < best.0.min(before * GAIN) && self.repeats(&candidates[*n])? {
                best = (*ms, *n);
            }
        }
        let tuned = Tuned { product: self.product.clone(), candidates: ran, before, after: best.0 };
        Ok((candidates[best.1].clone(), tuned))
    }

    /// Whether two runs give the same bits.
    fn repeats(&self, p: &Prepared) -> Result<bool, CudaError> {
        let out = &self.areas[2];
        let ends = || {
            self.run(p)?;
            let length = out.len().min(COMPARED);
            let mut bytes = vec![0; 2 * length];
            let (first, last) = bytes.split_at_mut(length);
            out.read(0, first)?;
            out.read(out.len() - length, last)?;
            Ok::<_, CudaError>(bytes)
        };
        Ok(ends()? == ends()?)
    }
}

/// Numbers of magnitude ½ to 1 and either sign.
fn random(device: &Arc<CudaDevice>, dtype: DType, elements: usize, seed: u64) -> Result<Memory, CudaError> {
    let mut memory = Memory::new(device, elements * dtype.size())?;
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    let mut pattern: Vec<u8> = vec![];
    for _ in 0..elements.min(1 << 20) {
        let bits = next();
        match dtype {
            DType::F16 => pattern.extend((0x3800 | (bits as u16 & 0x83ff)).to_le_bytes()),
            DType::BF16 => pattern.extend((0x3f00 | (bits as u16 & 0x807f)).to_le_bytes()),
            DType::F8E4M3 => pattern.push(0x30 | (bits as u8 & 0x87)),
            DType::F8E5M2 => pattern.push(0x38 | (bits as u8 & 0x83)),
            _ => pattern.extend((0x3f00_0000 | (bits & 0x807f_ffff)).to_le_bytes()),
        }
    }
    memory.write(0, &pattern)?;
    let (mut done, total) = (pattern.len(), memory.len());
    while done < total {
        let bytes = done.min(total - done);
        let (from, to) = (memory.pointer(), memory.pointer() + done as u64);
        // SAFETY: both are in the allocation, and apart.
        unsafe { result::memcpy_dtod_async(to, from, bytes, device.stream.cu_stream()) }
            .map_err(driver("copying within the device"))?;
        done += bytes;
    }
    Ok(memory)
}
