//! What fusion knows of a graph before it groups anything: the kind of each node, who uses each value, which values must
//! have a buffer, and which views need no copy.

use super::index::reshape_strides;
use super::join::Places;
use crate::{CompileError, Target};
use onestep_ir::{Graph, Node, Op, Type, ValueId, row_major};
use std::collections::BTreeSet;

/// How a node takes part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Costs nothing inside a kernel: a constant or an index.
    Leaf,
    /// Another way to read its operand.
    View,
    /// Computes each element from the operands' elements at the same place.
    Map,
    /// Reduces axes.
    Reduce,
    /// A matrix product.
    Matmul,
    /// A library kernel.
    Library,
    /// No kernel: its operands are computed in their places in it.
    Join,
    /// No kernel, but a border that grouping does not cross: its result is the operand's buffer.
    Barrier,
}

/// A use of a value: the position of the using node in the body, and the operand's number.
pub type Use = (usize, usize);

/// The graph's body with what fusion asks of it.
pub struct Analysis<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// The target.
    pub target: &'a dyn Target,
    /// The nodes, by position.
    pub nodes: Vec<&'a Node>,
    /// Their kinds.
    pub kinds: Vec<Kind>,
    /// Uses of each value.
    pub uses: Vec<Vec<Use>>,
    /// The position of the node that defines each value (none for parameters).
    pub def: Vec<Option<usize>>,
    /// Values that must have a buffer of their own.
    pub forced: BTreeSet<ValueId>,
    /// Those that are computed in their place in a concatenation.
    pub places: &'a Places,
    /// Maps that are computed wherever they are read, by position: see [`Analysis::mark_free`].
    free: Vec<bool>,
}

/// A view of a value that has a buffer.
#[derive(Clone, Debug)]
pub struct BaseView {
    /// The value with the buffer.
    pub base: ValueId,
    /// First element, in the buffer.
    pub offset: usize,
    /// Sizes.
    pub shape: Vec<usize>,
    /// Strides in elements.
    pub strides: Vec<usize>,
}

impl BaseView {
    fn whole(base: ValueId, ty: &Type) -> BaseView {
        let shape = ty.sizes();
        BaseView { base, offset: 0, strides: row_major(&shape), shape }
    }

    /// Whether it is all of the base, in order.
    pub fn is_whole(&self, graph: &Graph) -> bool {
        let dense = row_major(&self.shape);
        self.offset == 0
            && self.shape.iter().product::<usize>() == graph.ty(self.base).numel()
            && self.shape.iter().enumerate().all(|(i, &n)| n <= 1 || self.strides[i] == dense[i])
    }
}

