//! Recurrent networks: Elman's, LSTM and GRU, with layers, both directions, dropout between layers and sequences of
//! different lengths, by PyTorch's formulas and with its parameters.

use crate::dropout;
use crate::layers::{features, parameter};
use onestep_ir::{DType, Dim, GraphBuilder, Init, ScanOptions, Shape, Tensor};

/// What computes a step from the input and the step before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cell {
    /// `h' = tanh(W·x + b + U·h + d)` (Elman, "Finding structure in time", 1990): PyTorch's `nn.RNN`.
    Tanh,
    /// The same with `max(·, 0)` for tanh: PyTorch's `nn.RNN(nonlinearity="relu")`.
    Relu,
    /// Long short-term memory (Hochreiter and Schmidhuber, 1997; Gers and others, 2000): PyTorch's `nn.LSTM`. With the rows
    /// of `W·x + b + U·h + d` in the order `i, f, g, o`:
    /// `c' = σ(f)·c + σ(i)·tanh(g)`, `h' = σ(o)·tanh(c')`.
    Lstm,
    /// Gated recurrent unit (Cho and others, 2014, in the form that PyTorch's `nn.GRU` has). With the rows in the order
    /// `r, z, n`, those of the input marked `x` and those of the step before `h`:
    /// `r = σ(xr + hr)`, `z = σ(xz + hz)`, `n = tanh(xn + r·hn)`, `h' = (1 − z)·n + z·h`.
    Gru,
}

impl Cell {
    /// Rows of the weights for each feature.
    fn gates(self) -> usize {
        match self {
            Cell::Tanh | Cell::Relu => 1,
            Cell::Gru => 3,
            Cell::Lstm => 4,
        }
    }
}

/// A recurrent network. Each layer is one [`GraphBuilder::scan`], so that neither the time to compile nor the number of
/// kernels depends on the length of the sequences.
///
/// Parameters, below the network's name, for layer `k` from 0; the other direction's end in `_reverse`:
///
/// | parameter | shape |
/// |---|---|
/// | `weight_ih_l<k>` | `[gates·hidden, inputs]`; of later layers `[gates·hidden, directions·hidden]` |
/// | `weight_hh_l<k>` | `[gates·hidden, hidden]` |
/// | `bias_ih_l<k>`, `bias_hh_l<k>` | `[gates·hidden]` |
///
/// These are PyTorch's names and layouts. All start uniform in `±1/√hidden`, as there.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Recurrent {
    /// What computes a step.
    pub cell: Cell,
    /// Features of the state.
    pub hidden: usize,
    /// Layers, one on top of the other.
    pub layers: usize,
    /// Whether each layer also reads the sequence from its end, with parameters of its own.
    pub bidirectional: bool,
    /// The probability with which an element of a layer's output becomes 0 before the next layer.
    pub dropout: f64,
    /// Whether there are biases.
    pub bias: bool,
}

/// What a recurrent network carries from step to step.
#[derive(Clone, Copy, Debug)]
pub struct RecurrentState<'g> {
    /// `[layers·directions, batch, hidden]`: layer by layer, forward before backward.
    pub hidden: Tensor<'g>,
    /// The cells of an LSTM, of the same shape.
    pub cell: Option<Tensor<'g>>,
}

/// What a recurrent network gives.
#[derive(Clone, Copy, Debug)]
pub struct Recurred<'g> {
    /// The last layer's hidden states, `[batch, time, directions·hidden]`, forward before backward; 0 beyond a sequence's
    /// length.
    pub output: Tensor<'g>,
    /// The state after the last step of each sequence (for the other direction, after its first).
    pub state: RecurrentState<'g>,
}

impl Recurrent {
    /// One layer in one direction, with biases.
    pub const fn new(cell: Cell, hidden: usize) -> Recurrent {
        Recurrent { cell, hidden, layers: 1, bidirectional: false, dropout: 0.0, bias: true }
    }

    /// An LSTM of one layer.
    pub const fn lstm(hidden: usize) -> Recurrent {
        Recurrent::new(Cell::Lstm, hidden)
    }

    /// A GRU of one layer.
    pub const fn gru(hidden: usize) -> Recurrent {
        Recurrent::new(Cell::Gru, hidden)
    }

    fn directions(&self) -> usize {
        1 + self.bidirectional as usize
    }

