//! `scan` for all members: one scan whose region is mapped. Inside, a slice has the axis of members in front, so a mapped
//! sequence goes in, and a mapped output comes out, with its first two axes swapped.

use super::{Lane, Mapper, VmapError};
use onestep_ir::ops::Scan;
use onestep_ir::{Graph, Node, Region, Tensor, Type, ValueId};
use std::collections::HashSet;

/// The results of a scan whose operands are `lanes`.
pub(super) fn scan<'g>(
    mapper: &mut Mapper<'_, 'g>,
    node: &Node,
    op: &Scan,
    region: &Region,
    lanes: &[Lane<'g>],
) -> Result<Vec<Lane<'g>>, VmapError> {
    let (g, size) = (mapper.g, mapper.size);
    let (carries, sequences) = (op.carries, op.carries + op.sequences);
    let (params, results) = spread(mapper.graph, op, region, lanes);
    let operand = |(i, lane): (usize, &Lane<'g>)| match i {
        _ if !params[i] => lane.tensor,
        i if i < carries => lane.wide(size),
        i if i < sequences => swapped(lane.tensor),
        _ => lane.tensor,
    };
    let operands: Vec<Tensor<'g>> = lanes.iter().enumerate().map(operand).collect();
    let types: Vec<Type> = operands.iter().filter_map(|t| t.ty()).collect();
    let types = op.params(&types).map_err(|m| {
        // The builder says the same with the user's line.
        g.mistake("scan", &operands, m);
        VmapError::from(onestep_ir::GraphError::Build(g.errors()))
    })?;
    let mut inside = Ok(());
    let made = g.emit_with_region(node.op.clone(), &operands, &types, |p| {
        let lane = |(p, mapped): (&Tensor<'g>, &bool)| Lane { tensor: *p, mapped: *mapped };
        mapper.map.extend(region.params.iter().copied().zip(p.iter().zip(&params).map(lane)));
        inside = mapper.nodes(region);
        let result = |(v, mapped): (&ValueId, &bool)| {
            let lane = mapper.map.get(v)?;
            Some(if *mapped { lane.wide(size) } else { lane.tensor })
        };
        region.results.iter().zip(&results).filter_map(result).collect()
    });
    inside?;
    let lane = |(i, (tensor, &mapped)): (usize, (Tensor<'g>, &bool))| {
        let tensor = if mapped && i >= carries { swapped(tensor) } else { tensor };
        Lane { tensor, mapped }
    };
    Ok(made.into_iter().zip(&results).enumerate().map(lane).collect())
}

/// The first two axes swapped.
fn swapped(t: Tensor<'_>) -> Tensor<'_> {
    let perm: Vec<usize> = [1, 0].into_iter().chain(2..t.rank()).collect();
    t.transpose(&perm)
}

/// Which parameters and results of the region differ from member to member: a carry that does so after some iteration does
/// so from the first.
fn spread(graph: &Graph, op: &Scan, region: &Region, lanes: &[Lane<'_>]) -> (Vec<bool>, Vec<bool>) {
    let mut params: Vec<bool> = lanes.iter().map(|l| l.mapped).collect();
    loop {
        let at = region.params.iter().zip(&params).filter(|(_, mapped)| **mapped).map(|(v, _)| *v);
        let mut differs: HashSet<ValueId> = at.collect();
        for node in region.nodes.iter().map(|n| graph.node(*n)) {
            if node.operands.iter().any(|v| differs.contains(v)) {
                differs.extend(&node.results);
            }
        }
        let results: Vec<bool> = region.results.iter().map(|v| differs.contains(v)).collect();
        let before = params.clone();
        params.iter_mut().zip(&results).take(op.carries).for_each(|(p, r)| *p |= r);
        if params == before {
            // A carry that differs at first is given back in the same form.
            let carry = |(i, r): (usize, bool)| r || (i < op.carries && params[i]);
            return (params.clone(), results.into_iter().enumerate().map(carry).collect());
        }
    }
}
