//! Builds scans: the region is what a closure computes from its carries and slices. What it uses from outside becomes a
//! constant of the scan, and in a [`GraphBuilder::repeat`] each parameter that it declares becomes a sequence of them.

use super::regions::Stack;
use crate::ops::{RandomBits, Scan};
use crate::{DType, Def, Dim, GraphBuilder, Mistake, NodeId, Op, Tensor, Type, ValueId};

/// Options of [`GraphBuilder::scan`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScanOptions {
    /// The number of iterations; without one, the length of the first sequence.
    pub length: Option<Dim>,
    /// Whether the iterations go from the last slice to the first.
    pub reverse: bool,
}

impl ScanOptions {
    /// So many iterations.
    pub fn times(length: impl Into<Dim>) -> ScanOptions {
        ScanOptions { length: Some(length.into()), reverse: false }
    }

    /// From the last slice to the first.
    pub fn reversed() -> ScanOptions {
        ScanOptions { length: None, reverse: true }
    }
}

/// What a scan gives.
#[derive(Clone, Debug)]
pub struct Scanned<'g> {
    /// The carries' last values.
    pub carries: Vec<Tensor<'g>>,
    /// Each output of all iterations, `[length, ..]`.
    pub outputs: Vec<Tensor<'g>>,
}

impl GraphBuilder {
    /// Runs `body` over the slices of `sequences` along their first axis: from the carries and one slice of each sequence,
    /// it gives the carries' next values, of the same types, and the outputs of the iteration.
    ///
    /// `body` is called once, whatever the length. It may use any tensor from outside, and sees it whole. Random numbers
    /// that it draws are the same in each iteration, unless their counter is a carry or a slice.
    ///
    /// ```
    /// use onestep_ir::{DType, GraphBuilder, ScanOptions};
    ///
    /// let g = GraphBuilder::new("running mean");
    /// let x = g.input("x", DType::F32, [100, 8]);
    /// let decay = g.input("decay", DType::F32, [8]);
    /// let first = g.full(DType::F32, [8], 0.0);
    /// let means = g.scan(&[first], &[x], ScanOptions::default(), |carry, slice| {
    ///     let mean = carry[0] * decay + slice[0] * (1.0 - decay);
    ///     (vec![mean], vec![mean])
    /// });
    /// assert_eq!(means.carries[0].ty().unwrap().to_string(), "f32[8]");
    /// assert_eq!(means.outputs[0].ty().unwrap().to_string(), "f32[100, 8]");
    /// # g.build().unwrap();
    /// ```
    #[track_caller]
    pub fn scan<'g>(
        &'g self,
        carries: &[Tensor<'g>],
        sequences: &[Tensor<'g>],
        options: ScanOptions,
        body: impl FnOnce(&[Tensor<'g>], &[Tensor<'g>]) -> (Vec<Tensor<'g>>, Vec<Tensor<'g>>),
    ) -> Scanned<'g> {
        self.scan_with(carries, sequences, options, false, body)
    }

