//! Which namespaces can be exported, and imported from a peer.

use serde::{Deserialize, Serialize};

/// Patterns of namespaces. A `*` at the end stands for any rest.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NamespaceRules {
    /// Only these; empty means all.
    #[serde(default)]
    pub allow: Vec<String>,
    /// None of these.
    #[serde(default = "not_by_default")]
    pub deny: Vec<String>,
}

impl Default for NamespaceRules {
    /// All but `default` and `kube-*`: these exist in every cluster with different contents.
    fn default() -> Self {
        Self { allow: vec![], deny: not_by_default() }
    }
}

fn not_by_default() -> Vec<String> {
    vec!["default".to_owned(), "kube-*".to_owned()]
}

impl NamespaceRules {
    /// Whether the rules allow the namespace.
    pub fn allows(&self, namespace: &str) -> bool {
        let is_one_of =
            |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, namespace));
        (self.allow.is_empty() || is_one_of(&self.allow)) && !is_one_of(&self.deny)
    }
}

fn matches(pattern: &str, namespace: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => namespace.starts_with(start),
        None => pattern == namespace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_of_every_cluster_are_not_the_same() {
        let rules = NamespaceRules::default();
        for (namespace, allowed) in [
            ("shop", true),
            ("default", false),
            ("kube-system", false),
            ("default-2", true),
            ("kube", true),
        ] {
            assert_eq!(rules.allows(namespace), allowed, "{namespace}");
        }
    }

    #[test]
    fn deny_is_stronger_than_allow() {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        let rules = NamespaceRules { allow: owned(&["a-*", "b"]), deny: owned(&["a-x"]) };
        for (namespace, allowed) in [("a-1", true), ("b", true), ("b-1", false), ("a-x", false)] {
            assert_eq!(rules.allows(namespace), allowed, "{namespace}");
        }
        let none = NamespaceRules { allow: vec![], deny: owned(&["*"]) };
        assert!(!none.allows("shop"));
    }
}
