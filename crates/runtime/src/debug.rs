//! Finds where numbers go bad: the first op of a graph that makes a NaN or an infinity of operands that have none.
//!
//! The graph runs on the reference interpreter, op by op, which is slow but sees every value; the state is left as it is.
//! What is found is the op as the user wrote it (a softmax is one op), with the line that built it.

use crate::{Error, Feeds, Program, State};
use onestep_ir::interp::{Data, Dense, Mode, trace};
use onestep_ir::{Array, Graph, GraphError, Loc, Op, Type, ValueId, bind, nearest};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The numbers of a tensor at a glance.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    /// What it is: `input 'x'`, `state 'w'`, or `%12 mul`.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// The least finite element; NaN if there is none.
    pub min: f64,
    /// The greatest finite element; NaN if there is none.
    pub max: f64,
    /// The mean of the finite elements; NaN if there is none.
    pub mean: f64,
    /// How many elements there are.
    pub count: usize,
    /// How many of them are NaN.
    pub nan: usize,
    /// How many of them are infinite.
    pub infinite: usize,
}

impl Stats {
    fn of(name: String, d: &Dense) -> Stats {
        let mut s = Stats {
            name,
            ty: d.ty(),
            min: f64::NAN,
            max: f64::NAN,
            mean: f64::NAN,
            count: d.len(),
            nan: 0,
            infinite: 0,
        };
        // The mean is kept as a running one, so that no sum overflows.
        let mut seen = 0.0;
        let mut add = |x: f64| match x {
            x if x.is_nan() => s.nan += 1,
            x if x.is_infinite() => s.infinite += 1,
            x => {
                seen += 1.0;
                (s.min, s.max) = (s.min.min(x), s.max.max(x));
                s.mean = if seen == 1.0 { x } else { s.mean + (x / seen - s.mean / seen) };
            }
        };
        match &d.data {
            Data::Reals(v) => v.iter().for_each(|&x| add(x)),
            Data::Ints(v) => v.iter().for_each(|&x| add(x as f64)),
        }
        s
    }

    /// Elements that are NaN or infinite.
    pub fn non_finite(&self) -> usize {
        self.nan + self.infinite
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} : {}  min {:e}, max {:e}, mean {:e}",
            self.name, self.ty, self.min, self.max, self.mean
        )?;
        let (bad, all) = (self.non_finite(), self.count);
        write!(f, "; {bad} of {all} not finite ({} NaN, {} infinite)", self.nan, self.infinite)
    }
}

/// Where numbers went bad.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The op's name; `input` or `state` if what was given is bad already.
    pub op: String,
    /// Where the user wrote it.
    pub loc: Option<Loc>,
    /// The bad result.
    pub result: Stats,
    /// The operands.
    pub operands: Vec<Stats>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let loc = self.loc.map(|l| format!(" at {l}")).unwrap_or_default();
        write!(f, "{}{loc} is the first to give a NaN or an infinity\n  result   {}", self.op, self.result)?;
        self.operands.iter().try_for_each(|s| write!(f, "\n  operand  {s}"))
    }
}

