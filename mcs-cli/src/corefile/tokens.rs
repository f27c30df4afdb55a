//! Splits the text of a Corefile into words as CoreDNS does, with the place of each word and comment.

use std::ops::Range;

use super::CorefileError;

/// A word, or a brace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) span: Range<usize>,
    /// Whether no other word is before it on its line.
    pub(super) starts_line: bool,
}

/// The words, and the places of comments without the ends of their lines.
pub(super) struct Tokens {
    pub(super) words: Vec<Token>,
    pub(super) comments: Vec<Range<usize>>,
}

impl Tokens {
    /// # Errors
    /// A quotation has no end.
    pub(super) fn of(text: &str) -> Result<Self, CorefileError> {
        let mut all = Self { words: Vec::new(), comments: Vec::new() };
        // CoreDNS ignores a byte order mark.
        let mut at = text.len() - text.trim_start_matches('\u{feff}').len();
        let mut starts_line = true;
        while let Some(first) = text[at..].chars().next() {
            let rest = &text[at..];
            let length = match first {
                _ if first.is_whitespace() => {
                    starts_line |= first == '\n';
                    first.len_utf8()
                }
                '#' => {
                    let length = rest.find('\n').unwrap_or(rest.len());
                    all.comments.push(at..at + length);
                    length
                }
                _ => {
                    let (word, length) = if first == '"' {
                        quotation(rest).ok_or(CorefileError::Quotation(line_of(text, at)))?
                    } else {
                        // A comment begins within a word too.
                        let is_end = |letter: char| letter.is_whitespace() || letter == '#';
                        let length = rest.find(is_end).unwrap_or(rest.len());
                        (rest[..length].to_owned(), length)
                    };
                    all.words.push(Token { text: word, span: at..at + length, starts_line });
                    starts_line = false;
                    length
                }
            };
            at += length;
        }
        Ok(all)
    }
}

/// The words in quotation marks at the start of a text, and their length with the marks.
fn quotation(text: &str) -> Option<(String, usize)> {
    let mut word = String::new();
    let mut is_escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            '"' if !is_escaped => return Some((word, at + 1)),
            '\\' if !is_escaped => is_escaped = true,
            _ => {
                if is_escaped && letter != '"' {
                    word.push('\\');
                }
                word.push(letter);
                is_escaped = false;
            }
        }
    }
    None
}

/// The number of the line of a place.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    1 + text[..at].matches('\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_that_coredns_reads() {
        let text = "\u{feff}a:53 b{ {\r\n  log \"x \\\" {\" c#d }\n}# e";
        let all = Tokens::of(text).unwrap();
        let words: Vec<_> =
            all.words.iter().map(|word| (word.text.as_str(), word.starts_line)).collect();
        let expected = [
            ("a:53", true),
            ("b{", false),
            ("{", false),
            ("log", true),
            ("x \" {", false),
            ("c", false),
            ("}", true),
        ];
        assert_eq!(words, expected);
        let comments: Vec<_> = all.comments.into_iter().map(|place| &text[place]).collect();
        assert_eq!(comments, ["#d }", "# e"]);
        assert!(Tokens::of(". {\n log \"x\n}\n").is_err());
    }
}
