//! The tangents of a scan: a scan that carries the carries' tangents beside them. Its region is the region with its
//! derivative; it computes the forward values once more, since those of an iteration are nowhere else.

use super::rules::{At, Tangents};
use crate::{AutodiffError, jvp};
use onestep_ir::ops::Scan;
use onestep_ir::rewrite::splice;
use onestep_ir::{Graph, NodeId, Tensor, Type};

/// The tangents of the results of a scan, which is `node` of the graph under construction and of `graph`.
#[track_caller]
pub(super) fn push<'g>(
    at: &At<'_, 'g>,
    op: &Scan,
    graph: &Graph,
    node: NodeId,
) -> Result<Tangents<'g>, AutodiffError> {
    let g = at.g;
    let Some(region) = graph.node(node).regions.first() else { return Ok(vec![None; at.results.len()]) };
    let (carries, sequences) = (op.carries, op.carries + op.sequences);
    let is_float = |t: &Tensor<'_>| t.dtype().is_float();
    // What moves: every carry of floats, since one may feed the other, and of the rest what has a tangent.
    let floats: Vec<usize> = (0..carries).filter(|&i| is_float(&at.operands[i])).collect();
    let given =
        |from: usize, to: usize| (from..to).filter(|&i| at.tangents[i].is_some()).collect::<Vec<usize>>();
    let (slices, constants) = (given(carries, sequences), given(sequences, at.operands.len()));
    let tangent = |i: &usize| {
        let x = at.operands[*i];
        at.tangents[*i].unwrap_or_else(|| g.full(x.dtype(), x.shape(), 0.0))
    };
    let group = |own: &[Tensor<'g>], moving: &[usize]| -> Vec<Tensor<'g>> {
        own.iter().copied().chain(moving.iter().map(tangent)).collect()
    };
    let groups = [
        group(&at.operands[..carries], &floats),
        group(&at.operands[carries..sequences], &slices),
        group(&at.operands[sequences..], &constants),
    ];
    let wider = Scan { carries: groups[0].len(), sequences: groups[1].len(), ..op.clone() };
    let [first, second, _] = [0, 1, 2].map(|i| groups[i].len());
    let operands = groups.concat();
    let types: Vec<Type> = operands.iter().filter_map(|t| t.ty()).collect();
    let types = wider.params(&types).map_err(|mistake| {
        g.mistake("scan", &operands, mistake);
        AutodiffError::from(onestep_ir::GraphError::Build(g.errors()))
    })?;

    let outputs: Vec<usize> = (carries..at.results.len()).filter(|&i| is_float(&at.results[i])).collect();
    let mut failed = None;
    let results = g.emit_with_region(wider, &operands, &types, |p| {
        let (p_carries, rest) = p.split_at(first);
        let (p_slices, p_constants) = rest.split_at(second);
        let (own_carries, of_carries) = p_carries.split_at(carries);
        let (own_slices, of_slices) = p_slices.split_at(op.sequences);
        let (own_constants, of_constants) = p_constants.split_at(at.operands.len() - sequences);
        let args = [own_carries, own_slices, own_constants].concat();
        let values = splice(g, graph, region, &args, &mut |_, _, _| None);
        let moving = floats.iter().chain(&slices).chain(&constants);
        let tangents = of_carries.iter().chain(of_slices).chain(of_constants);
        let inputs: Vec<_> = moving.map(|&i| args[i]).zip(tangents.copied()).collect();
        let moved: Vec<Tensor<'g>> = floats.iter().chain(&outputs).map(|&i| values[i]).collect();
        match jvp(g, &moved, &inputs) {
            Ok(found) => {
                let zero = |y: &Tensor<'g>| g.full(y.dtype(), y.shape(), 0.0);
                let found: Vec<_> =
                    found.into_iter().zip(&moved).map(|(t, y)| t.unwrap_or_else(|| zero(y))).collect();
                let (of_carries, of_outputs) = found.split_at(floats.len());
                [&values[..carries], of_carries, &values[carries..], of_outputs].concat()
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
    let mut tangents = vec![None; at.results.len()];
    let own = at.results.len() - carries;
    for (k, &i) in floats.iter().enumerate() {
        tangents[i] = results.get(carries + k).copied();
    }
    for (k, &i) in outputs.iter().enumerate() {
        tangents[i] = results.get(carries + floats.len() + own + k).copied();
    }
    Ok(tangents)
}
