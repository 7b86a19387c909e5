//! The built program, as its user meets it: what it prints, what it keeps, what it refuses, and how it ends.

mod common;

mod bisect;
mod inspect;
mod refusals;
mod resume;
mod runs;
