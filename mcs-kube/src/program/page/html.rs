//! Builds HTML. Markup comes only from the source; every other text is escaped.

use std::fmt::Write as _;

use crate::one_line_of;

/// The bytes of one text.
const MOST: usize = 800;

/// A document.
#[derive(Debug, Default)]
pub(super) struct Html(String);

impl Html {
    /// Adds markup. The lifetime excludes names of objects.
    pub(super) fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Adds a foreign text in one line, escaped for content and attribute values.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        for c in one_line_of(text, MOST).chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                c => self.0.push(c),
            }
        }
        self
    }

    /// Adds a number with one decimal place.
    pub(super) fn number(&mut self, number: f64) -> &mut Self {
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{number:.1}");
        self
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_markup() {
        let mut html = Html::default();
        html.raw("<td title=\"")
            .text("a\" onclick='x'")
            .raw("\">")
            .text("<script>&\u{1b}[2J\n\u{202e}");
        let expected =
            "<td title=\"a&quot; onclick=&#39;x&#39;\">&lt;script&gt;&amp;\\u{1b}[2J \\u{202e}";
        assert_eq!(html.finish(), expected);
        let mut html = Html::default();
        html.text(&"<".repeat(1 << 20));
        assert!(html.finish().len() < 4 * MOST + 100);
    }
}