/// The first op to make a NaN or an infinity of operands without one, given these inputs and this state; `None` if all
/// numbers stay finite. An infinity that the graph itself holds as a constant, as a mask does, is none of the kind; nor is
/// what an op only passes on. Dimension variables take their sizes from the inputs.
pub fn find_non_finite(graph: &Graph, state: &State, inputs: impl Feeds) -> Result<Option<Finding>, Error> {
    let fed = in_order(graph, &inputs)?;
    let shapes: Vec<Vec<usize>> = fed.iter().map(|a| a.shape().to_vec()).collect();
    let bound = bind(graph, &graph.binding_from_inputs(&shapes)?)?;
    let fed: Vec<Dense> = fed.iter().map(Dense::from_array).collect();
    let mut resident: BTreeMap<Arc<str>, Dense> = BTreeMap::new();
    for s in &bound.states {
        resident.insert(s.name.clone(), Dense::from_array(&state.get(&s.name)?));
    }
    let mut seen: Vec<Option<Stats>> = vec![None; bound.values.len()];
    let inputs = bound.inputs.iter().zip(&fed).map(|(p, d)| ("input", &p.name, p.value, d));
    let states =
        bound.states.iter().filter_map(|s| Some(("state", &s.name, s.value, resident.get(&s.name)?)));
    for (kind, name, value, dense) in inputs.chain(states) {
        let stats = Stats::of(format!("{kind} '{name}'"), dense);
        if stats.non_finite() > 0 {
            return Ok(Some(Finding { op: kind.to_string(), loc: None, result: stats, operands: vec![] }));
        }
        seen[value.index()] = Some(stats);
    }
    let mut found = None;
    let outcome = trace(&bound, &fed, &resident, Mode::Declared, &mut |v, dense| {
        if found.is_none() {
            found = look(&bound, v, dense, &mut seen);
        }
    });
    match (found, outcome) {
        // An op may refuse what a bad number became; what was found before it is the answer.
        (Some(found), _) => Ok(Some(found)),
        (None, outcome) => Ok(outcome.map(|()| None)?),
    }
}

/// Keeps the numbers of a value, and gives a finding if its op made bad ones.
fn look(graph: &Graph, v: ValueId, dense: &Dense, seen: &mut [Option<Stats>]) -> Option<Finding> {
    let node = graph.def(v)?;
    let op = node.op.rule().name();
    let result = Stats::of(format!("%{} {op}", v.0), dense);
    let operands: Vec<Stats> = node.operands.iter().filter_map(|o| seen[o.index()].clone()).collect();
    let nan = result.nan > 0 && operands.iter().all(|s| s.nan == 0);
    let infinite = result.infinite > 0 && operands.iter().all(|s| s.infinite == 0);
    seen[v.index()] = Some(result.clone());
    let made = (nan || infinite) && !matches!(node.op, Op::Constant(_));
    made.then(|| Finding { op: op.to_string(), loc: node.loc, result, operands })
}

/// The inputs in the graph's order.
fn in_order(graph: &Graph, feeds: &(impl Feeds + ?Sized)) -> Result<Vec<Array>, Error> {
    let mut places: Vec<Option<Array>> = vec![None; graph.inputs.len()];
    let (mut given, mut unknown) = (0, None);
    feeds.each(&mut |name, a| {
        let at = match name {
            None => Some(given),
            Some(name) => graph.inputs.iter().position(|p| &*p.name == name),
        };
        match (at.and_then(|i| places.get_mut(i)), name) {
            (Some(place), _) => *place = Some(a.clone()),
            (None, Some(name)) => unknown = Some(name.to_string()),
            (None, None) => {}
        }
        given += 1;
    });
    let names = || graph.inputs.iter().map(|p| &*p.name);
    if let Some(name) = unknown {
        let nearest = nearest(&name, names());
        return Err(Error::NoInput { name, nearest });
    }
    if given != places.len() || places.iter().any(Option::is_none) {
        let names = names().collect::<Vec<_>>().join(", ");
        return Err(Error::InputCount { want: places.len(), got: given, names });
    }
    for (port, a) in graph.inputs.iter().zip(places.iter().flatten()) {
        let want = graph.ty(port.value);
        if want.dtype != a.dtype() {
            return Err(GraphError::Feed {
                name: port.name.to_string(),
                want: Box::new(want.clone()),
                got_dtype: a.dtype(),
                got_shape: a.shape().to_vec(),
            }
            .into());
        }
    }
    Ok(places.into_iter().flatten().collect())
}

