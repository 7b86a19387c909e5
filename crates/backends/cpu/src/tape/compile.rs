//! From nodes to a tape: which section computes what, what is kept between passes, and in which register.
//!
//! Values that do not vary with the vectorised axes are scalars, computed in the outermost section where their operands
//! are known. What varies with the reduced axes is computed in the *pass* over them that needs it; where several need
//! it, the later ones recompute what is cheap and read back from scratch what is not. (Nothing is reloaded in a pass
//! after one that stores at every point: the store may have taken the load's place.)

mod keep;

use super::domain::Domain;
use super::instr::{Block, Isa, cast, elementwise, joined, random};
use super::lower::{Lowered, Node, NodeOp};
use super::reduce::{LANES, reducer};
use super::step::{Accumulator, Place, Program, Step, Value};
use super::walk::Target;
use super::{Mode, registers};
use crate::error::CpuError;
use std::collections::BTreeMap;

/// Where a node is computed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Level {
    Literal,
    Chunk,
    Outer,
    /// Of the row, known at this stage.
    Row(usize),
    /// Varies in the row.
    Term,
}

/// Where a value lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Home {
    /// A block of its own in scratch, for as long as it is used.
    Register,
    /// A scalar of its own in scratch.
    Slot,
    /// Bits in the tape.
    Literal(usize),
    /// At an offset in scratch (an accumulator's total).
    Fixed(usize),
    /// Where the last step that moved it says.
    Moving,
}

/// The sections in the order in which they run, before registers are given out.
pub struct Sections {
    pub steps: Vec<Vec<Step>>,
    pub homes: Vec<Home>,
}

/// Index of the section of row values known at a stage; that of the pass after it is one more.
pub fn row_section(stage: usize) -> usize {
    2 + 2 * stage
}

struct Compiler<'a> {
    domain: &'a Domain,
    nodes: &'a [Node],
    isa: Isa,
    /// The nodes that are used, each after its operands, near its first use.
    order: Vec<usize>,
    sections: Sections,
    program: Program,
    /// Values of nodes of the row and above, and of the nodes that each pass computes.
    of_node: BTreeMap<usize, Value>,
    of_term: BTreeMap<(usize, usize), Value>,
    /// Bytes of scratch given out so far.
    scratch: usize,
}

/// Compiles the nodes of a kernel whose stores go to `targets`.
pub fn compile(
    lowered: &Lowered,
    targets: Vec<Target>,
    domain: &Domain,
    block: usize,
    isa: Isa,
) -> Result<Program, CpuError> {
    let passes = lowered.nodes.iter().map(|n| n.stage).max().unwrap_or(0) + 1;
    let mut c = Compiler {
        domain,
        nodes: &lowered.nodes,
        isa,
        order: order(lowered),
        sections: Sections { steps: vec![vec![]; row_section(passes) + 1], homes: vec![] },
        program: Program { block, targets, ..Program::default() },
        of_node: BTreeMap::new(),
        of_term: BTreeMap::new(),
        scratch: 0,
    };
    c.rows()?;
    c.terms(lowered, passes)?;
    c.row_stores(lowered, passes);
    let widest = c.order.iter().map(|&n| c.nodes[n].dtype.size()).max().unwrap_or(1);
    Ok(registers::assign(c.program, c.sections, c.scratch, widest, domain, passes))
}

/// The used nodes in depth-first order from the stores.
fn order(lowered: &Lowered) -> Vec<usize> {
    fn visit(nodes: &[Node], node: usize, seen: &mut [bool], out: &mut Vec<usize>) {
        if !std::mem::replace(&mut seen[node], true) {
            nodes[node].args.iter().for_each(|&a| visit(nodes, a, seen, out));
            out.push(node);
        }
    }
    let mut seen = vec![false; lowered.nodes.len()];
    let mut out = vec![];
    lowered.stored.iter().for_each(|&s| visit(&lowered.nodes, s, &mut seen, &mut out));
    out
}

