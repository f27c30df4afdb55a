//! Texts of others as part of a line for people.

/// The bytes of a foreign text in a status, or in a line of a log.
const MOST: usize = 1024;

/// An error and its causes in one line. Many an error ends with the text of its cause, which is told once.
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

/// A text of others in one line of at most about a KiB.
///
/// A proxy answers with a page of any length, and kube hands the whole page over as the message of an error.
pub fn one_line(text: &str) -> String {
    one_line_of(text, MOST)
}

/// A text of others in one line, cut after `most` bytes. Control characters are escaped, and so is what changes the
/// direction of writing: whoever wrote the text must neither fill a log nor forge its lines.
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