impl Program {
    /// The first op of the program (of a training step: also of its backward pass and its update) to make a NaN or an
    /// infinity with these inputs and this state; see [`find_non_finite`]. Nothing is run on the device or changed.
    pub fn find_non_finite(&mut self, state: &State, inputs: impl Feeds) -> Result<Option<Finding>, Error> {
        let executable = self.executable_for(&inputs)?;
        find_non_finite(executable.graph(), state, &inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onestep_ir::{DType, GraphBuilder, Init, Tensor};

    /// What is found when `f` runs on one input.
    fn found(x: &[f32], f: impl for<'g> Fn(Tensor<'g>) -> Tensor<'g>) -> Option<Finding> {
        let g = GraphBuilder::new("g");
        let input = g.input("x", DType::F32, [x.len()]);
        let y = f(input);
        g.output("y", y);
        let graph = g.build().unwrap();
        find_non_finite(&graph, &State::new(), [Array::new(&[x.len()], x).unwrap()]).unwrap()
    }

    #[test]
    fn the_logarithm_of_a_negative_number() {
        let line = line!() + 1;
        let f = found(&[4.0, -1.0], |x| (x.abs() + x.log()).exp() * 2.0).unwrap();
        assert_eq!((f.op.as_str(), f.result.nan, f.result.infinite), ("log", 1, 0));
        let loc = f.loc.unwrap();
        assert!(loc.file().unwrap().ends_with("debug.rs") && loc.line() == line, "{f}");
        let operand = &f.operands[0];
        assert_eq!((operand.min, operand.max, operand.mean), (-1.0, 4.0, 1.5));
        assert!(f.to_string().contains("operand  input 'x' : f32[2]  min -1e0, max 4e0, mean 1.5e0"), "{f}");
    }

    #[test]
    fn nought_by_nought() {
        let f = found(&[0.0, 3.0], |x| x.square() / (x * 2.0) + 1.0).unwrap();
        assert_eq!((f.op.as_str(), f.result.nan, f.operands.len()), ("div", 1, 2));
        assert_eq!((f.operands[0].max, f.operands[1].max), (9.0, 6.0));
    }

    #[test]
    fn an_overflow() {
        let f = found(&[1.0, 100.0], |x| (x.exp() - 1.0).log()).unwrap();
        assert_eq!((f.op.as_str(), f.result.infinite), ("exp", 1));
        assert_eq!((f.result.min, f.result.max), (f32::exp(1.0) as f64, f32::exp(1.0) as f64));
    }

    #[test]
    fn what_is_given_and_what_is_meant() {
        assert_eq!(found(&[f32::NAN], |x| x.exp()).unwrap().op, "input");
        assert_eq!(found(&[1.0, 2.0], |x| x.exp().log()), None);
        // A mask of infinities is no fault, nor is passing it on.
        let none = found(&[1.0, 2.0], |x| {
            let low = x.graph().full(DType::F32, [2], f64::NEG_INFINITY);
            x.greater(x.graph().full(DType::F32, [2], 1.5)).select(x, low).softmax(-1)
        });
        assert_eq!(none, None);
    }

    #[test]
    fn states_variables_and_wrong_inputs() {
        let g = GraphBuilder::new("g");
        let x = g.input("x", DType::F32, [onestep_ir::dim("B").at_most(8)]);
        let w = g.parameter("w", &[1], Init::ZEROS);
        g.output("y", x / w);
        let graph = g.build().unwrap();
        let mut state = State::new();
        state.set("w", &Array::new(&[1], &[0f32]).unwrap());
        let x = Array::new(&[3], &[1f32, 0.0, 2.0]).unwrap();
        let f = find_non_finite(&graph, &state, [("x", &x)]).unwrap().unwrap();
        assert_eq!((f.op.as_str(), f.result.nan, f.result.infinite), ("div", 1, 2));
        assert!(matches!(find_non_finite(&graph, &state, [("z", &x)]), Err(Error::NoInput { .. })));
        assert!(matches!(find_non_finite(&graph, &state, ()), Err(Error::InputCount { .. })));
        assert!(find_non_finite(&graph, &State::new(), [("x", &x)]).is_err());
    }
}
