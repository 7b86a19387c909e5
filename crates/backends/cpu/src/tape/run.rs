//! The executor: walks the domain and carries out a program's sections.
//!
//! Row mode visits rows, and in each pass the blocks of a row; column mode visits blocks of rows, and in each pass all
//! terms. Both follow the order of [`super::reduce`]. Everything here works on scratch that the caller provides.

use super::Mode;
use super::domain::{Domain, Index, MOST_AXES};
use super::reduce::{LANES, SEGMENT};
use super::step::{Accumulator, Place, Program, Step, Sum, Value};
use super::walk;
use std::ops::Range;

/// Which part of each row's terms a run covers, and what becomes of the reductions.
#[derive(Clone)]
pub enum Part {
    /// All of it.
    Whole,
    /// Segments whose partial results go to the shared memory.
    Segments(Range<usize>),
    /// Only what follows: the partial results are combined.
    Rest,
}

/// One run of a program on one thread.
pub struct Run<'a> {
    pub program: &'a Program,
    pub domain: &'a Domain,
    pub buffers: &'a [*mut u8],
    /// Aligned to 64 bytes.
    pub scratch: *mut u8,
    /// Aligned to 64 bytes; only used by split reductions.
    pub shared: *mut u8,
    /// The pointer table.
    pub table: *mut *mut u8,
    pub index: Index,
    /// First element of the block, on the flattened vectorised axes.
    v: usize,
    /// Elements of the block.
    n: usize,
    /// The term, in column mode.
    term: usize,
}