    /// The network over whole sequences that start from zeros.
    ///
    /// `x` is `[batch, time, inputs]` of any float dtype, which the results have too; batch and time may be variables.
    #[track_caller]
    pub fn build<'g>(&self, g: &'g GraphBuilder, name: &str, x: Tensor<'g>) -> Recurred<'g> {
        self.build_with(g, name, x, None, None)
    }

    /// The same with integer `lengths`, `[batch]`, of the sequences, and with a first state.
    ///
    /// Beyond its length, a sequence's outputs are 0 and its state stays: as with PyTorch's `pack_padded_sequence`, the last
    /// state is that of the last step within the length, and the other direction begins there.
    #[track_caller]
    pub fn build_with<'g>(
        &self,
        g: &'g GraphBuilder,
        name: &str,
        x: Tensor<'g>,
        lengths: Option<Tensor<'g>>,
        first: Option<RecurrentState<'g>>,
    ) -> Recurred<'g> {
        let Some(steps) = self.steps(g, x, lengths, first) else {
            let cell = (self.cell == Cell::Lstm).then(|| x.poison());
            let state = RecurrentState { hidden: x.poison(), cell };
            return Recurred { output: x.poison(), state };
        };
        // A slice for each step.
        let mut y = x.transpose(&[1, 0, 2]);
        let (mut hidden, mut cells) = (vec![], vec![]);
        for layer in 0..self.layers {
            if layer > 0 {
                y = dropout(g, &format!("{name}.dropout_l{}", layer - 1), y, self.dropout);
            }
            let mut outputs = vec![];
            for direction in 0..self.directions() {
                let at = layer * self.directions() + direction;
                let (output, state) = self.layer(g, name, y, &steps, layer, direction > 0, at);
                outputs.push(output);
                hidden.push(state[0]);
                cells.extend(state.get(1));
            }
            y = if self.bidirectional { g.concat(&outputs, -1) } else { outputs[0] };
        }
        let cell = (self.cell == Cell::Lstm).then(|| g.stack(&cells, 0));
        let state = RecurrentState { hidden: g.stack(&hidden, 0), cell };
        Recurred { output: y.transpose(&[1, 0, 2]), state }
    }

    /// Checks the operands, and prepares what all layers share. `None` with a mistake on record, here or before.
    #[track_caller]
    fn steps<'g>(
        &self,
        g: &'g GraphBuilder,
        x: Tensor<'g>,
        lengths: Option<Tensor<'g>>,
        first: Option<RecurrentState<'g>>,
    ) -> Option<Steps<'g>> {
        const WHAT: &str = "recurrent";
        features(x, WHAT)?;
        let shape = x.shape();
        let [batch, time, _] = &shape.0[..] else {
            let what = format!("{shape} has not three axes");
            x.mistake(WHAT, what, "give x of shape [batch, time, inputs]");
            return None;
        };
        if self.layers == 0 || self.hidden == 0 {
            let what = format!("has {} layers of {} features", self.layers, self.hidden);
            x.mistake(WHAT, what, "use one of each at least");
            return None;
        }
        let keep = match lengths {
            None => None,
            Some(lengths) => {
                lengths.value()?;
                if !lengths.dtype().is_int() || lengths.shape().0 != [batch.clone()] {
                    let what = format!("the lengths are {}{}", lengths.dtype(), lengths.shape());
                    lengths.mistake(WHAT, what, format!("give integers of shape [{batch}]"));
                    return None;
                }
                let both = Shape(vec![time.clone(), batch.clone()]);
                Some(g.iota(DType::I64, both.clone(), 0).less(lengths.cast(DType::I64).broadcast(&both)))
            }
        };
        let all = Shape(vec![(self.layers * self.directions()).into(), batch.clone(), self.hidden.into()]);
        for t in first.iter().flat_map(|s| [Some(s.hidden), s.cell]).flatten() {
            t.value()?;
            if t.shape() != all || t.dtype() != x.dtype() {
                let what =
                    format!("the first state is {}{} instead of {}{all}", t.dtype(), t.shape(), x.dtype());
                t.mistake(WHAT, what, "give [layers·directions, batch, hidden] of the input's dtype");
                return None;
            }
        }
        if first.is_some_and(|s| s.cell.is_some() != (self.cell == Cell::Lstm)) {
            x.mistake(
                WHAT,
                "the first state has not the cell's parts",
                "give cells to an LSTM, and only to it",
            );
            return None;
        }
        Some(Steps { batch: batch.clone(), keep, first })
    }

    /// One layer in one direction over `x`, `[time, batch, inputs]`: its outputs, `[time, batch, hidden]`, and its last
    /// state, `[batch, hidden]` each. `at` is its place in the first state.
    #[track_caller]
    #[allow(clippy::too_many_arguments)] // each says another thing of the layer
    fn layer<'g>(
        &self,
        g: &'g GraphBuilder,
        name: &str,
        x: Tensor<'g>,
        steps: &Steps<'g>,
        layer: usize,
        reverse: bool,
        at: usize,
    ) -> (Tensor<'g>, Vec<Tensor<'g>>) {
        let (hidden, rows) = (self.hidden, self.cell.gates().saturating_mul(self.hidden));
        let inputs = x.shape().0.last().and_then(|d| d.size()).unwrap_or(0);
        let bound = 1.0 / (hidden as f64).sqrt();
        let own = |what: &str, shape: &[usize]| {
            let what = format!("{what}_l{layer}{}", if reverse { "_reverse" } else { "" });
            let init = Init::Uniform { low: -bound, high: bound };
            parameter(g, name, &what, x, shape, init).cast(x.dtype())
        };
        let (weight, recurrent) = (own("weight_ih", &[rows, inputs]), own("weight_hh", &[rows, hidden]));
        // What a step takes from its input is computed for all steps at once.
        let mut projected = x.matmul_t(weight, false, true);
        let mut inner_bias = None;
        if self.bias {
            let (outer, inner) = (own("bias_ih", &[rows]), own("bias_hh", &[rows]));
            projected = projected + outer;
            match self.cell {
                // Its gate stands between the two.
                Cell::Gru => inner_bias = Some(inner),
                _ => projected = projected + inner,
            }
        }
        let zeros = || g.full(x.dtype(), Shape(vec![steps.batch.clone(), hidden.into()]), 0.0);
        let mut first = vec![steps.first.map_or_else(zeros, |s| s.hidden.at(0, at))];
        if self.cell == Cell::Lstm {
            let given = steps.first.and_then(|s| s.cell);
            first.push(given.map_or_else(zeros, |c| c.at(0, at)));
        }
        let sequences: Vec<Tensor<'g>> = [projected].into_iter().chain(steps.keep).collect();
        let options = ScanOptions { length: None, reverse };
        let mut done = g.scan(&first, &sequences, options, |carry, slice| {
            let mut before = carry[0].matmul_t(recurrent, false, true);
            if let Some(bias) = inner_bias {
                before = before + bias;
            }
            let next = self.step(carry, slice[0], before);
            let Some(keep) = slice.get(1) else { return (next.clone(), vec![next[0]]) };
            let keep = keep.expand(1);
            let kept =
                next.iter().zip(carry).map(|(new, old)| keep.broadcast(&new.shape()).select(*new, *old));
            (kept.collect(), vec![keep.broadcast(&next[0].shape()).select(next[0], 0.0)])
        });
        (done.outputs.remove(0), done.carries)
    }

    /// The next state, from the last one, what the input gives and what the last hidden state gives.
    #[track_caller]
    fn step<'g>(&self, carry: &[Tensor<'g>], x: Tensor<'g>, h: Tensor<'g>) -> Vec<Tensor<'g>> {
        let gates = vec![self.hidden; self.cell.gates()];
        match self.cell {
            Cell::Tanh => vec![(x + h).tanh()],
            Cell::Relu => vec![(x + h).relu()],
            Cell::Lstm => {
                let parts = (x + h).split(-1, &gates);
                let [i, f, g, o] = parts[..] else { return vec![x.poison(); 2] };
                let cell = f.sigmoid() * carry[1] + i.sigmoid() * g.tanh();
                vec![o.sigmoid() * cell.tanh(), cell]
            }
            Cell::Gru => {
                let (x, h) = (x.split(-1, &gates), h.split(-1, &gates));
                let ([xr, xz, xn], [hr, hz, hn]) = (&x[..], &h[..]) else { return vec![carry[0].poison()] };
                let (r, z) = ((*xr + *hr).sigmoid(), (*xz + *hz).sigmoid());
                let n = (*xn + r * *hn).tanh();
                vec![(1.0 - z) * n + z * carry[0]]
            }
        }
    }
}

/// What all layers share.
struct Steps<'g> {
    batch: Dim,
    /// Whether a step is within its sequence: `bool[time, batch]`.
    keep: Option<Tensor<'g>>,
    first: Option<RecurrentState<'g>>,
}
