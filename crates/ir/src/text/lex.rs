//! Tokens of the text form. The lexer hands out one token at a time and never looks back.

use crate::GraphError;

/// A token, borrowed from the text.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Token<'t> {
    /// `matmul`, `f32`, `B`
    Word(&'t str),
    /// `-0.5e-3`, `0x3f80`, `-inf`
    Number(&'t str),
    /// `"fc1.weight"`, without quotes and escapes
    Quoted(String),
    /// `%12`, without the percent sign
    Value(&'t str),
    /// `{`, `<=` …
    Punct(&'static str),
    /// The end of the text.
    End,
}

impl std::fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Token::Word(w) | Token::Number(w) => write!(f, "'{}'", brief(w)),
            Token::Quoted(w) => write!(f, "{:?}", brief(w)),
            Token::Value(w) => write!(f, "'%{}'", brief(w)),
            Token::Punct(p) => write!(f, "'{p}'"),
            Token::End => f.write_str("the end of the text"),
        }
    }
}

/// The head of a long text.
pub(super) fn brief(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_string(),
    }
}

const PUNCTUATION: [&str; 11] = ["<=", "{", "}", "[", "]", "(", ")", ",", ":", "=", "*"];

/// Whether a word may stand without quotes.
pub(super) fn is_plain(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && word.chars().all(in_word)
}

fn in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '.'
}

/// The text in double quotes, with escapes.
pub(super) fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{{{:x}}}", c as u32)),
            c => out.push(c),
        }
    }
    out + "\""
}

pub(super) struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Lexer<'t> {
        Lexer { text, at: 0 }
    }

    /// An error at a byte offset.
    pub(super) fn error(&self, at: usize, message: impl Into<String>) -> GraphError {
        let before = &self.text[..at.min(self.text.len())];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        GraphError::Parse { line, column, message: message.into() }
    }

    /// How many lines end between two byte offsets.
    pub(super) fn lines_between(&self, from: usize, to: usize) -> u32 {
        let text = self.text.as_bytes();
        let (from, to) = (from.min(text.len()), to.min(text.len()));
        text.get(from..to).map_or(0, |between| between.iter().filter(|b| **b == b'\n').count() as u32)
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// Takes characters while `keep` holds.
    fn run(&mut self, keep: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let end = rest.find(|c| !keep(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn skip_blank(&mut self) {
        loop {
            self.run(char::is_whitespace);
            if !(self.rest().starts_with("//") || self.rest().starts_with(';')) {
                return;
            }
            self.run(|c| c != '\n');
        }
    }

    /// The next token and its byte offset.
    pub(super) fn next(&mut self) -> Result<(Token<'t>, usize), GraphError> {
        self.skip_blank();
        let at = self.at;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok((Token::End, at)) };
        if let Some(p) = PUNCTUATION.iter().find(|p| rest.starts_with(**p)) {
            self.at += p.len();
            return Ok((Token::Punct(p), at));
        }
        let token = match first {
            '"' => Token::Quoted(self.quoted()?),
            '%' => {
                self.at += 1;
                match self.run(in_word) {
                    "" => return Err(self.error(at, "expected a value's name after '%', such as %3")),
                    name => Token::Value(name),
                }
            }
            '0'..='9' | '-' => Token::Number(self.number()),
            c if c.is_ascii_alphabetic() || c == '_' => Token::Word(self.run(in_word)),
            c => {
                return Err(
                    self.error(at, format!("unexpected character {c:?}; names with it need double quotes"))
                );
            }
        };
        Ok((token, at))
    }

    fn number(&mut self) -> &'t str {
        let rest = self.rest();
        let hex = rest.starts_with("0x");
        let mut previous = ' ';
        let end = rest.char_indices().position(|(i, c)| {
            let sign = (c == '-' || c == '+') && (i == 0 || !hex && matches!(previous, 'e' | 'E'));
            previous = c;
            !(sign || in_word(c))
        });
        // All that was kept is ASCII, so that the position counts bytes too.
        let end = end.unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn quoted(&mut self) -> Result<String, GraphError> {
        let start = self.at;
        let mut out = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at = start + i + 1;
                    return Ok(out);
                }
                '\n' => break,
                '\\' => {
                    let escape = chars.next().map(|(_, c)| c);
                    let code = match escape {
                        Some('u') => {
                            let digits: String = chars
                                .by_ref()
                                .map(|(_, c)| c)
                                .skip(1)
                                .take_while(|c| *c != '}')
                                .take(8)
                                .collect();
                            u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32)
                        }
                        Some(c @ ('"' | '\\')) => Some(c),
                        Some('n') => Some('\n'),
                        Some('t') => Some('\t'),
                        _ => None,
                    };
                    let help = r#"unknown escape; use \", \\, \n, \t or \u{…} with a code point"#;
                    out.push(code.ok_or_else(|| self.error(start + i, help))?);
                }
                c => out.push(c),
            }
        }
        Err(self.error(start, "the name has no closing quote on its line"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<Vec<Token<'_>>, GraphError> {
        let mut lexer = Lexer::new(text);
        let mut tokens = vec![];
        loop {
            match lexer.next()?.0 {
                Token::End => return Ok(tokens),
                t => tokens.push(t),
            }
        }
    }

    #[test]
    fn tokens() {
        let got = all("%a = add %1 // x\n<= -1e-5 0x0f -inf \"q \\\"\\u{7}\" ; end").unwrap();
        let want = [
            Token::Value("a"),
            Token::Punct("="),
            Token::Word("add"),
            Token::Value("1"),
            Token::Punct("<="),
            Token::Number("-1e-5"),
            Token::Number("0x0f"),
            Token::Number("-inf"),
            Token::Quoted("q \"\u{7}".into()),
        ];
        assert_eq!(got, want);
    }

    #[test]
    fn errors_say_where() {
        let error = all("a\n  é").unwrap_err().to_string();
        assert!(error.starts_with("line 2, column 3:"), "{error}");
        for bad in ["\"open", "\"open\n\"", "%", "\"\\q\"", "\"\\u{110000}\"", "\"\\u"] {
            assert!(all(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn quotes_round_trip() {
        for name in ["", "a b", "\"\\", "line\nbreak", "ünï\u{0}"] {
            assert_eq!(all(&quote(name)).unwrap(), [Token::Quoted(name.into())]);
        }
    }
}