impl<'a> Analysis<'a> {
    /// Analyses a bound, flat graph. `forced` are values that an earlier attempt found to need a buffer.
    pub fn new(
        graph: &'a Graph,
        target: &'a dyn Target,
        forced: &BTreeSet<ValueId>,
        places: &'a Places,
    ) -> Result<Analysis<'a>, CompileError> {
        let nodes: Vec<&Node> = graph.body_nodes().collect();
        let mut kinds = vec![];
        let mut uses = vec![vec![]; graph.values.len()];
        let mut def = vec![None; graph.values.len()];
        for (at, node) in nodes.iter().enumerate() {
            kinds.push(kind(graph, target, node)?);
            for (slot, v) in node.operands.iter().enumerate() {
                uses[v.index()].push((at, slot));
            }
            for v in &node.results {
                def[v.index()] = Some(at);
            }
        }
        let free = vec![false; nodes.len()];
        let mut a = Analysis { graph, target, nodes, kinds, uses, def, forced: forced.clone(), places, free };
        a.mark_free();
        a.demand_all();
        Ok(a)
    }

    /// Whether a node is written into the kernels that read it, without one of its own: leaves, views and free maps that
    /// nobody forced.
    pub fn inlined(&self, at: usize) -> bool {
        let free = matches!(self.kinds[at], Kind::Leaf | Kind::View) || self.free[at];
        free && !self.forced.contains(&self.nodes[at].results[0])
    }

    /// Finds the maps that cost less to compute again than to load: cheap ones whose operands have far fewer elements than
    /// the result (a mask from two positions, a label compared with a position).
    fn mark_free(&mut self) {
        const FEWER: usize = 8;
        // Elements that reading a value touches, at most; for a free map those of its operands.
        let mut touched: Vec<usize> = self.graph.values.iter().map(|v| v.ty.numel()).collect();
        for at in 0..self.nodes.len() {
            let node = self.nodes[at];
            let below = node.operands.iter().fold(0usize, |sum, v| sum.saturating_add(touched[v.index()]));
            let own = touched[node.results[0].index()];
            match self.kinds[at] {
                Kind::Leaf => {
                    let stored = matches!(&node.op, Op::Constant(c) if !c.value.shape().is_empty());
                    touched[node.results[0].index()] = if stored { own } else { 0 };
                }
                Kind::View => touched[node.results[0].index()] = own.min(below),
                Kind::Map if !costly(&node.op) && below.saturating_mul(FEWER) <= own => {
                    self.free[at] = true;
                    touched[node.results[0].index()] = below;
                }
                _ => {}
            }
        }
    }

    /// Sizes of a value.
    pub fn sizes(&self, v: ValueId) -> Vec<usize> {
        self.graph.ty(v).sizes()
    }

    /// The value of which a value is a reshape, where it has no buffer of its own.
    pub fn through_reshapes(&self, mut v: ValueId) -> ValueId {
        while !self.forced.contains(&v)
            && let Some(Node { op: Op::Reshape(_), operands, .. }) = self.graph.def(v)
        {
            v = operands[0];
        }
        v
    }

    /// Whether a value has a buffer whatever the grouping: parameters, constants with many numbers, results of library
    /// kernels and of barriers, and forced values.
    pub fn has_own_buffer(&self, v: ValueId) -> bool {
        match self.def[v.index()] {
            None => true,
            Some(at) => match (self.kinds[at], &self.nodes[at].op) {
                (Kind::Matmul | Kind::Library | Kind::Join | Kind::Barrier, _) => true,
                (Kind::Leaf, Op::Constant(c)) if !c.value.shape().is_empty() => true,
                _ => self.forced.contains(&v),
            },
        }
    }

    /// Marks what outputs, updates and library operands need.
    fn demand_all(&mut self) {
        let roots: Vec<ValueId> = self
            .graph
            .outputs
            .iter()
            .map(|o| o.value)
            .chain(self.graph.updates.iter().map(|u| u.value))
            .collect();
        for v in roots {
            self.demand(v, false);
        }
        for at in 0..self.nodes.len() {
            let node = self.nodes[at];
            for (slot, &v) in node.operands.iter().enumerate() {
                match self.kinds[at] {
                    // 8-bit floats are multiplied along their rows, which lie so.
                    Kind::Matmul => self.demand(v, !self.graph.ty(v).dtype.is_fp8()),
                    Kind::Library => self.demand(v, self.takes_strided(node, slot)),
                    Kind::Barrier => self.demand(v, false),
                    _ => {}
                }
            }
        }
    }

    /// Whether an operand of a library kernel may be a strided view. Of a scan's sequence only the first axis may be; the
    /// kernel sees to that.
    fn takes_strided(&self, node: &Node, slot: usize) -> bool {
        match &node.op {
            Op::Scan(s) => (s.carries..s.carries + s.sequences).contains(&slot),
            op => self.target.takes_strided(op, slot),
        }
    }

    /// Makes sure that a value can be read from a buffer: as a strided view of one, or (not `strided`) as all of one.
    fn demand(&mut self, v: ValueId, strided: bool) {
        if self.has_own_buffer(v) {
            return;
        }
        let Some(at) = self.def[v.index()] else { return };
        let node = self.nodes[at];
        let free = match node.op {
            Op::Reshape(_) => true,
            Op::Transpose(_) | Op::Broadcast(_) | Op::Slice(_) => strided,
            _ => false,
        };
        if !free || self.kinds[at] != Kind::View {
            self.forced.insert(v);
            return;
        }
        self.demand(node.operands[0], strided);
        if self.view(v, &|b| self.has_own_buffer(b)).is_none() {
            self.forced.insert(v);
        }
    }

    /// A value as it lies in its buffer.
    pub fn stored(&self, v: ValueId) -> BaseView {
        self.places.of(v).cloned().unwrap_or_else(|| BaseView::whole(v, self.graph.ty(v)))
    }

    /// A value as a strided view of a value for which `has_buffer` holds.
    pub fn view(&self, v: ValueId, has_buffer: &dyn Fn(ValueId) -> bool) -> Option<BaseView> {
        if has_buffer(v) {
            return Some(self.stored(v));
        }
        let node = self.nodes[self.def[v.index()]?];
        let below = |slot: usize| self.view(node.operands[slot], has_buffer);
        match &node.op {
            Op::Reshape(_) => {
                let b = below(0)?;
                let shape = self.sizes(v);
                let strides = reshape_strides(&b.shape, &b.strides, &shape)?;
                Some(BaseView { shape, strides, ..b })
            }
            Op::Transpose(t) => {
                let b = below(0)?;
                let pick = |from: &[usize]| t.perm.iter().map(|&p| from[p]).collect::<Vec<_>>();
                Some(BaseView { shape: pick(&b.shape), strides: pick(&b.strides), ..b })
            }
            Op::Broadcast(_) => {
                let b = below(0)?;
                let shape = self.sizes(v);
                let lead = shape.len() - b.shape.len();
                let stride =
                    |i: usize| if i < lead || b.shape[i - lead] == 1 { 0 } else { b.strides[i - lead] };
                let strides = (0..shape.len()).map(stride).collect();
                Some(BaseView { strides, shape, ..b })
            }
            Op::Slice(s) => {
                let b = below(0)?;
                let mut strides = b.strides.clone();
                strides[s.axis] *= s.step;
                Some(BaseView {
                    offset: b.offset + s.start * b.strides[s.axis],
                    strides,
                    shape: self.sizes(v),
                    ..b
                })
            }
            _ => None,
        }
    }

    /// The nodes (positions) that read a node's results in kernels of their own, each with the path of inlined views in
    /// between, nearest to the reader first.
    pub fn readers(&self, at: usize) -> Vec<Reader> {
        self.nodes[at].results.iter().flat_map(|&v| self.readers_of(v)).collect()
    }

    /// The readers of a value, and in place of each barrier the readers behind it: the kernels that read its buffer.
    pub fn kernels_reading(&self, v: ValueId) -> Vec<usize> {
        let readers = self.readers_of(v).into_iter();
        readers
            .flat_map(|r| match self.kinds[r.at] {
                Kind::Barrier => self.kernels_reading(self.nodes[r.at].results[0]),
                _ => vec![r.at],
            })
            .collect()
    }

    /// The same for one value.
    pub fn readers_of(&self, v: ValueId) -> Vec<Reader> {
        let mut out = vec![];
        self.collect(v, &mut vec![], &mut out);
        out
    }

    fn collect(&self, v: ValueId, path: &mut Vec<usize>, out: &mut Vec<Reader>) {
        for &(user, slot) in &self.uses[v.index()] {
            if self.inlined(user) {
                path.push(user);
                self.collect(self.nodes[user].results[0], path, out);
                path.pop();
            } else {
                out.push(Reader { at: user, slot, views: path.iter().rev().copied().collect() });
            }
        }
    }
}

