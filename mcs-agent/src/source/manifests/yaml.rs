//! Parses a YAML or JSON document with kubectl's limits and types, and finds lines in it.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value as Json;
use serde_path_to_error::{Path, Segment};
use serde_saphyr::{
    Error, MessageFormatter, NonFiniteFloatPolicy, Options, Spanned, UserMessageFormatter,
};

/// The most values of a document: enough for one List with 65,536 endpoints.
const MAX_NODES: usize = 4_000_000;
/// The most events that aliases may add to a document. Without a limit a few lines expand to
/// gigabytes.
const MAX_ALIASED_EVENTS: usize = 100_000;

/// A document that is not empty.
#[derive(Debug)]
pub(super) struct YamlDocument<'a> {
    text: &'a str,
    pub(super) value: Json,
    line: u64,
    /// The line of each item, if the document is a list.
    item_lines: Vec<u64>,
}

/// The reason why a text is no YAML document, and its line, from 1.
pub(super) type SyntaxError = (u64, String);

/// A document whose `items`, if any, are a sequence.
#[derive(Deserialize)]
struct Fields {
    items: Option<Vec<Spanned<Json>>>,
    #[serde(flatten)]
    rest: Json,
}

impl<'a> YamlDocument<'a> {
    /// Parses one document; an empty one is `None`. Scalars get the types that kubectl gives them. It recurses for up to 64
    /// levels of nesting.
    pub(super) fn parse(text: &'a str) -> Result<Option<Self>, SyntaxError> {
        let Spanned { value, referenced, .. } = from_str(text).or_else(|_| {
            let Spanned { value, referenced, defined } = from_str(text)?;
            let fields = Some(Fields { items: None, rest: value });
            Ok(Spanned::new(fields, referenced, defined))
        })?;
        let Some(Fields { items, rest: mut value }) = value else { return Ok(None) };
        let (mut item_lines, line) = (Vec::new(), referenced.line());
        if let (Some(items), Json::Object(fields)) = (items, &mut value) {
            item_lines.extend(items.iter().map(|item| item.referenced.line()));
            fields.insert("items".to_owned(), items.into_iter().map(|item| item.value).collect());
        }
        Ok(Some(Self { text, value, line, item_lines }))
    }

    /// The line of the document, or of the item with these indices, from 1.
    pub(super) fn line(&self, indices: &[usize]) -> u64 {
        let item = indices.first().and_then(|index| self.item_lines.get(*index));
        item.copied().unwrap_or(self.line)
    }

    /// The line of the value at `path` in that item, or of the nearest one above it.
    pub(super) fn line_at(&self, indices: &[usize], path: &Path) -> u64 {
        let item = |index: &usize| {
            [Segment::Map { key: "items".to_owned() }, Segment::Seq { index: *index }]
        };
        let path: Vec<_> = indices.iter().flat_map(item).chain(path.iter().cloned()).collect();
        let failed = serde_saphyr::with_deserializer_from_str_with_options(
            self.text,
            options(),
            |document| FailAt(&path).deserialize(document),
        );
        let location = failed.err().and_then(|error| error.location());
        location.map_or_else(|| self.line(indices), |location| location.line())
    }
}

fn from_str<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, SyntaxError> {
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

/// Fails at the value with this path: the parser knows the line of each error.
struct FailAt<'a>(&'a [Segment]);

impl<'de> DeserializeSeed<'de> for FailAt<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FailAt<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        if let Some((Segment::Seq { index }, rest)) = self.0.split_first() {
            for _ in 0..*index {
                items.next_element::<IgnoredAny>()?;
            }
            items.next_element_seed(FailAt(rest))?;
        }
        Err(de::Error::custom("here"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        if let Some((Segment::Map { key }, rest)) = self.0.split_first() {
            while let Some(name) = fields.next_key::<String>()? {
                if name == *key {
                    fields.next_value_seed(FailAt(rest))?;
                } else {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        Err(de::Error::custom("here"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

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

    fn parse(text: &str) -> Json {
        YamlDocument::parse(text).unwrap().map_or(Json::Null, |document| document.value)
    }

    #[test]
    fn scalars_have_the_types_that_kubectl_gives_them() {
        let document = parse(
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
            assert_eq!(parse(text), expected, "{text:?}");
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
            let (at, error) = YamlDocument::parse(text).expect_err(&head);
            assert_eq!(at, line, "{head:?}: {error}");
            assert!(!error.contains("line"), "{head:?}: {error}");
        }
    }

    #[derive(Debug, Deserialize)]
    struct Root {
        #[serde(rename = "spec")]
        _spec: Spec,
    }

    #[derive(Debug, Deserialize)]
    struct Spec {
        #[serde(rename = "ports")]
        _ports: Vec<BTreeMap<String, u16>>,
    }

    #[test]
    fn paths_lead_to_lines() {
        let parse = |text| YamlDocument::parse(text).unwrap().unwrap();
        let error_of =
            |value: Json| serde_path_to_error::deserialize::<_, Root>(value).unwrap_err();
        let document = parse("a: 1\nspec:\n  ports:\n  - port: 80\n  - port: 1\n    name: no\n");
        let error = error_of(document.value.clone());
        let path = error.path();
        assert_eq!(path.to_string(), "spec.ports[1].name");
        let line = |text| parse(text).line_at(&[], path);
        assert_eq!(document.line_at(&[], path), 6);
        assert_eq!(line("spec:\n  ports:\n  - a: 1\n  -\n    b: 2\n"), 5);
        assert_eq!(line("\nspec:\n  other: 1\n"), 3);
        assert_eq!(line("\n7\n"), 2);

        let list = parse(
            "kind: List\nitems:\n- spec: {}\n- spec:\n    ports:\n    - {}\n    - {\n      name: no}\n",
        );
        assert_eq!((list.line(&[0]), list.line(&[1])), (3, 4));
        assert_eq!(list.line_at(&[1], path), 8);
        let missing = error_of(json!({"a": 1}));
        assert_eq!((list.line_at(&[1], missing.path()), list.line_at(&[], missing.path())), (4, 1));
    }
}
