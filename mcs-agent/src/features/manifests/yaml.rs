//! Splits a YAML stream into its documents, and parses each, or JSON, with kubectl's limits and types.

use serde_json::Value as Json;
use serde_saphyr::{Error, MessageFormatter, NonFiniteFloatPolicy, Options, UserMessageFormatter};

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

/// The most values of a document: enough for one List with 65,536 endpoints.
const MAX_NODES: usize = 4_000_000;
/// The most events that aliases may add to a document. Without a limit a few lines expand to
/// gigabytes.
const MAX_ALIASED_EVENTS: usize = 100_000;

/// The reason why a text is no YAML document, and its line, from 1.
pub(super) type SyntaxError = (u64, String);

/// Parses one document; an empty one is `None`. Scalars get the types that kubectl gives them. It recurses for up to 64
/// levels of nesting.
pub(super) fn parse(text: &str) -> Result<Option<Json>, SyntaxError> {
    serde_saphyr::from_str_with_options(text, options()).map_err(|error: Error| {
        let line = error.location().map_or(1, |location| location.line());
        (line, UserMessageFormatter.format_message(&error).into_owned())
    })
}

fn options() -> Options {
    serde_saphyr::options! {
        with_snippet: false,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        budget: serde_saphyr::budget! {
            max_nodes: MAX_NODES,
            max_events: 4 * MAX_NODES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_ALIASED_EVENTS,
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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

    fn alias_bomb() -> String {
        let level = |level: u32| {
            let aliases = vec![format!("*a{level}"); 9].join(",");
            format!("a{0}: &a{0} [{aliases}]", level + 1)
        };
        let levels: Vec<_> = (0..12).map(level).collect();
        format!("a0: &a0 [x,x,x,x,x,x,x,x,x]\n{}\n", levels.join("\n"))
    }

    fn parsed(text: &str) -> Json {
        parse(text).unwrap().unwrap_or_default()
    }

    #[test]
    fn scalars_have_the_types_that_kubectl_gives_them() {
        let document = parsed(
            "s: x\nq: '80'\ni: 80\nn: -5\nf: 2.5\nb: yes\nu: ~\nt: 2026-01-01T00:00:00Z\nm: .nan\n\
             l: [1, {k: v}]\nw: 123456789012345678901234567890\n1: one\n",
        );
        assert_eq!(
            document,
            json!({
                "s": "x", "q": "80", "i": 80, "n": -5, "f": 2.5, "b": true, "u": null,
                "t": "2026-01-01T00:00:00Z", "m": ".nan", "l": [1, {"k": "v"}],
                "w": 123_456_789_012_345_678_901_234_567_890_f64, "1": "one",
            })
        );
    }

    #[test]
    fn what_parses() {
        for (text, expected) in [
            ("", json!(null)),
            ("---\n# nothing\n", json!(null)),
            ("--- # comment\n", json!(null)),
            ("[a]", json!(["a"])),
            ("items: a\n", json!({"items": "a"})),
            ("items: [a, ~]\nb: 1\n", json!({"items": ["a", null], "b": 1})),
            ("%YAML 1.2\n---\na: 1\n", json!({"a": 1})),
            ("---\r\na: 1\r\nb:\r\n- 2\r\n", json!({"a": 1, "b": [2]})),
            ("a: 1\n...\n# end\n", json!({"a": 1})),
            ("{\n\t\"a\": [\n\t\t\"\\u00e9\\/\"\n\t]\n}\n", json!({"a": ["é/"]})),
            ("x: &x {a: 1}\ny:\n  <<: *x\n  b: 2\n", json!({"x": {"a": 1}, "y": {"a": 1, "b": 2}})),
            ("a: |\n  x\n  ---\n", json!({"a": "x\n---\n"})),
        ] {
            assert_eq!(parsed(text), expected, "{text:?}");
        }
    }

    #[test]
    fn what_does_not_parse_names_its_line() {
        for (text, line) in [
            ("a: 1\nb: [\n", 2),
            ("a:\n\tb: 1\n", 2),
            ("a: 1\na: 2\n", 2),
            ("a: *unknown\n", 1),
            ("a: &a\n  b: *a\n", 2),
            ("a: 1\n...\nb: 2\n", 3),
            ("{}\n{}\n", 2),
            ("a: b: c\n", 1),
            (&format!("# 1\n{}", alias_bomb()), 7),
            (&format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), "*a,".repeat(70)), 2),
        ] {
            let head: String = text.chars().take(20).collect();
            let (at, error) = parse(text).expect_err(&head);
            assert_eq!(at, line, "{head:?}: {error}");
            assert!(!error.contains("line"), "{head:?}: {error}");
        }
    }
}
