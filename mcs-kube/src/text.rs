//! Foreign texts in lines for people.

/// The most bytes of a foreign text in a status or a log line.
const MOST: usize = 1024;

/// An error and its causes in one line. Many errors end with the text of their cause, which is not repeated.
pub fn told(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.ends_with(&cause) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause);
    }
    one_line(&text)
}

/// A foreign text in one line of about a KiB at most.
///
/// A proxy can answer with a long page, and kube passes the whole page on as an error message.
pub fn one_line(text: &str) -> String {
    one_line_of(text, MOST)
}

/// A foreign text in one line, cut after `most` bytes. Control characters and changes of the writing direction are escaped:
/// the author must neither fill a log nor forge its lines.
pub fn one_line_of(text: &str, most: usize) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        for c in word.chars() {
            if line.len() >= most {
                return format!("{line}... ({} bytes)", text.len());
            }
            if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
                line.extend(c.escape_default());
            } else {
                line.push(c);
            }
        }
    }
    line
}

/// A foreign text in lines of at most this many columns, each with a line break. The first line begins at this column, the
/// others two columns further in.
pub fn hanging(indent: usize, text: &str, width: usize) -> String {
    let (mut lines, mut lead, mut column) = (String::new(), indent, 0);
    for word in one_line(text).split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            lines.push('\n');
            (lead, column) = (indent + 2, 0);
        }
        lines.extend(std::iter::repeat_n(' ', lead));
        lines.push_str(word);
        column += lead + length;
        lead = 1;
    }
    lines.push('\n');
    lines
}

/// Bytes of a message in a report and in the log. Values in it come from objects and can be of any length.
const MESSAGE: usize = 500;

/// A message of at most 500 bytes, and an ellipsis if it was longer.
pub fn shorten(message: &str) -> String {
    let end = message.floor_char_boundary(MESSAGE);
    let (kept, cut) = message.split_at(end);
    if cut.is_empty() { kept.to_owned() } else { format!("{kept}…") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_becomes_a_line() {
        let page = "<html>\n  <body>Access denied</body>\r\n</html>\n";
        assert_eq!(one_line(page), "<html> <body>Access denied</body> </html>");
        for long in ["<p>blocked</p>\n".repeat(70_000), "ä".repeat(500_000)] {
            let line = one_line(&long);
            assert!(line.len() <= MOST + 20, "{}", line.len());
            assert!(line.ends_with(&format!("... ({} bytes)", long.len())), "{line}");
        }
    }

    #[test]
    fn a_long_line_continues_further_in() {
        let lines = hanging(2, "one two three four five six", 20);
        assert_eq!(lines, "  one two three four\n    five six\n");
        assert_eq!(hanging(0, "a\u{1b}[31m\nb", 20), "a\\u{1b}[31m b\n");
    }

    #[test]
    fn a_cause_is_told_once() {
        let error = anyhow::anyhow!("refused").context("connect: refused").context("cluster east");
        assert_eq!(told(&error), "cluster east: connect: refused");
    }

    #[test]
    fn a_text_forges_no_line() {
        assert_eq!(one_line_of("a\nb\u{1b}[31m ä\u{202e}", 100), r"a b\u{1b}[31m ä\u{202e}");
        assert_eq!(one_line_of("abc", 3), "abc");
        assert_eq!(one_line_of("abcd", 3), "abc... (4 bytes)");
    }
}
