//! What kernels write of their buffers: all of each as a rule, or, where several write one, views that do not overlap.

use super::{BufferId, Kernel, LoopKernel, Schedule, View};

impl Kernel {
    /// The elements that it writes, as a view for each result or store.
    pub fn written(&self, schedule: &Schedule) -> Vec<View> {
        let whole = |b: BufferId| View::whole(b, &schedule.buffer(b).shape);
        match self {
            Kernel::Loops(parts) => parts.iter().flat_map(LoopKernel::written).collect(),
            Kernel::Matmul(m) => {
                let epilogue = m.epilogue.iter().flat_map(|e| e.written());
                [whole(m.out)].into_iter().chain(epilogue).collect()
            }
            Kernel::Library(l) => l.results.clone(),
            Kernel::Scan(_) => self.writes().into_iter().map(whole).collect(),
        }
    }
}

impl LoopKernel {
    /// The elements of each store.
    fn written(&self) -> Vec<View> {
        let written = |s: &super::Store| {
            // Along the other axes a store stays where it is. None steps back: see [`super::Store::access`].
            let steps = s.access.place.coefs.iter().map(|&c| usize::try_from(c).unwrap_or(0));
            let axes = self.extents.iter().copied().zip(steps).filter(|&(_, step)| step > 0);
            let none = self.rows() == 0;
            let (shape, strides) = if none { (vec![0], vec![1]) } else { axes.unzip() };
            let offset = usize::try_from(s.access.place.offset).unwrap_or(0);
            View { buffer: s.access.buffer, offset, shape, strides }
        };
        self.stores.iter().map(written).collect()
    }
}
