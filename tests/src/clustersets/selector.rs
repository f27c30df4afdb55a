//! Which objects a request is about.

use std::collections::BTreeMap;

use serde_json::Value;

/// The objects of a namespace, of labels and of fields.
#[derive(Debug)]
pub(super) struct Selector {
    /// Empty: all.
    namespace: String,
    labels: Vec<Term>,
    fields: Vec<Term>,
}

#[derive(Debug)]
enum Term {
    Has(String),
    Lacks(String),
    Is(String, String),
    IsNot(String, String),
}

impl Selector {
    /// As the query of a request says.
    pub(super) fn of(query: &BTreeMap<String, String>, namespace: &str) -> Self {
        let terms = |name: &str| {
            let terms = query.get(name).map_or("", String::as_str).split(',');
            terms.filter(|term| !term.is_empty()).map(Term::parse).collect()
        };
        let (labels, fields) = (terms("labelSelector"), terms("fieldSelector"));
        Self { namespace: namespace.to_owned(), labels, fields }
    }

    pub(super) fn has(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        let field = |path: &str| path.split('.').try_fold(object, |value, name| value.get(name));
        (self.namespace.is_empty() || metadata["namespace"] == *self.namespace)
            && self.labels.iter().all(|term| term.fits(|key| metadata["labels"].get(key)))
            && self.fields.iter().all(|term| term.fits(field))
    }
}

impl Term {
    fn parse(text: &str) -> Self {
        if let Some(key) = text.strip_prefix('!') {
            return Self::Lacks(key.to_owned());
        }
        if let Some((key, value)) = text.split_once("!=") {
            return Self::IsNot(key.to_owned(), value.to_owned());
        }
        match text.split_once('=') {
            Some((key, value)) => {
                Self::Is(key.to_owned(), value.trim_start_matches('=').to_owned())
            }
            None => Self::Has(text.to_owned()),
        }
    }

    fn fits<'a>(&self, of: impl Fn(&str) -> Option<&'a Value>) -> bool {
        match self {
            Self::Has(key) => of(key).is_some(),
            Self::Lacks(key) => of(key).is_none(),
            Self::Is(key, value) => of(key).is_some_and(|found| found == value),
            Self::IsNot(key, value) => of(key).is_none_or(|found| found != value),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_and_fields_select() {
        let object =
            json!({"metadata": {"namespace": "shop", "name": "web", "labels": {"a": "1"}}});
        let has = |labels: &str, fields: &str, namespace: &str| {
            let query = [("labelSelector", labels), ("fieldSelector", fields)];
            let query = query.map(|(name, value)| (name.to_owned(), value.to_owned()));
            Selector::of(&query.into(), namespace).has(&object)
        };
        assert!(has("", "", "") && has("a,!b,a=1,b!=1", "metadata.name=web", "shop"));
        for (labels, fields, namespace) in [
            ("b", "", ""),
            ("!a", "", ""),
            ("a=2", "", ""),
            ("a!=1", "", ""),
            ("", "metadata.name=api", ""),
            ("", "", "other"),
        ] {
            assert!(!has(labels, fields, namespace), "{labels} {fields} {namespace}");
        }
    }
}
