//! Answers to "why": why a kernel is what it is, why a value goes through memory, why a state is copied.
//!
//! Compiling keeps no record for it: the graph is grouped once more when a question is asked.

use crate::{Error, Executable};
use onestep_cpu::CpuError;
use onestep_passes::Target;
use onestep_passes::explain::Explain;
use onestep_passes::fuse::{self, Provenance};
use onestep_passes::pipeline::Compiled;

impl Executable {
    /// What became of each value of the graph before fusion ([`Executable::compiled`] holds it): the kernel that computes
    /// it, its buffer, and for each reader that takes it from memory the reason.
    pub fn provenance(&self) -> Result<Provenance, Error> {
        let compiled = self.compiled();
        Ok(fuse::provenance(&compiled.graph, self.device().target(), self.is_fused(), &compiled.schedule)?)
    }

    /// In sentences, what became of a thing: `%12`, a value of the graph before fusion; `k7`, a kernel; `b3`, a buffer; or
    /// the name of an input, a state or an output.
    pub fn explain(&self, what: &str) -> Result<String, Error> {
        let provenance = self.provenance()?;
        let answer = Explain::new(self.compiled(), &provenance).answer(what);
        answer.ok_or_else(|| Error::Unknown { what: what.to_string() })
    }
}

/// The backend's error with the ops of the kernel and the lines that built them.
pub(crate) fn kernel_error(error: CpuError, target: &dyn Target, compiled: &Compiled, fused: bool) -> Error {
    let CpuError::Kernel { kernel, source } = error else { return error.into() };
    let Ok(provenance) = fuse::provenance(&compiled.graph, target, fused, &compiled.schedule) else {
        return (*source).into();
    };
    let members = Explain::new(compiled, &provenance).members(kernel);
    let nodes = || members.iter().filter_map(|v| provenance.graph.def(*v));
    let what: Vec<&str> = nodes().map(|n| n.op.rule().name()).collect();
    let mut lines: Vec<String> = nodes().filter_map(|n| n.loc).map(|l| l.to_string()).collect();
    lines.dedup();
    let few = |all: &[String]| match all.len() {
        0 => "an unknown line".to_string(),
        n if n > 3 => format!("{} and {} more lines", all[..3].join(", "), n - 3),
        _ => all.join(", "),
    };
    Error::Kernel { kernel, what: what.join(", "), loc: few(&lines), source: *source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Options};
    use onestep_ir::{DType, Graph, GraphBuilder};

    fn compile(graph: &Graph) -> Executable {
        Executable::compile(graph, &Device::cpu_with(1).unwrap(), &Options::default()).unwrap()
    }

    #[test]
    fn what_is_together_says_so_with_its_lines() {
        let g = GraphBuilder::new("softmax");
        let x = g.input("x", DType::F32, [64, 32]);
        let line = line!() + 1;
        let y = x.softmax(-1);
        g.output("y", y);
        let e = compile(&g.build().unwrap());
        assert_eq!(e.compiled().schedule.kernels.len(), 1);
        let text = e.explain("k0").unwrap();
        assert!(text.contains("reduce") && text.contains("in registers"), "{text}");
        assert!(text.contains(&format!("explain.rs:{line}")), "{text}");
        assert!(e.explain("y").unwrap().contains("It is the output 'y'."));
        assert!(e.explain("x").unwrap().contains("input 'x'"));
        assert!(matches!(e.explain("%999"), Err(Error::Unknown { .. })));
        assert!(matches!(e.explain("nothing"), Err(Error::Unknown { .. })));
    }

    #[test]
    fn a_state_that_is_copied_says_why() {
        let g = GraphBuilder::new("shift");
        let s = g.parameter("s", &[8, 8], onestep_ir::Init::ONES);
        g.update(s, s.transpose(&[1, 0]) * 2.0, false);
        g.output("before", s.sum_all());
        let e = compile(&g.build().unwrap());
        let update = e.compiled().graph.updates[0].value;
        let text = e.explain(&format!("%{}", update.0)).unwrap();
        assert!(text.contains("It is the new value of state 's'."), "{text}");
        assert!(text.contains("copied into state 's' after the last kernel, because kernel k"), "{text}");
    }

    #[test]
    fn a_kernel_that_cannot_be_rendered_names_its_lines() {
        let g = GraphBuilder::new("g");
        let x = g.input("x", DType::F32, [4]);
        let line = line!() + 1;
        g.output("y", x.exp());
        let e = compile(&g.build().unwrap());
        let source = Box::new(CpuError::Rank { rank: 99, most: 8 });
        let error = CpuError::Kernel { kernel: 0, source };
        let text = kernel_error(error, e.device().target(), e.compiled(), true).to_string();
        assert!(
            text.starts_with("kernel k0 (exp) from ") && text.contains(&format!("explain.rs:{line}:")),
            "{text}"
        );
    }
}
