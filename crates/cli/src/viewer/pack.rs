//! Texts of passes in little space. A line is its *form*, in which every number of a value, buffer, expression or kernel
//! (`%12`, `b3`, `e0`, `k7`) is left open, and those numbers. A model of equal layers has few forms, so a line takes about
//! ten bytes: `form:n,n,n` in base 36, lines separated by `;`.
//!
//! It is exact: what `viewer.js` unpacks is the text. The forms also tell which lines of two passes are alike though their
//! values are numbered differently.

use std::collections::HashMap;
use std::fmt::Write;

/// Stands in a form where a number was. No text of a graph has it: names are free of control characters.
const OPEN: char = '\u{1}';

/// The forms met so far.
#[derive(Default)]
pub(super) struct Packer {
    pub(super) forms: Vec<String>,
    known: HashMap<String, usize>,
}

impl Packer {
    /// A text of any number of lines.
    pub(super) fn text(&mut self, text: &str) -> String {
        let mut out = String::new();
        for (i, line) in text.lines().enumerate() {
            if i > 0 {
                out.push(';');
            }
            let (form, numbers) = open(line);
            let next = self.forms.len();
            let id = *self.known.entry(form).or_insert_with_key(|form| {
                self.forms.push(form.clone());
                next
            });
            base36(&mut out, id as u64);
            for (i, n) in numbers.iter().enumerate() {
                out.push(if i == 0 { ':' } else { ',' });
                base36(&mut out, *n);
            }
        }
        out
    }
}

/// A line's form and its numbers.
fn open(line: &str) -> (String, Vec<u64>) {
    let (mut form, mut numbers) = (String::with_capacity(line.len()), vec![]);
    let mut rest = line;
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        form.push(if c == OPEN { '\u{fffd}' } else { c });
        let part_of_word = before.is_alphanumeric() || matches!(before, '_' | '.');
        before = c;
        if part_of_word || !matches!(c, '%' | 'b' | 'e' | 'k') {
            continue;
        }
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let after = rest[digits..].chars().next().unwrap_or(' ');
        let (number, rest_of_it) = rest.split_at(digits);
        let plain = digits == 1 || !number.starts_with('0');
        if (1..=9).contains(&digits)
            && plain
            && !after.is_alphanumeric()
            && !matches!(after, '_' | '.')
            && let Ok(n) = number.parse()
        {
            form.push(OPEN);
            numbers.push(n);
            rest = rest_of_it;
            before = '0';
        }
    }
    (form, numbers)
}

fn base36(out: &mut String, mut n: u64) {
    let mut digits = [0u8; 13];
    let mut at = digits.len();
    while n > 0 || at == digits.len() {
        at -= 1;
        digits[at] = b"0123456789abcdefghijklmnopqrstuvwxyz"[(n % 36) as usize];
        n /= 36;
    }
    let _ = write!(out, "{}", String::from_utf8_lossy(&digits[at..]));
}

/// Numbers of lines, as runs: `value*times`, in base 36, separated by `,`.
pub(super) fn runs(numbers: &[usize]) -> String {
    let mut out = String::new();
    for run in numbers.chunk_by(|a, b| a == b) {
        if !out.is_empty() {
            out.push(',');
        }
        base36(&mut out, run[0] as u64);
        if run.len() > 1 {
            out.push('*');
            base36(&mut out, run.len() as u64);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the script does.
    fn unpack(packer: &Packer, packed: &str) -> String {
        let number = |t: &str| u64::from_str_radix(t, 36).unwrap();
        let line = |l: &str| {
            let (form, numbers) = l.split_once(':').unwrap_or((l, ""));
            let mut numbers = numbers.split(',').filter(|n| !n.is_empty()).map(number);
            let fill = |c: char| if c == OPEN { numbers.next().unwrap().to_string() } else { String::new() };
            let mut fill = fill;
            let form = &packer.forms[number(form) as usize];
            form.chars().map(|c| if c == OPEN { fill(c) } else { c.to_string() }).collect::<String>()
        };
        packed.split(';').map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn what_is_packed_unpacks() {
        let text = "graph \"b1 %2 e007\" {\n  input \"x\" %0: f32[B, 3]\n  %1, %22 = add %0, %0 : f32[B, 3]\n  e0 = load b12[16*i0 + i1] if 0 <= i0 < 3 : f32\n\n  k7: 1e30 -2.5e10 0b1 b1_2 b1.5 %1234567890123 block.3.k1\n}";
        let mut p = Packer::default();
        let packed = p.text(text);
        assert_eq!(unpack(&p, &packed), text);
        assert!(!packed.contains('"'));
    }

    #[test]
    fn lines_that_differ_by_numbers_have_one_form() {
        let mut p = Packer::default();
        let text: String =
            (0..500).map(|i| format!("  %{} = add %{}, %{i} : f32[8]\n", i + 2, i + 1)).collect();
        let packed = p.text(&text);
        assert_eq!(p.forms.len(), 1);
        assert!(packed.len() < text.len() / 2);
        assert_eq!(unpack(&p, &packed), text.trim_end_matches('\n'));
    }

    #[test]
    fn runs_count() {
        assert_eq!(runs(&[0, 0, 0, 40, 2]), "0*3,14,2");
        assert_eq!(runs(&[]), "");
    }
}