/// A reader of a node's result.
#[derive(Clone, Debug)]
pub struct Reader {
    /// The reading node.
    pub at: usize,
    /// Which operand.
    pub slot: usize,
    /// The inlined nodes in between, nearest to the reader first: views, and maps that keep the place.
    pub views: Vec<usize>,
}

fn kind(graph: &Graph, target: &dyn Target, node: &Node) -> Result<Kind, CompileError> {
    let types: Vec<Type> = node.operands.iter().map(|v| graph.ty(*v).clone()).collect();
    let kind = match &node.op {
        Op::Constant(_) | Op::Iota(_) => Kind::Leaf,
        Op::Reshape(_) | Op::Transpose(_) | Op::Broadcast(_) | Op::Slice(_) | Op::Reverse(_) => Kind::View,
        Op::Pad(p) if p.interior == 0 => Kind::View,
        Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select(_) | Op::Cast(_) => Kind::Map,
        Op::Bitcast(_) | Op::RandomBits(_) => Kind::Map,
        Op::Reduce(_) => Kind::Reduce,
        Op::Barrier(_) => Kind::Barrier,
        Op::Concat(_) => Kind::Join,
        Op::Matmul(_) if target.accepts(&node.op, &types) => Kind::Matmul,
        _ if target.accepts(&node.op, &types) => Kind::Library,
        op => {
            return Err(CompileError::Unsupported {
                target: target.name(),
                op: op.rule().name().to_string(),
                operands: types.iter().map(|t| t.to_string()).collect::<Vec<_>>().join(", "),
                loc: node.loc.map(|l| l.to_string()).unwrap_or_else(|| "the graph's text".to_string()),
            });
        }
    };
    Ok(kind)
}

/// Whether computing an element twice is worse than storing it.
pub fn costly(op: &Op) -> bool {
    match op {
        Op::Reduce(_) | Op::RandomBits(_) => true,
        Op::Unary(u) => u.kind.is_costly(),
        Op::Binary(b) => !b.kind.is_exact(),
        _ => false,
    }
}
