//! Faults that systems of this kind have had, each at the level of the compiled program that a user runs. What is asked
//! here is never asked of the interpreter alone; where an oracle is needed, the interpreter is that oracle.

mod common;

mod checkpoints;
mod contracts;
mod decode;
mod dims;
mod dropout;
mod errors;
mod extend;
mod hostile;
mod indices;
mod mixed;
mod numerics;
mod optimizers;
mod oracle;
mod overflow;
mod population;
mod replay;
mod scan;
mod training;
mod ways;
