//! What a checkpoint says of itself, and whether a run may go on from it.

use super::CheckpointError;
use crate::{Digest, Position};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the format that this build writes.
pub const FORMAT: u32 = 1;

/// What a checkpoint says of itself. What is not here (parameters, slots, counters, random keys, loss scale, learning rate
/// and schedule) is state, and so among the tensors.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// The format's version.
    pub format: u32,
    /// The version of Onestep that wrote it.
    pub onestep: String,
    /// The program's name.
    pub program: String,
    /// A digest of the program's graph, if it was given. It is compared between equal versions of Onestep only: another
    /// version may write the same step as another graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Digest>,
    /// Steps taken.
    pub step: u64,
    /// The place of the next batch.
    pub data: Position,
    /// What must be the same in a run that goes on: seeds, update rule, options, data. Each has a name that the user knows
    /// it by, such as the option that sets it.
    pub settings: BTreeMap<String, String>,
}

impl Manifest {
    /// That of a program after `step` steps, with `data` as the place of its next batch.
    pub fn new(program: &str, step: u64, data: Position) -> Manifest {
        Manifest {
            format: FORMAT,
            onestep: env!("CARGO_PKG_VERSION").to_string(),
            program: program.to_string(),
            graph: None,
            step,
            data,
            settings: BTreeMap::new(),
        }
    }

    /// With one more setting that must be the same.
    pub fn setting(mut self, name: &str, value: impl ToString) -> Manifest {
        self.settings.insert(name.to_string(), value.to_string());
        self
    }

    /// With the text of the program's graph.
    pub fn graph(mut self, text: &str) -> Manifest {
        self.graph = Some(Digest::of_bytes(text.as_bytes()));
        self
    }

    /// Whether a run with this manifest's program and settings may go on from `self`: steps and positions do not matter.
    ///
    /// # Errors
    /// [`CheckpointError::Program`], [`CheckpointError::Setting`] for the first that differs, [`CheckpointError::Graph`].
    pub fn check(&self, run: &Manifest) -> Result<(), CheckpointError> {
        if self.program != run.program {
            let (there, here) = (self.program.clone(), run.program.clone());
            return Err(CheckpointError::Program { there, here });
        }
        let names = self.settings.keys().chain(run.settings.keys());
        for name in names {
            let [there, here] = [self, run].map(|m| m.settings.get(name));
            if there != here {
                let shown =
                    |value: Option<&String>| value.map_or("not set".to_string(), |v| format!("'{v}'"));
                return Err(CheckpointError::Setting {
                    name: name.clone(),
                    there: shown(there),
                    here: shown(here),
                });
            }
        }
        let both = self.graph.zip(run.graph);
        match both {
            Some((there, here)) if there != here && self.onestep == run.onestep => {
                Err(CheckpointError::Graph)
            }
            _ => Ok(()),
        }
    }
}
