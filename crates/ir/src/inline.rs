//! Inlining: every `call` gives way to the nodes of its region, also in nested regions. Lowering, which follows it in the
//! pipeline, knows no calls.

use crate::rewrite::{rewrite, splice};
use crate::{Graph, GraphBuilder, Node, Op, Tensor};

/// The graph without calls. The graph must be valid, as the builder and the parser make it.
pub fn inline_calls(graph: &Graph) -> Graph {
    rewrite(graph, &mut |g, node, operands| inline(g, graph, node, operands))
        .expect("a region that took its operands' types still takes them when its nodes are copied")
}

fn inline<'g>(
    g: &'g GraphBuilder,
    graph: &Graph,
    node: &Node,
    operands: &[Tensor<'g>],
) -> Option<Vec<Tensor<'g>>> {
    let Op::Call(_) = node.op else { return None };
    Some(splice(g, graph, node.regions.first()?, operands, &mut |g, node, operands| {
        inline(g, graph, node, operands)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interp::run_arrays;
    use crate::{Array, DType};
    use std::collections::BTreeMap;

    fn with_calls() -> Graph {
        let g = GraphBuilder::new("calls");
        let x = g.input("x", DType::F32, [3]);
        let y = g.input("y", DType::F32, [3]);
        let both = g.call("outer", &[x, y], |p| {
            let inner = g.call("inner", &[p[0] + p[1]], |q| vec![q[0] * q[0]]);
            vec![inner[0] - p[1], p[0]]
        });
        let again = g.call("identity", &[both[0]], |p| vec![p[0]]);
        g.output("a", again[0] + both[1]);
        g.output("b", both[0]);
        g.build().unwrap()
    }

    #[test]
    fn calls_are_evaluated_and_inlined_alike() {
        let graph = with_calls();
        let flat = inline_calls(&graph);
        assert!(flat.nodes.iter().all(|n| n.regions.is_empty() && !matches!(n.op, Op::Call(_))));
        let inputs =
            [Array::new(&[3], &[1f32, 2.0, 3.0]).unwrap(), Array::new(&[3], &[0.5f32, -1.0, 4.0]).unwrap()];
        let nested = run_arrays(&graph, &inputs, &mut BTreeMap::new()).unwrap();
        assert_eq!(nested, run_arrays(&flat, &inputs, &mut BTreeMap::new()).unwrap());
        assert_eq!(nested[1].as_slice::<f32>().unwrap(), [1.75, 2.0, 45.0]);
    }

    #[test]
    fn a_region_may_not_reach_outside() {
        let g = GraphBuilder::new("leak");
        let x = g.input("x", DType::F32, [3]);
        let y = g.call("leaky", &[x], |p| vec![p[0] + x]);
        g.output("y", y[0]);
        let text = g.build().unwrap_err().to_string();
        assert!(text.contains("uses a value from outside"), "{text}");
    }

    #[test]
    fn nesting_has_a_limit() {
        fn nest<'g>(g: &'g GraphBuilder, x: Tensor<'g>, depth: usize) -> Tensor<'g> {
            if depth == 0 { x } else { g.call("deeper", &[x], |p| vec![nest(g, p[0], depth - 1)])[0] }
        }
        for (depth, fits) in [(Graph::MAX_NESTING, true), (Graph::MAX_NESTING + 1, false)] {
            let g = GraphBuilder::new("deep");
            let x = g.input("x", DType::F32, [3]);
            g.output("y", nest(&g, x, depth));
            assert_eq!(g.build().is_ok(), fits, "{depth}");
        }
    }
}
