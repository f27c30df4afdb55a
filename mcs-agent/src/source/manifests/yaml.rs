//! A YAML or JSON document with the line of every value, and kubectl's limits and types.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value as Json;
use serde_path_to_error::{Path, Segment};
use serde_saphyr::{MessageFormatter, NonFiniteFloatPolicy, Spanned, UserMessageFormatter};

/// The most values of a document: enough for one List with 65,536 endpoints.
const MAX_NODES: usize = 4_000_000;
/// The most events that aliases may add to a document. Without a limit a few lines expand to
/// gigabytes.
const MAX_ALIASED_EVENTS: usize = 100_000;
/// The stack that [`YamlNode::parse`] needs, in bytes. It recurses for up to 64 levels of nesting, and an
/// unoptimised build uses some 50 KiB for each.
pub(super) const PARSER_STACK: usize = 8 * 1024 * 1024;

/// A YAML or JSON value and its line.
#[derive(Debug)]
pub(super) struct YamlNode {
    line: u64,
    value: YamlValue,
}

#[derive(Debug)]
enum YamlValue {
    Scalar(Json),
    Sequence(Vec<YamlNode>),
    /// A vector, since most mappings are small and a document has many.
    Mapping(Vec<(String, YamlNode)>),
}

/// The reason why a text is no YAML document.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct SyntaxError {
    /// The line in the text, from 1.
    pub(super) line: u64,
    message: String,
}

impl YamlNode {
    /// Parses one document; an empty one is null. Scalars get the types that kubectl gives them.
    /// The caller's thread needs [`PARSER_STACK`].
    pub(super) fn parse(text: &str) -> Result<Self, SyntaxError> {
        let options = serde_saphyr::options! {
            with_snippet: false,
            non_finite_float_policy: NonFiniteFloatPolicy::AsString,
            budget: serde_saphyr::budget! {
                max_nodes: MAX_NODES,
                max_events: 4 * MAX_NODES,
            },
            alias_limits: serde_saphyr::alias_limits! {
                max_total_replayed_events: MAX_ALIASED_EVENTS,
            },
        };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| SyntaxError {
            line: error.location().map_or(1, |location| location.line()),
            message: UserMessageFormatter.format_message(&error).into_owned(),
        })
    }

    /// The line of the value in the text, from 1.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self.value, YamlValue::Scalar(Json::Null))
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        match &self.value {
            YamlValue::Scalar(scalar) => scalar.as_str(),
            YamlValue::Sequence(_) | YamlValue::Mapping(_) => None,
        }
    }

    pub(super) fn items(&self) -> Option<&[Self]> {
        match &self.value {
            YamlValue::Sequence(items) => Some(items),
            YamlValue::Scalar(_) | YamlValue::Mapping(_) => None,
        }
    }

    /// The value of a key; a null counts as absent, as in the Kubernetes API.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        match &self.value {
            YamlValue::Mapping(entries) => entry(entries, key).filter(|node| !node.is_null()),
            YamlValue::Scalar(_) | YamlValue::Sequence(_) => None,
        }
    }

    /// The line of the value at `path`, or of the nearest one above it.
    pub(super) fn line_at(&self, path: &Path) -> u64 {
        let mut node = self;
        for segment in path {
            let child = match (segment, &node.value) {
                (Segment::Seq { index }, YamlValue::Sequence(items)) => items.get(*index),
                (Segment::Map { key }, YamlValue::Mapping(entries)) => entry(entries, key),
                _ => None,
            };
            match child {
                Some(child) => node = child,
                None => break,
            }
        }
        node.line
    }

    /// The value without lines.
    pub(super) fn to_json(&self) -> Json {
        match &self.value {
            YamlValue::Scalar(scalar) => scalar.clone(),
            YamlValue::Sequence(items) => items.iter().map(Self::to_json).collect(),
            YamlValue::Mapping(entries) => {
                entries.iter().map(|(key, node)| (key.clone(), node.to_json())).collect()
            }
        }
    }
}

fn entry<'a>(entries: &'a [(String, YamlNode)], key: &str) -> Option<&'a YamlNode> {
    entries.iter().find(|(name, _)| name == key).map(|(_, node)| node)
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, .. } = Spanned::deserialize(deserializer)?;
        Ok(Self { line: referenced.line(), value })
    }
}

impl<'de> Deserialize<'de> for YamlValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(YamlValueVisitor)
    }
}

struct YamlValueVisitor;

impl<'de> Visitor<'de> for YamlValueVisitor {
    type Value = YamlValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(Json::Null))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(value.into()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(value.into()))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(value.into()))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<YamlValue, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            items.push(item);
        }
        Ok(YamlValue::Sequence(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut mapping: A) -> Result<YamlValue, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = mapping.next_entry()? {
            entries.push(entry);
        }
        Ok(YamlValue::Mapping(entries))
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

    #[test]
    fn scalars_have_the_types_that_kubectl_gives_them() {
        let node = YamlNode::parse(
            "s: x\nq: '80'\ni: 80\nn: -5\nf: 2.5\nb: yes\nu: ~\nt: 2026-01-01T00:00:00Z\nm: .nan\n\
             l: [1, {k: v}]\nw: 123456789012345678901234567890\n1: one\n",
        );
        assert_eq!(
            node.unwrap().to_json(),
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
            ("%YAML 1.2\n---\na: 1\n", json!({"a": 1})),
            ("---\r\na: 1\r\nb:\r\n- 2\r\n", json!({"a": 1, "b": [2]})),
            ("a: 1\n...\n# end\n", json!({"a": 1})),
            ("{\n\t\"a\": [\n\t\t\"\\u00e9\\/\"\n\t]\n}\n", json!({"a": ["é/"]})),
            ("x: &x {a: 1}\ny:\n  <<: *x\n  b: 2\n", json!({"x": {"a": 1}, "y": {"a": 1, "b": 2}})),
            ("a: |\n  x\n  ---\n", json!({"a": "x\n---\n"})),
        ] {
            assert_eq!(YamlNode::parse(text).unwrap().to_json(), expected, "{text:?}");
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
            let error = YamlNode::parse(text).expect_err(&head);
            assert_eq!(error.line, line, "{head:?}: {error}");
            assert!(!error.to_string().contains("line"), "{head:?}: {error}");
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
        let parse = |text: &str| YamlNode::parse(text).unwrap();
        let node = parse("a: 1\nspec:\n  ports:\n  - port: 80\n  - port: 1\n    name: no\n");
        let error = serde_path_to_error::deserialize::<_, Root>(node.to_json()).unwrap_err();
        let path = error.path();
        assert_eq!(path.to_string(), "spec.ports[1].name");
        assert_eq!(node.line_at(path), 6);
        assert_eq!(parse("spec:\n  ports:\n  - a: 1\n  -\n    b: 2\n").line_at(path), 5);
        assert_eq!(parse("\nspec:\n  other: 1\n").line_at(path), 3);
        assert_eq!(parse("\n7\n").line_at(path), 2);
    }
}
