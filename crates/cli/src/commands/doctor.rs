//! `doctor`: what this build can run on, and what it lacks for the rest.

use super::{CommandError, print};
use onestep::Device;

/// Prints a line for each device and each library.
pub fn doctor() -> Result<(), CommandError> {
    let all = Device::survey();
    let width = all.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, what): &(&str, String)| format!("{name:width$}  {what}\n");
    print(&all.iter().map(line).collect::<String>())
}
