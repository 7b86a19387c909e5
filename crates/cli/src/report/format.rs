//! Numbers as a reader wants them: four figures, units, thousands apart.

/// A measured figure: four significant digits, powers of ten where plain digits would be long.
pub fn figure(x: f64) -> String {
    let size = x.abs();
    match size {
        _ if x.is_nan() => "not a number".into(),
        _ if x.is_infinite() => if x > 0.0 { "∞" } else { "−∞" }.into(),
        _ if x == 0.0 => "0".into(),
        _ if !(1e-3..1e6).contains(&size) => exponent(x),
        _ => format!("{x:.*}", (3 - size.log10().floor() as i32).max(0) as usize),
    }
}

/// `3e-4`, `1.25e-7`: a power of ten with no idle digits.
pub(super) fn exponent(x: f64) -> String {
    let text = format!("{x:.3e}");
    match text.split_once('e') {
        Some((digits, power)) => format!("{}e{power}", digits.trim_end_matches('0').trim_end_matches('.')),
        None => text,
    }
}

/// A rate or count with three digits and a metric suffix: `12.3k`.
pub fn si(x: f64) -> String {
    scaled(x, 1000.0, &["", "k", "M", "G", "T", "P"])
}

/// Bytes in binary units: `1.50 MiB`.
pub fn bytes(n: u64) -> String {
    if n < 1024 {
        return format!("{n} B");
    }
    scaled(n as f64, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"])
}

fn scaled(x: f64, base: f64, suffixes: &[&str]) -> String {
    if !x.is_finite() {
        return figure(x);
    }
    let (mut x, mut i) = (x, 0);
    while x.abs() >= base * 0.9995 && i + 1 < suffixes.len() {
        x /= base;
        i += 1;
    }
    let decimals = match x.abs() {
        size if size >= 99.95 || (i == 0 && x.fract() == 0.0) => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{x:.decimals$}{}", suffixes[i])
}

/// A whole number with its thousands apart: `12,000`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A count with its noun, which takes an `s` unless there is one.
pub(crate) fn counted(n: usize, noun: &str) -> String {
    format!("{} {noun}{}", count(n as u64), if n == 1 { "" } else { "s" })
}

/// Seconds in the two largest units: `2 h 5 min`.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "unknown time".into();
    }
    let whole = seconds.round() as u64;
    match whole {
        _ if seconds == 0.0 => "0 ms".into(),
        _ if seconds < 0.000_999_5 => format!("{:.0} µs", seconds * 1e6),
        _ if seconds < 0.009_95 => format!("{:.2} ms", seconds * 1000.0),
        _ if seconds < 0.9995 => format!("{:.0} ms", seconds * 1000.0),
        _ if seconds < 9.95 && seconds.fract() != 0.0 => format!("{seconds:.1} s"),
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        3600..86_400 => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
        _ => format!("{} d {} h", count(whole / 86_400), whole % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures() {
        let cases = [(1.47, "1.470"), (12.3456, "12.35"), (0.0123456, "0.01235"), (3e-4, "3e-4"), (0.0, "0")];
        for (x, text) in
            cases.into_iter().chain([(1234567.0, "1.235e6"), (98765.4, "98765"), (-2.5, "-2.500")])
        {
            assert_eq!(figure(x), text);
        }
        assert_eq!((figure(f64::NAN).as_str(), figure(f64::NEG_INFINITY).as_str()), ("not a number", "−∞"));
    }

    #[test]
    fn units() {
        assert_eq!(
            (si(12_345.0), si(999_950.0), si(7.0), si(0.5)),
            ("12.3k".into(), "1.00M".into(), "7".into(), "0.50".into())
        );
        assert_eq!((bytes(0), bytes(1023), bytes(1536)), ("0 B".into(), "1023 B".into(), "1.50 KiB".into()));
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!((count(0), count(999), count(1_234_567)), ("0".into(), "999".into(), "1,234,567".into()));
        assert_eq!((counted(1, "step"), counted(1000, "step")), ("1 step".into(), "1,000 steps".into()));
    }

    #[test]
    fn durations() {
        let cases = [
            (0.000_102, "102 µs"),
            (0.002_5, "2.50 ms"),
            (0.25, "250 ms"),
            (3.46, "3.5 s"),
            (45.2, "45 s"),
            (125.0, "2 min 5 s"),
            (7500.0, "2 h 5 min"),
        ];
        for (seconds, text) in cases.into_iter().chain([(200_000.0, "2 d 7 h"), (f64::NAN, "unknown time")]) {
            assert_eq!(duration(seconds), text);
        }
    }
}
