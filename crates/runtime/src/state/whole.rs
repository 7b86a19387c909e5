//! State as a whole: copied out, put back, or summed up in digests.

use super::{State, Tensor};
use crate::Error;
use onestep_io::Digest;
use onestep_io::safetensors::Tensors;
use std::sync::Arc;

impl State {
    /// A copy of every tensor, by path: what a checkpoint keeps.
    pub fn arrays(&self) -> Result<Tensors, Error> {
        self.names().map(|name| Ok((name.to_string(), self.get(name)?))).collect()
    }

    /// Puts every tensor back, as [`State::arrays`] gave them: all of them, or none and an error.
    ///
    /// The state is one that the program has initialised ([`crate::Program::init`]), so that what the program needs is
    /// known: a tensor that it lacks, one that it does not have, or one of another type is refused. Where types are equal,
    /// the tensors keep their storage and nothing binds again.
    pub fn restore(&mut self, tensors: &Tensors) -> Result<(), Error> {
        let missing = self.names().filter(|name| !tensors.contains_key(*name));
        let missing: Vec<String> = missing.map(str::to_string).collect();
        let unknown: Vec<String> = tensors.keys().filter(|name| !self.contains(name)).cloned().collect();
        if !missing.is_empty() || !unknown.is_empty() {
            return Err(Error::Restore { missing, unknown });
        }
        for (name, array) in tensors {
            self.check(name, array.dtype(), array.shape())?;
        }
        for (name, array) in tensors {
            self.set(name, array);
        }
        Ok(())
    }

    /// A digest of every tensor, by path, without copying any: equal for equal bits on every machine.
    pub fn digests<'a>(&'a self) -> Result<Vec<(&'a str, Digest)>, Error> {
        let of = |(name, t): (&'a Arc<str>, &'a Tensor)| {
            Ok((&**name, Digest::of_tensor(t.dtype, &t.shape, t.buffer.bytes()?)))
        };
        self.tensors.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Options, Program};
    use onestep_ir::{Array, DType, GraphBuilder, Init};

    fn program() -> Program {
        let g = GraphBuilder::new("g");
        let (w, v) = (g.parameter("w", &[2], Init::ZEROS), g.parameter("v", &[3], Init::ZEROS));
        g.output("y", w.sum_all() + v.sum_all());
        Program::new(&g.build().unwrap(), &Device::cpu().unwrap(), &Options::default()).unwrap()
    }

    fn filled(program: &Program) -> State {
        let mut state = program.init(0).unwrap();
        state.set("w", &Array::new(&[2], &[1f32, 2.0]).unwrap());
        state
    }

    #[test]
    fn what_was_copied_out_is_put_back_in_place() {
        let program = program();
        let state = filled(&program);
        let mut other = program.init(0).unwrap();
        let address = other.as_slice::<f32>("w").unwrap().as_ptr();
        other.restore(&state.arrays().unwrap()).unwrap();
        assert_eq!(other.as_slice::<f32>("w").unwrap(), [1.0, 2.0]);
        assert_eq!(other.as_slice::<f32>("w").unwrap().as_ptr(), address);
        assert_eq!(other.digests().unwrap(), state.digests().unwrap());
    }

    #[test]
    fn what_does_not_fit_is_refused_whole() {
        let program = program();
        let arrays = filled(&program).arrays().unwrap();
        let refused = |change: &dyn Fn(&mut Tensors)| {
            let (mut tensors, mut state) = (arrays.clone(), program.init(0).unwrap());
            change(&mut tensors);
            let error = state.restore(&tensors).unwrap_err();
            assert_eq!(state.as_slice::<f32>("w").unwrap(), [0.0, 0.0], "nothing was written");
            error
        };
        let zeros = |shape: &[usize]| Array::zeros(DType::F32, shape).unwrap();
        let error = refused(&|t| {
            t.remove("v");
            t.insert("opt/w/m".into(), zeros(&[2]));
        });
        assert!(
            matches!(&error, Error::Restore { missing, unknown } if missing == &["v"] && unknown == &["opt/w/m"])
        );
        let error = refused(&|t| {
            t.insert("v".into(), zeros(&[4]));
        });
        assert!(matches!(&error, Error::StateType { name, .. } if name == "v"), "{error}");
    }

    #[test]
    fn one_bit_changes_one_digest() {
        let program = program();
        let (state, mut other) = (filled(&program), filled(&program));
        other.as_mut_slice::<f32>("w").unwrap()[1] = f32::from_bits(2f32.to_bits() + 1);
        let both = state.digests().unwrap().into_iter().zip(other.digests().unwrap());
        let parted: Vec<_> = both.filter(|(a, b)| a != b).collect();
        assert_eq!(parted.iter().map(|((name, _), _)| *name).collect::<Vec<_>>(), ["w"]);
    }
}
