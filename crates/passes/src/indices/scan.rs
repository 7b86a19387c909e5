//! The tests of indices inside a scan: one more carry holds the least number of a site that met a bad index so far.

use super::{Tests, first_bad};
use onestep_ir::ops::Scan;
use onestep_ir::rewrite::splice;
use onestep_ir::{DType, Graph, GraphBuilder, Node, Op, Region, Tensor, Type};

/// Whether a site is in the region, or in one of those in it.
fn has_site(graph: &Graph, region: &Region, tests: &Tests) -> bool {
    region.nodes.iter().map(|n| graph.node(*n)).any(|node| {
        node.results.iter().any(|v| tests.contains_key(v))
            || node.regions.iter().any(|inner| has_site(graph, inner, tests))
    })
}

/// A scan that also carries the least number of a site with a bad index: its results as before, and that number. `None`
/// for other ops, and for scans without a site.
pub(super) fn tested<'g>(
    g: &'g GraphBuilder,
    graph: &Graph,
    node: &Node,
    operands: &[Tensor<'g>],
    tests: &Tests,
) -> Option<(Vec<Tensor<'g>>, Tensor<'g>)> {
    let (Op::Scan(op), [region]) = (&node.op, &node.regions[..]) else { return None };
    if !has_site(graph, region, tests) {
        return None;
    }
    let last = op.carries;
    let wider = Scan { carries: last + 1, ..op.clone() };
    let mut params: Vec<Type> = region.params.iter().map(|v| graph.ty(*v).clone()).collect();
    let mut operands = operands.to_vec();
    let none = g.full(DType::I32, (), i32::MAX as f64);
    params.insert(last, none.ty()?);
    operands.insert(last, none);
    let mut results = g.emit_with_region(wider, &operands, &params, |p| {
        let mut args = p.to_vec();
        let mut least = args.remove(last).value();
        let mut results = splice(g, graph, region, &args, &mut |g, node, operands| {
            let before = g.tensor(least?);
            if let Some((results, first)) = tested(g, graph, node, operands, tests) {
                least = before.minimum(first).value();
                return Some(results);
            }
            for (number, test) in tests.get(node.results.first()?)? {
                let test = test.of(node, operands)?;
                least = g.tensor(least?).minimum(first_bad(g, *number, test)).value();
            }
            None
        });
        results.insert(last, least.map_or(none.poison(), |v| g.tensor(v)));
        results
    });
    (results.len() > last).then(|| {
        let first = results.remove(last);
        (results, first)
    })
}