    /// `body`, `times` times over, each time with parameters of its own: a stack of equal layers that is compiled once.
    ///
    /// A parameter that `body` declares as `[..]` is one state of shape `[times, ..]`, whose slice `i` is that of the
    /// `i`-th time; its first values are drawn as `body` says. State of other roles, and what `body` uses from outside, is
    /// one for all times. Random numbers are others each time. `body` takes and gives a tensor of the type of `x`; it is
    /// also given the number of the time, an `i32` scalar.
    #[track_caller]
    pub fn repeat<'g>(
        &'g self,
        times: usize,
        x: Tensor<'g>,
        body: impl FnOnce(Tensor<'g>, Tensor<'g>) -> Tensor<'g>,
    ) -> Tensor<'g> {
        let number = self.iota(DType::I32, [times], 0);
        let options = ScanOptions::times(times);
        let stack = |carry: &[Tensor<'g>], slice: &[Tensor<'g>]| (vec![body(carry[0], slice[0])], vec![]);
        self.scan_with(&[x], &[number], options, true, stack).carries[0]
    }

    #[track_caller]
    fn scan_with<'g>(
        &'g self,
        carries: &[Tensor<'g>],
        sequences: &[Tensor<'g>],
        options: ScanOptions,
        stacks: bool,
        body: impl FnOnce(&[Tensor<'g>], &[Tensor<'g>]) -> (Vec<Tensor<'g>>, Vec<Tensor<'g>>),
    ) -> Scanned<'g> {
        let poison = |n: usize| vec![self.poison(); n];
        let given = [carries, sequences].concat();
        let Some((mut scan, params)) = self.plain_scan(carries.len(), &given, options) else {
            // The body says how many outputs there would be.
            let (_, outputs) = body(&poison(carries.len()), &poison(sequences.len()));
            return Scanned { carries: poison(carries.len()), outputs: poison(outputs.len()) };
        };
        let handles = self.open_region(&params);
        if stacks && let (Some(length), Some(number)) = (scan.length.size(), handles[1].value) {
            self.stack_parameters(length, number);
        }
        let (next, outputs) = body(&handles[..carries.len()], &handles[carries.len()..]);
        let failed = || Scanned { carries: poison(carries.len()), outputs: poison(outputs.len()) };
        if next.len() != carries.len() {
            let _ = self.pop_region("scan", &[]);
            let what = format!("has {} carries, but its body gives {}", carries.len(), next.len());
            self.mistake("scan", &given, Mistake::new(what, "give the next value of each carry"));
            return failed();
        }
        let Some(captured) = self.capture_region("scan", &[next, outputs.clone()].concat()) else {
            return failed();
        };
        scan.sequences += captured.stacked.len();
        let handles = |values: Vec<ValueId>| values.into_iter().map(|v| self.tensor(v));
        let operands: Vec<Tensor<'g>> = given
            .iter()
            .copied()
            .chain(handles(captured.stacked))
            .chain(handles(captured.constants))
            .collect();
        let mut results = self.emit_regions(Op::Scan(scan), &operands, vec![captured.region]);
        if results.len() != carries.len() + outputs.len() {
            return failed();
        }
        let outputs = results.split_off(carries.len());
        Scanned { carries: results, outputs }
    }

    /// A scan of these operands without constants, and its region's parameters; `None` where an operand is poisoned, or
    /// with a mistake on record.
    #[track_caller]
    fn plain_scan(
        &self,
        carries: usize,
        operands: &[Tensor<'_>],
        options: ScanOptions,
    ) -> Option<(Scan, Vec<Type>)> {
        let types: Vec<Type> = operands.iter().map(|t| t.ty()).collect::<Option<_>>()?;
        let first = types.get(carries).and_then(|ty| ty.shape.0.first());
        let Some(length) = options.length.as_ref().or(first).cloned() else {
            let what = "has neither a length nor a sequence of rank 1 or more";
            self.mistake("scan", operands, Mistake::new(what, "give ScanOptions::times(n)"));
            return None;
        };
        let sequences = operands.len() - carries;
        let scan = Scan { carries, sequences, length, reverse: options.reverse };
        match scan.params(&types) {
            Ok(params) => Some((scan, params)),
            Err(mistake) => {
                self.mistake("scan", operands, mistake);
                None
            }
        }
    }

    /// Parameters declared in the innermost open region, which sees the number of the iteration, are sequences of `length`
    /// from now on.
    fn stack_parameters(&self, length: usize, number: ValueId) {
        if let Some(open) = self.inner.borrow_mut().regions.last_mut() {
            open.stack = Some(Stack { length, number, slices: vec![] });
        }
    }

    /// The key of random numbers that stands for `key` here: within repetitions, the bits that `key` gives at the number
    /// of the iteration, so that no two iterations draw the same numbers.
    pub(crate) fn iteration_key<'g>(&'g self, key: Tensor<'g>) -> Tensor<'g> {
        let numbers: Vec<ValueId> = {
            let inner = self.inner.borrow();
            let known =
                inner.regions.last().and_then(|open| open.keys.iter().find(|k| Some(k.0) == key.value));
            if let Some(&(_, here)) = known {
                return self.tensor(here);
            }
            inner.regions.iter().filter_map(|open| Some(open.stack.as_ref()?.number)).collect()
        };
        // No path has quotes in it.
        let stream = crate::random::stream_id("\"repeat\"");
        let draw = |key: Tensor<'g>, number: ValueId| {
            let counter = self.tensor(number).cast(DType::U32);
            self.emit1(RandomBits { dims: vec![2.into()], stream }, &[key, counter])
        };
        let here = numbers.into_iter().fold(key, draw);
        let mut inner = self.inner.borrow_mut();
        if let (Some(open), Some(key), Some(here)) = (inner.regions.last_mut(), key.value, here.value) {
            open.keys.push((key, here));
        }
        here
    }

    /// Each carry of a scan as every iteration finds it, `[length, ..]`, in the order of the carries: what its derivative
    /// needs. They become outputs of the scan, which otherwise stays as it is. Empty when the node is no scan.
    pub fn scan_carries(&self, node: NodeId) -> Vec<Tensor<'_>> {
        let values: Vec<ValueId> = {
            let graph = &mut self.inner.borrow_mut().graph;
            let Some(Op::Scan(scan)) = graph.nodes.get(node.index()).map(|n| n.op.clone()) else {
                return vec![];
            };
            let params = graph.node(node).regions[0].params.clone();
            let stacked = |graph: &mut crate::Graph, carry: ValueId| {
                let results = &graph.node(node).regions[0].results;
                if let Some(at) = (scan.carries..results.len()).find(|&i| results[i] == carry) {
                    return graph.node(node).results[at];
                }
                let at = results.len() as u32;
                let value = graph.add_value(scan.stacked(graph.ty(carry)), Def::Node(node, at));
                graph.nodes[node.index()].regions[0].results.push(carry);
                graph.nodes[node.index()].results.push(value);
                value
            };
            params[..scan.carries].iter().map(|&carry| stacked(graph, carry)).collect()
        };
        values.into_iter().map(|v| self.tensor(v)).collect()
    }
}
