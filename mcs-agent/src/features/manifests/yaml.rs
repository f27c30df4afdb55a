//! Parses a YAML or JSON document with kubectl's limits and types.

use serde_json::Value as Json;
use serde_saphyr::{Error, MessageFormatter, NonFiniteFloatPolicy, Options, UserMessageFormatter};

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
