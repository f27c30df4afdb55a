//! Splits a YAML stream into its documents.

/// One document of a YAML stream.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Document<'a> {
    /// Counts from 1.
    pub(super) number: usize,
    /// The line of the stream that `text` begins with, from 1.
    pub(super) first_line: u64,
    /// The text with its `---` marker. The first document includes what precedes the marker.
    pub(super) text: &'a str,
}

/// Splits a stream at its `---` markers, as kubectl does. It needs no parser, since YAML forbids such a
/// line inside any scalar. Text before the first marker is a document if it is more than comments and
/// directives.
pub(super) fn documents(stream: &str) -> Vec<Document<'_>> {
    let mut documents = Vec::new();
    let (mut start, mut first_line, mut is_open, mut offset) = (0, 1, false, 0);
    // A marker after the end closes the last document.
    for (line, number) in stream.split_inclusive('\n').chain(["---"]).zip(1..) {
        if is_marker(line) && is_open {
            let text = &stream[start..offset];
            documents.push(Document { number: documents.len() + 1, first_line, text });
            (start, first_line) = (offset, number);
        }
        is_open |= is_marker(line) || has_content(line);
        offset += line.len();
    }
    documents
}

fn is_marker(line: &str) -> bool {
    line.strip_prefix("---")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

fn has_content(line: &str) -> bool {
    let text = line.trim();
    !(text.is_empty() || text.starts_with('#') || line.starts_with('%'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_split_at_markers() {
        for (stream, expected) in [
            ("", vec![]),
            ("\n# only\n  # comments\n", vec![]),
            ("a: 1\n", vec![(1, "a: 1\n")]),
            ("---\na: 1\n", vec![(1, "---\na: 1\n")]),
            ("# licence\n---\na: 1", vec![(1, "# licence\n---\na: 1")]),
            ("%YAML 1.2\n---\na: 1", vec![(1, "%YAML 1.2\n---\na: 1")]),
            ("a: 1\n---\nb: 2\n", vec![(1, "a: 1\n"), (2, "---\nb: 2\n")]),
            ("---\n---\n---\n", vec![(1, "---\n"), (2, "---\n"), (3, "---\n")]),
            ("a: 1\r\n---\r\nb: 2\r\n", vec![(1, "a: 1\r\n"), (2, "---\r\nb: 2\r\n")]),
            ("a: 1\n--- {b: 2}\n", vec![(1, "a: 1\n"), (2, "--- {b: 2}\n")]),
            ("a: |\n  ---\n----\n--\n", vec![(1, "a: |\n  ---\n----\n--\n")]),
            ("\n\na: 1\n\n---\nb: 2", vec![(1, "\n\na: 1\n\n"), (5, "---\nb: 2")]),
        ] {
            let expected: Vec<_> = expected
                .into_iter()
                .zip(1..)
                .map(|((first_line, text), number)| Document { number, first_line, text })
                .collect();
            assert_eq!(documents(stream), expected, "{stream:?}");
        }
    }
}
