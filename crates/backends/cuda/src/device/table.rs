//! The recorded choices of algorithms for products: a text on disk beside the compiled kernels, one line for each shape.
//!
//! A table is of one device, driver and version of the library; under others there is none, and every choice is the library's
//! own. So what is computed changes only where somebody asked for measuring.

use super::compile;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// An algorithm, as the library's own numbers.
pub(super) type Algorithm = [u64; 8];

/// Algorithms by shape.
#[derive(Default, Debug)]
pub(super) struct Table {
    key: String,
    file: Option<PathBuf>,
    choices: BTreeMap<String, Algorithm>,
}

impl Table {
    /// The table that stands on disk for this device, driver and version; empty if none does.
    pub fn open(device: &str, driver: i32, version: usize) -> Table {
        Table::at(
            compile::folder().as_deref(),
            format!("products, {device}, driver {driver}, cuBLASLt {version}"),
        )
    }

    fn at(folder: Option<&Path>, key: String) -> Table {
        let file = folder.map(|f| f.join(compile::name(&key, "products")));
        let mut table = Table { key, file, choices: BTreeMap::new() };
        table.choices = table.stored();
        table
    }

    /// What stands on disk; a line that is none is left out.
    fn stored(&self) -> BTreeMap<String, Algorithm> {
        let bytes = self.file.as_deref().and_then(|f| compile::read(f, &self.key)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).lines().filter_map(parse).collect()
    }

    /// The choice for a shape.
    pub fn get(&self, shape: &str) -> Option<Algorithm> {
        self.choices.get(shape).copied()
    }

    /// Records choices, with those that others have written meanwhile.
    pub fn record(&mut self, choices: impl IntoIterator<Item = (String, Algorithm)>) {
        self.choices.extend(self.stored());
        self.choices.extend(choices);
        let mut text = String::new();
        for (shape, algorithm) in &self.choices {
            let numbers: Vec<String> = algorithm.iter().map(|n| format!("{n:016x}")).collect();
            let _ = writeln!(text, "{shape}: {}", numbers.join(" "));
        }
        if let Some(file) = &self.file {
            // A table that cannot be written is measured again by the next program.
            let _ = compile::write(file, &self.key, text.as_bytes());
        }
    }
}

fn parse(line: &str) -> Option<(String, Algorithm)> {
    let (shape, numbers) = line.split_once(": ")?;
    let numbers: Vec<u64> =
        numbers.split(' ').map(|n| u64::from_str_radix(n, 16)).collect::<Result<_, _>>().ok()?;
    Some((shape.into(), numbers.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_stands_for_its_own_key_alone() {
        let folder = tempfile::tempdir().unwrap();
        let open = |key: &str| Table::at(Some(folder.path()), key.into());
        let (mut one, mut two) = (open("a device"), open("a device"));
        assert_eq!(one.get("4x4"), None);
        one.record([("4x4".to_string(), [1; 8])]);
        // Neither of two writers loses what the other one has found.
        two.record([("8x8".to_string(), [u64::MAX; 8])]);
        let both = open("a device");
        assert_eq!((both.get("4x4"), both.get("8x8")), (Some([1; 8]), Some([u64::MAX; 8])));
        assert_eq!(open("another").get("4x4"), None);
    }

    #[test]
    fn a_line_that_is_cut_is_left_out() {
        assert_eq!(parse("4x4: 1 2 3 4 5 6 7 8"), Some(("4x4".into(), [1, 2, 3, 4, 5, 6, 7, 8])));
        for line in ["", "4x4: 1 2 3", "4x4: 1 2 3 4 5 6 7 x", "4x4 1"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