impl Compiler<'_> {
    fn level(&self, node: usize) -> Level {
        let n = &self.nodes[node];
        let row = n.axes & self.domain.reduced_axes() == 0;
        match n.op {
            NodeOp::Literal(_) => Level::Literal,
            _ if !row => Level::Term,
            _ if n.stage > 0 => Level::Row(n.stage),
            _ if n.axes == 0 => Level::Chunk,
            _ if self.domain.mode == Mode::Column && self.scalar(node) => Level::Outer,
            _ => Level::Row(0),
        }
    }

    /// Whether a node is the same for all elements of a block.
    fn scalar(&self, node: usize) -> bool {
        self.nodes[node].axes & self.domain.vector_axes() == 0
    }

    fn value(&mut self, home: Home) -> Value {
        self.sections.homes.push(home);
        self.sections.homes.len() as Value - 1
    }

    fn allot(&mut self, bytes: usize) -> usize {
        let at = self.scratch;
        self.scratch += bytes.next_multiple_of(64);
        at
    }

    /// Elements that column mode keeps for each term, or 1.
    fn rows_of_term(&self) -> usize {
        if self.domain.mode == Mode::Column { self.program.block } else { 1 }
    }

    /// Everything that does not vary in a row.
    fn rows(&mut self) -> Result<(), CpuError> {
        for node in self.order.clone() {
            let section = match self.level(node) {
                Level::Literal => {
                    let NodeOp::Literal(bits) = self.nodes[node].op else { continue };
                    let at = self.program.literals.len();
                    self.program.literals.push(bits);
                    let value = self.value(Home::Literal(at));
                    self.program.constant.push((value, at));
                    self.of_node.insert(node, value);
                    continue;
                }
                Level::Term => continue,
                Level::Chunk => 0,
                Level::Outer => 1,
                Level::Row(stage) => row_section(stage),
            };
            if let NodeOp::Reduce(kind) = self.nodes[node].op {
                self.accumulator(node, kind)?;
                continue;
            }
            let home = if self.scalar(node) { Home::Slot } else { Home::Register };
            let value = self.value(home);
            self.of_node.insert(node, value);
            let args = self.nodes[node].args.iter().map(|a| (self.of_node[a], self.scalar(*a))).collect();
            self.emit(section, node, value, args)?;
        }
        Ok(())
    }

    fn accumulator(&mut self, node: usize, kind: onestep_ir::ops::ReduceKind) -> Result<(), CpuError> {
        let dtype = self.nodes[node].dtype;
        let Some(reducer) = reducer(kind, dtype, self.isa) else {
            return Err(CpuError::Undefined { function: kind.name(), dtype });
        };
        let (rows, size) = (self.rows_of_term(), dtype.size());
        let lanes = self.allot(LANES * rows * size);
        let total = self.allot(rows * size);
        let scalar = self.scalar(node);
        let partials = 0;
        self.program.accumulators.push(Accumulator { reducer, size, lanes, total, partials, scalar });
        let value = self.value(Home::Fixed(total));
        self.program.fixed.push((value, total));
        self.of_node.insert(node, value);
        Ok(())
    }

    /// Everything that varies in a row: for each pass, what it needs.
    fn terms(&mut self, lowered: &Lowered, passes: usize) -> Result<(), CpuError> {
        let reduces: Vec<usize> = self.order.iter().copied().filter(|&n| self.is_reduce(n)).collect();
        // The order in which `rows` made them.
        let numbers: BTreeMap<usize, usize> = reduces.iter().enumerate().map(|(i, &n)| (n, i)).collect();
        let stores: Vec<usize> =
            (0..lowered.stored.len()).filter(|&s| self.is_term_store(lowered, s)).collect();
        let pass_of_store = |s: &usize| lowered.nodes[lowered.stored[*s]].stage;
        let pass_of_reduce = |n: &usize| lowered.nodes[lowered.nodes[*n].args[0]].stage;

        let roots = |pass: usize| -> Vec<usize> {
            let reduced =
                reduces.iter().filter(|n| pass_of_reduce(n) == pass).map(|&n| lowered.nodes[n].args[0]);
            let stored = stores.iter().filter(|s| pass_of_store(s) == pass).map(|&s| lowered.stored[s]);
            reduced.chain(stored).collect()
        };
        let first_store = stores.iter().map(pass_of_store).min().unwrap_or(usize::MAX);
        let kept = self.kept(&roots, passes, first_store);
        let mut areas = BTreeMap::new();
        for &node in kept.keys() {
            let bytes = self.domain.terms() * self.rows_of_term() * self.nodes[node].dtype.size();
            areas.insert(node, self.allot(bytes));
        }

        for pass in 0..passes {
            let mut all = roots(pass);
            all.extend(kept.iter().filter(|(_, p)| **p == pass).map(|(&n, _)| n));
            let need = self.closure(&all, |node| kept.get(&node).is_some_and(|&p| p < pass));
            let section = row_section(pass) + 1;
            for node in self.order.clone().into_iter().filter(|n| need.contains(n)) {
                self.term(section, pass, node, kept.get(&node).copied(), areas.get(&node).copied())?;
            }
            let start = self.sections.steps[section].len();
            for n in reduces.iter().filter(|n| pass_of_reduce(n) == pass) {
                let arg = self.nodes[*n].args[0];
                let mut value = self.operand(pass, arg);
                if self.domain.mode == Mode::Row && self.scalar(arg) {
                    value = self.repeat(section, value, self.nodes[arg].dtype.size());
                }
                self.sections.steps[section].push(Step::Reduce { accumulator: numbers[n] as u32, value });
            }
            for &s in stores.iter().filter(|s| pass_of_store(s) == pass) {
                let value = self.operand(pass, lowered.stored[s]);
                self.store(section, start, lowered, s, value);
            }
        }
        self.program.pass_accumulators = vec![0..0; passes];
        self.group_accumulators(&reduces, &pass_of_reduce, passes);
        Ok(())
    }

    /// Orders the accumulators by pass.
    fn group_accumulators(&mut self, reduces: &[usize], pass_of: &dyn Fn(&usize) -> usize, passes: usize) {
        let mut by_pass: Vec<usize> = (0..reduces.len()).collect();
        by_pass.sort_by_key(|&i| pass_of(&reduces[i]));
        let old = std::mem::take(&mut self.program.accumulators);
        self.program.accumulators = by_pass.iter().map(|&i| old[i].clone()).collect();
        for steps in &mut self.sections.steps {
            for step in steps {
                if let Step::Reduce { accumulator, .. } = step {
                    let new = by_pass.iter().position(|&i| i == *accumulator as usize);
                    *accumulator = new.expect("a permutation") as u32;
                }
            }
        }
        let count = |pass: usize| reduces.iter().filter(|&n| pass_of(n) < pass).count();
        for pass in 0..passes {
            self.program.pass_accumulators[pass] = count(pass)..count(pass + 1);
        }
    }

    fn is_reduce(&self, node: usize) -> bool {
        matches!(self.nodes[node].op, NodeOp::Reduce(_))
    }

    /// Whether a store happens at every point of a row.
    fn is_term_store(&self, lowered: &Lowered, store: usize) -> bool {
        let place = self.program.targets[store].place.axes;
        (place | self.nodes[lowered.stored[store]].axes) & self.domain.reduced_axes() != 0
    }

    /// One node in one pass: read back, or computed, and in that case perhaps kept.
    fn term(
        &mut self,
        section: usize,
        pass: usize,
        node: usize,
        kept_at: Option<usize>,
        area: Option<usize>,
    ) -> Result<(), CpuError> {
        let size = self.nodes[node].dtype.size();
        if let (Some(_), Some(area)) = (kept_at.filter(|&at| at <= pass), area) {
            let value = self.value(Home::Moving);
            self.of_term.insert((pass, node), value);
            self.sections.steps[section].push(Step::Keep { value, area, size });
            if kept_at != Some(pass) {
                return Ok(());
            }
            if self.points(node) {
                // A pointer would be lost: copy what it points at.
                let from = self.value(Home::Moving);
                self.emit(section, node, from, vec![])?;
                let scalar = self.scalar(node);
                self.sections.steps[section].push(Step::Copy { value, from, size, repeat: false, scalar });
                return Ok(());
            }
            let args = self.operands(pass, node);
            return self.emit(section, node, value, args);
        }
        let home = if self.scalar(node) { Home::Slot } else { Home::Register };
        let value = self.value(home);
        self.of_term.insert((pass, node), value);
        let args = self.operands(pass, node);
        self.emit(section, node, value, args)
    }

    fn operands(&self, pass: usize, node: usize) -> Vec<(Value, bool)> {
        self.nodes[node].args.iter().map(|&a| (self.operand(pass, a), self.scalar(a))).collect()
    }

    fn operand(&self, pass: usize, node: usize) -> Value {
        match self.of_node.get(&node) {
            Some(&value) => value,
            None => self.of_term[&(pass, node)],
        }
    }

    /// Whether a node is a load of elements that lie in memory as the block wants them.
    fn points(&self, node: usize) -> bool {
        matches!(&self.nodes[node].op, NodeOp::Load(load)
            if load.bounds.is_empty() && matches!(load.place.step, Some(0 | 1)))
    }

    /// A block of a scalar.
    fn repeat(&mut self, section: usize, from: Value, size: usize) -> Value {
        let value = self.value(Home::Register);
        let step = Step::Copy { value, from, size, repeat: true, scalar: false };
        self.sections.steps[section].push(step);
        value
    }

    /// The store of a value at the end of a section.
    fn store(&mut self, section: usize, start: usize, lowered: &Lowered, s: usize, mut value: Value) {
        let node = lowered.stored[s];
        let place = &self.program.targets[s].place;
        let size = self.program.targets[s].size;
        let mut scalar = self.scalar(node);
        if scalar && place.axes & self.domain.vector_axes() != 0 {
            value = self.repeat(section, value, size);
            scalar = false;
        } else if self.points(node) && lowered.stored.len() > 1 {
            // Another store may take the place of what it points at: copy first.
            let copy = self.value(if scalar { Home::Slot } else { Home::Register });
            let step = Step::Copy { value: copy, from: value, size, repeat: false, scalar };
            self.sections.steps[section].insert(start, step);
            value = copy;
        }
        self.sections.steps[section].push(Step::Store { value, target: s as u32, scalar });
    }

    /// The stores of row values, after all passes.
    fn row_stores(&mut self, lowered: &Lowered, passes: usize) {
        for s in 0..lowered.stored.len() {
            if !self.is_term_store(lowered, s) {
                let value = self.of_node[&lowered.stored[s]];
                self.store(row_section(passes), 0, lowered, s, value);
            }
        }
    }

    /// The step that computes a node from its operands' values (each with whether it is a scalar).
    fn emit(
        &mut self,
        section: usize,
        node: usize,
        value: Value,
        args: Vec<(Value, bool)>,
    ) -> Result<(), CpuError> {
        let n = &self.nodes[node];
        let scalar = self.scalar(node);
        let isa = self.isa;
        let of_arg = |i: usize| self.nodes[n.args[i]].dtype;
        let defined =
            |f: Option<Block>, function| f.ok_or(CpuError::Undefined { function, dtype: of_arg(0) });
        let f = match &n.op {
            NodeOp::Load(load) => {
                let load = load.clone();
                let points = self.points(node);
                let (period, size) = (load.period(self.domain), load.size);
                self.program.loads.push(load);
                let load = self.program.loads.len() as u32 - 1;
                if let Some(period) = period.filter(|&p| p <= self.program.block) {
                    let length = self.program.block + period;
                    let area = self.allot(length * size);
                    // Where the outer axes are known.
                    self.sections.steps[1].push(Step::Pattern { load, area, period, length });
                    self.sections.homes[value as usize] = Home::Moving;
                    self.sections.steps[section].push(Step::Recur { value, area, period, size });
                    return Ok(());
                }
                self.sections.steps[section].push(if points {
                    self.sections.homes[value as usize] = Home::Moving;
                    let l = &self.program.loads[load as usize];
                    Step::Point { value, place: Place::new(l.buffer, &l.place, l.size), load }
                } else {
                    Step::Gather { value, load, scalar }
                });
                return Ok(());
            }
            NodeOp::Index(line) => {
                self.program.lines.push(line.clone());
                let line = self.program.lines.len() as u32 - 1;
                self.sections.steps[section].push(Step::Index { value, line, scalar });
                return Ok(());
            }
            NodeOp::Random(stream) => {
                let stream = *stream;
                return {
                    self.random(section, value, args, stream, scalar);
                    Ok(())
                };
            }
            NodeOp::Unary(kind) => defined(elementwise::unary(*kind, of_arg(0), isa), kind.name())?,
            NodeOp::Binary(kind) => {
                defined(elementwise::binary(*kind, of_arg(0), [args[0].1, args[1].1], isa), kind.name())?
            }
            NodeOp::Compare(kind) => {
                defined(elementwise::compare(*kind, of_arg(0), [args[0].1, args[1].1], isa), kind.name())?
            }
            NodeOp::Pair { inner, outer, second } => {
                let scalars = [args[0].1, args[1].1, args[2].1];
                defined(joined::pair(*inner, *outer, *second, scalars, isa), outer.name())?
            }
            NodeOp::RootQuotient => joined::root_quotient([args[0].1, args[1].1, args[2].1], isa),
            NodeOp::Composed { outer, inner } => {
                defined(joined::composed(*outer, *inner, [args[0].1, args[1].1], isa), outer.name())?
            }
            NodeOp::Select => elementwise::select(n.dtype.size(), [args[0].1, args[1].1, args[2].1], isa),
            NodeOp::Cast => cast::cast(of_arg(0), n.dtype, isa),
            NodeOp::Bitcast => cast::bitcast(n.dtype.size(), isa),
            NodeOp::Literal(_) | NodeOp::Reduce(_) => return Ok(()),
        };
        // Unused operands repeat the first, which is always readable.
        let arg = |i: usize| args.get(i).unwrap_or(&args[0]).0;
        let step = Step::Apply { f, value, args: [arg(0), arg(1), arg(2)], scalar };
        self.sections.steps[section].push(step);
        Ok(())
    }

    fn random(&mut self, section: usize, value: Value, args: Vec<(Value, bool)>, stream: u64, scalar: bool) {
        let f = random::random(self.isa);
        if args[..3].iter().all(|a| a.1) && args[3].1 == scalar {
            let (key, counter, index) = ([args[0].0, args[1].0], args[2].0, args[3].0);
            let step = Step::Random { f, value, key, counter, index, stream, scalar };
            self.sections.steps[section].push(step);
            return;
        }
        let mut block = |(arg, is_scalar): (Value, bool), size| {
            if is_scalar { self.repeat(section, arg, size) } else { arg }
        };
        let key = [block(args[0], 4), block(args[1], 4)];
        let (counter, index) = (block(args[2], 4), block(args[3], 8));
        let step = Step::RandomEach { f, value, key, counter, index, stream };
        self.sections.steps[section].push(step);
    }
}