impl<'a> Run<'a> {
    /// A run.
    ///
    /// # Safety
    ///
    /// `buffers`, `scratch` and `shared` are as [`super::LoopTape::run_chunk`] demands, the latter two aligned to 64
    /// bytes, until the run is dropped.
    pub unsafe fn new(
        program: &'a Program,
        domain: &'a Domain,
        buffers: &'a [*mut u8],
        scratch: *mut u8,
        shared: *mut u8,
    ) -> Run<'a> {
        // SAFETY: scratch has the table, behind everything else.
        let table: *mut *mut u8 = unsafe { scratch.add(program.table) }.cast();
        for &(value, offset) in &program.fixed {
            // SAFETY: scratch has the table and what `fixed` names.
            unsafe { *table.add(value as usize) = scratch.add(offset) };
        }
        for &(value, literal) in &program.constant {
            // SAFETY: as above; literals are only read through the table.
            unsafe { *table.add(value as usize) = (&raw const program.literals[literal]).cast_mut().cast() };
        }
        let index = [0; MOST_AXES];
        Run { program, domain, buffers, scratch, shared, table, index, v: 0, n: 1, term: 0 }
    }

    #[inline(always)]
    fn at(&self, value: Value) -> *mut u8 {
        // SAFETY: the table has an entry for each value, and it was set by `new` or by an earlier step.
        unsafe { *self.table.add(value as usize) }
    }

    #[inline(always)]
    fn point(&self, value: Value, to: *mut u8) {
        // SAFETY: the table has an entry for each value.
        unsafe { *self.table.add(value as usize) = to };
    }

    /// Runs points `points` of the flattened parallel axes.
    ///
    /// # Safety
    ///
    /// As [`Run::new`]; nobody else accesses what these points write, or writes what they read.
    pub unsafe fn points(&mut self, points: Range<usize>, part: Part) {
        if points.is_empty() {
            return;
        }
        // SAFETY: throughout: the caller's promise is handed down.
        unsafe {
            self.steps(&self.program.chunk);
            match self.domain.mode {
                Mode::Row => self.row_mode(points, part),
                Mode::Column => self.column_mode(points, part),
            }
        }
    }

    unsafe fn row_mode(&mut self, points: Range<usize>, part: Part) {
        let parallel = 0..self.domain.parallel;
        self.domain.unflatten(&mut self.index, parallel.clone(), points.start);
        for point in points {
            // SAFETY: the caller's promise is handed down.
            unsafe { self.row(point, &part) };
            self.domain.advance(&mut self.index, parallel.clone());
        }
    }

    unsafe fn column_mode(&mut self, points: Range<usize>, part: Part) {
        let (start, group) =
            (self.domain.vector.start, self.domain.vector_extents().iter().product::<usize>());
        let mut point = points.start;
        let mut outer = usize::MAX;
        while point < points.end {
            self.v = point % group;
            if point / group != outer {
                outer = point / group;
                self.domain.unflatten(&mut self.index, 0..start, outer);
                // SAFETY: the caller's promise is handed down.
                unsafe { self.steps(&self.program.outer) };
            }
            self.n = self.program.block.min(group - self.v).min(points.end - point);
            // SAFETY: as above.
            unsafe { self.row(point, &part) };
            point += self.n;
        }
    }

    /// One row, or one block of rows from `point`.
    unsafe fn row(&mut self, point: usize, part: &Part) {
        let passes = self.program.terms.len();
        for pass in 0..passes {
            // SAFETY: the caller's promise is handed down.
            unsafe {
                self.steps(&self.program.rows[pass]);
                let accumulators = self.program.pass_accumulators[pass].clone();
                if self.program.terms[pass].is_empty() && accumulators.is_empty() {
                    continue;
                }
                let segments = self.domain.terms().div_ceil(SEGMENT).max(1);
                match part {
                    Part::Whole => self.pass(pass, accumulators, 0..segments, point, None),
                    Part::Segments(s) => {
                        self.pass(pass, accumulators, s.clone(), point, Some(self.domain.points()));
                        return;
                    }
                    Part::Rest => self.combine(accumulators, segments, point),
                }
            }
        }
        // SAFETY: as above.
        unsafe { self.steps(&self.program.last) };
    }

    /// One pass over segments of the terms. With `partials` (the number of points), each segment's result goes to the
    /// shared memory, else into the total.
    unsafe fn pass(
        &mut self,
        pass: usize,
        accumulators: Range<usize>,
        segments: Range<usize>,
        point: usize,
        partials: Option<usize>,
    ) {
        let program = self.program;
        let terms = self.domain.terms();
        let accumulators = &program.accumulators[accumulators];
        let reduced = self.domain.parallel..self.domain.extents.len();
        if self.domain.mode == Mode::Column && terms > 0 {
            self.domain.unflatten(&mut self.index, reduced.clone(), segments.start * SEGMENT);
        }
        for segment in segments.clone() {
            let range = segment * SEGMENT..terms.min((segment + 1) * SEGMENT);
            // SAFETY: the caller's promise is handed down; accumulators have their places in scratch.
            unsafe {
                match self.domain.mode {
                    Mode::Row => {
                        (self.v, self.n) = (range.start, range.len());
                        self.steps(&program.terms[pass]);
                    }
                    Mode::Column => {
                        for a in accumulators {
                            self.clear(a, range.len());
                        }
                        match program.sums[pass] {
                            Some(ref sum) => self.sum(sum, &range),
                            None => {
                                for term in range.clone() {
                                    self.term = term;
                                    self.steps(&program.terms[pass]);
                                    self.domain.advance(&mut self.index, reduced.clone());
                                }
                            }
                        }
                    }
                }
                for a in accumulators {
                    let result = self.segment_result(a, range.len());
                    let n = self.width(a);
                    match partials {
                        Some(points) => {
                            let to = self.shared.add(a.partials + (segment * points + point) * a.size);
                            std::ptr::copy_nonoverlapping(result, to, n * a.size);
                        }
                        None => self.add_segment(a, segment == segments.start, result, n),
                    }
                }
            }
        }
    }

    /// A segment of a pass that only adds up a load, in column mode.
    unsafe fn sum(&mut self, sum: &Sum, terms: &Range<usize>) {
        let a = &self.program.accumulators[sum.accumulator as usize];
        self.index[sum.axis] = 0;
        let from = self.address(&sum.place);
        let n = self.width(a);
        for term in terms.clone() {
            let x = from.wrapping_offset(sum.stride * term as isize);
            // SAFETY: the elements exist by the kernel's own promise; the lanes are in scratch.
            unsafe { (a.reducer.fold)(self.lane(a, term % LANES), x, x, x, n) };
        }
    }

    /// Combines the partial results of all segments.
    unsafe fn combine(&mut self, accumulators: Range<usize>, segments: usize, point: usize) {
        let points = self.domain.points();
        for a in &self.program.accumulators[accumulators] {
            for segment in 0..segments {
                // SAFETY: the first phase has written a result for each segment and point.
                unsafe {
                    let from = self.shared.add(a.partials + (segment * points + point) * a.size);
                    self.add_segment(a, segment == 0, from, self.width(a));
                }
            }
        }
    }

    /// Adds a segment's result to the total.
    unsafe fn add_segment(&self, a: &Accumulator, first: bool, from: *const u8, n: usize) {
        // SAFETY: the total has room for a block, the result has `n` elements.
        unsafe {
            let total = self.scratch.add(a.total);
            match first {
                true if n == 1 => super::instr::copy::repeat(a.size, total, from, 1),
                true => std::ptr::copy_nonoverlapping(from, total, n * a.size),
                false => (a.reducer.fold)(total, from, from, from, n),
            }
        }
    }

    /// Rows that an accumulator has in this block.
    fn width(&self, a: &Accumulator) -> usize {
        match self.domain.mode {
            Mode::Row => 1,
            Mode::Column if a.scalar => 1,
            Mode::Column => self.n,
        }
    }

    /// Where lane `lane` lies, in column mode.
    fn lane(&self, a: &Accumulator, lane: usize) -> *mut u8 {
        // SAFETY: an accumulator has LANES lanes.
        unsafe { self.scratch.add(a.lanes + lane * self.program.block * a.size) }
    }

    /// The identity in the lanes that a segment of `terms` will use.
    unsafe fn clear(&self, a: &Accumulator, terms: usize) {
        for lane in 0..terms.clamp(1, LANES) {
            let d = self.lane(a, lane);
            // SAFETY: the lanes are there.
            unsafe { (a.reducer.clear)(d, d, d, d, self.width(a)) };
        }
    }

    /// The result of a segment: in column mode, of its lanes, combined by halves; those that got no term are the
    /// identity and are left out. In row mode it has been computed as one instruction.
    unsafe fn segment_result(&self, a: &Accumulator, terms: usize) -> *const u8 {
        let first = self.lane(a, 0);
        if self.domain.mode == Mode::Row {
            return first;
        }
        let n = self.width(a);
        let (mut used, mut h) = (terms.clamp(1, LANES), LANES / 2);
        while h > 0 {
            for k in 0..used.saturating_sub(h) {
                let upper = self.lane(a, k + h);
                // SAFETY: the lanes are there, each apart from the others.
                unsafe { (a.reducer.fold)(self.lane(a, k), upper, upper, upper, n) };
            }
            used = used.min(h);
            h /= 2;
        }
        first
    }

    /// The address of a block's first element in its buffer.
    #[inline(always)]
    fn address(&self, place: &Place) -> *mut u8 {
        self.buffers[place.buffer as usize].wrapping_offset(place.at(&self.index, self.v))
    }

    /// Carries out a section for the current block.
    unsafe fn steps(&self, steps: &[Step]) {
        let (program, n) = (self.program, self.n);
        let count = |scalar: bool| if scalar { 1 } else { n };
        for step in steps {
            // SAFETY: values point at storage for the block, apart from each other (`registers`), or at elements of
            // buffers that exist by the kernel's own promise; each instruction gets what its element type demands.
            unsafe {
                match step {
                    Step::Apply { f, value, args, scalar } => {
                        let [a, b, c] = args.map(|arg| self.at(arg));
                        f(self.at(*value), a, b, c, count(*scalar));
                    }
                    Step::Point { value, place, .. } => {
                        self.point(*value, self.address(place));
                    }
                    Step::ApplyOut { f, value, args, place, size, spare, .. } => {
                        let to = self.address(place);
                        let [a, b, c] = args.map(|arg| self.at(arg));
                        // Generous: 8 bytes an element.
                        let near = |p: *mut u8| p.addr().abs_diff(to.addr()) < n * 8;
                        if near(a) || near(b) || near(c) {
                            let spare = self.scratch.add(*spare);
                            f(spare, a, b, c, n);
                            std::ptr::copy_nonoverlapping(spare, to, n * size);
                        } else {
                            f(to, a, b, c, n);
                        }
                        self.point(*value, to);
                    }
                    Step::Recur { value, area, period, size } => {
                        self.point(*value, self.scratch.add(area + self.v % period * size));
                    }
                    Step::Pattern { load, area, period, length } => {
                        let load = &program.loads[*load as usize];
                        let (from, to) = (self.buffers[load.buffer.index()], self.scratch.add(*area));
                        load.gather(self.domain, &self.index, 0, *period, from, to);
                        let mut done = *period;
                        while done < *length {
                            let more = done.min(length - done);
                            std::ptr::copy_nonoverlapping(to, to.add(done * load.size), more * load.size);
                            done += more;
                        }
                    }
                    Step::Reduce { accumulator, value } => {
                        let a = &program.accumulators[*accumulator as usize];
                        let x = self.at(*value);
                        match self.domain.mode {
                            Mode::Row => (a.reducer.segment)(self.lane(a, 0), x, x, x, n),
                            Mode::Column => {
                                (a.reducer.fold)(self.lane(a, self.term % LANES), x, x, x, self.width(a));
                            }
                        }
                    }
                    Step::Store { value, target, scalar } => {
                        let target = &program.targets[*target as usize];
                        let to = self.buffers[target.buffer.index()];
                        let (v, n) = if *scalar && self.domain.mode == Mode::Row {
                            (0, 1)
                        } else {
                            (self.v, count(*scalar))
                        };
                        target.scatter(self.domain, &self.index, v, n, to, self.at(*value));
                    }
                    Step::Keep { value, area, size } => {
                        let place = match self.domain.mode {
                            Mode::Row => self.v,
                            Mode::Column => self.term * program.block,
                        };
                        self.point(*value, self.scratch.add(area + place * size));
                    }
                    Step::Gather { value, load, scalar } => {
                        let load = &program.loads[*load as usize];
                        let (v, n) = if *scalar { (0, 1) } else { (self.v, n) };
                        let from = self.buffers[load.buffer.index()];
                        load.gather(self.domain, &self.index, v, n, from, self.at(*value));
                    }
                    Step::Index { value, line, scalar } => {
                        let line = &program.lines[*line as usize];
                        let (v, n) = if *scalar { (0, 1) } else { (self.v, n) };
                        walk::indices(line, self.domain, &self.index, v, n, self.at(*value).cast());
                    }
                    Step::Copy { value, from, size, repeat, scalar } => {
                        let stride = i64::from(!*repeat);
                        super::instr::copy::gather(
                            *size,
                            self.at(*value),
                            self.at(*from),
                            stride,
                            count(*scalar),
                        );
                    }
                    Step::Random { f, value, key, counter, index, stream, scalar } => {
                        let word = |v: Value| *self.at(v).cast::<u32>();
                        let (d, index) = (self.at(*value).cast(), self.at(*index).cast_const().cast());
                        let key = [word(key[0]), word(key[1])];
                        f(d, index, key, word(*counter), *stream, count(*scalar));
                    }
                    Step::RandomEach { f, value, key, counter, index, stream } => {
                        let word = |v: Value, i: usize| *self.at(v).cast::<u32>().add(i);
                        for i in 0..n {
                            let (d, index) = (self.at(*value).cast::<u32>(), self.at(*index).cast::<i64>());
                            let key = [word(key[0], i), word(key[1], i)];
                            f(d.add(i), index.add(i), key, word(*counter, i), *stream, 1);
                        }
                    }
                }
            }
        }
    }
}
