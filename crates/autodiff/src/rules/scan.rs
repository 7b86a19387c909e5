//! The derivative of a scan is a scan the other way: it carries the cotangents of the carries, and its region is the
//! derivative of the region.
//!
//! What the backward region needs of an iteration is the carries as that iteration found them: the forward scan gives
//! them as further outputs ([`onestep_ir::GraphBuilder::scan_carries`]), and the backward region computes the forward
//! one's values again from them and the slices. So a gradient costs the region's forward work once more, and memory for
//! the carries of every iteration, linear in the length; nothing else of an iteration is kept. What turns out not to be
//! needed goes with the dead code.
//!
//! The gradient is that of the unrolled form up to the order of sums: what comes back through a carry is one sum before
//! it meets other cotangents. The cotangents of constants are summed in carries, from the iteration visited first, in
//! `f32` at least, and rounded once.

use super::{At, Cotangents, wide};
use crate::{AutodiffError, vjp};
use onestep_ir::ops::Scan;
use onestep_ir::rewrite::splice;
use onestep_ir::{Graph, NodeId, Shape, Tensor, Type};

/// The cotangents of the operands of a scan, which is `node` of the graph under construction and of `graph`.
#[track_caller]
pub(crate) fn pull<'g>(
    at: &At<'_, 'g>,
    op: &Scan,
    graph: &Graph,
    node: NodeId,
) -> Result<Cotangents<'g>, AutodiffError> {
    let g = at.g;
    let Some(region) = graph.node(node).regions.first() else { return Ok(vec![None; at.operands.len()]) };
    let (carries, sequences) = (op.carries, op.carries + op.sequences);
    let is_float = |t: Tensor<'_>| t.dtype().is_float();
    let slice = |t: Tensor<'_>| Type::new(t.dtype(), Shape(t.shape().0.split_off(1)));
    let whole = |t: Tensor<'_>| Type::new(t.dtype(), t.shape());

    // What is differentiated: all carries of floats, since one may feed the other, and of the rest what is wanted.
    let floats: Vec<usize> = (0..carries).filter(|&i| is_float(at.operands[i])).collect();
    let wanted = |from: usize, to: usize| (from..to).filter(|&i| at.wanted[i]).collect::<Vec<usize>>();
    let (slices, constants) = (wanted(carries, sequences), wanted(sequences, at.operands.len()));
    let given: Vec<usize> = (carries..at.cotangents.len()).filter(|&i| at.cotangents[i].is_some()).collect();

    // Carries: the cotangents of the carries, then the sums for the constants.
    let last = floats.iter().map(|&i| at.cotangents[i].unwrap_or_else(|| at.zeros(at.operands[i])));
    let sums = constants.iter().map(|&i| at.zeros(wide(at.operands[i])));
    let mut operands: Vec<Tensor<'g>> = last.chain(sums).collect();
    let mut params: Vec<Type> = operands.iter().map(|t| whole(*t)).collect();
    // Sequences: what the forward iterations took, then the cotangents of their outputs.
    let saved = g.scan_carries(node);
    let outputs = given.iter().filter_map(|&i| at.cotangents[i]);
    let walked = saved.iter().chain(&at.operands[carries..sequences]).copied().chain(outputs);
    for t in walked {
        operands.push(t);
        params.push(slice(t));
    }
    for t in &at.operands[sequences..] {
        operands.push(*t);
        params.push(whole(*t));
    }
    let backward = Scan {
        carries: floats.len() + constants.len(),
        sequences: sequences + given.len(),
        length: op.length.clone(),
        reverse: !op.reverse,
    };

    let mut failed = None;
    let results = g.emit_with_region(backward, &operands, &params, |p| {
        let (carried, rest) = p.split_at(floats.len() + constants.len());
        let (cotangents, sums) = carried.split_at(floats.len());
        let (taken, rest) = rest.split_at(sequences);
        let (of_outputs, unsliced) = rest.split_at(given.len());
        // In the order of the forward region's parameters.
        let args = [taken, unsliced].concat();
        let again = splice(g, graph, region, &args, &mut |_, _, _| None);
        let seeds = floats.iter().zip(cotangents).map(|(&i, c)| (again[i], *c));
        let seeds = seeds.chain(given.iter().zip(of_outputs).map(|(&i, c)| (again[i], *c)));
        let wrt: Vec<usize> = floats.iter().chain(&constants).chain(&slices).copied().collect();
        let wrt: Vec<Tensor<'g>> = wrt.into_iter().map(|i| args[i]).collect();
        match vjp(g, &seeds.collect::<Vec<_>>(), &wrt) {
            Ok(found) => {
                let zero = |i: usize| at.zeros(wrt[i]);
                let mut found: Vec<_> =
                    found.into_iter().enumerate().map(|(i, c)| c.unwrap_or_else(|| zero(i))).collect();
                let added = found[floats.len()..].iter_mut().zip(sums);
                added.for_each(|(c, sum)| *c = *sum + wide(*c));
                found
            }
            Err(e) => {
                failed = Some(e);
                vec![at.x().poison()]
            }
        }
    });
    if let Some(e) = failed {
        return Err(e);
    }
    let mut back = vec![None; at.operands.len()];
    let order = floats.iter().chain(&constants).chain(&slices);
    for (&i, d) in order.zip(results) {
        back[i] = at.want(i, || d.cast(at.operands[i].dtype()));
    }
    Ok(back)
}
