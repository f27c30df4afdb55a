//! The labels and annotations that an API server accepts. One bad label would block the write of the whole import, and the
//! publication of the export.

use std::{collections::BTreeMap, sync::Arc};

use super::well_known;

/// How many labels, and how many annotations, an ExportedService has at most (its definition in `crds`).
const MOST: usize = 256;
/// The bytes of all annotations, and of all labels. Every importing cluster stores them, and every agent of it reads them with
/// each change.
const MOST_BYTES: usize = 8 * 1024;

/// Labels or annotations.
pub(super) type Pairs = BTreeMap<Arc<str>, Arc<str>>;

/// The labels that an import can have.
pub(super) fn usable_labels(labels: &Pairs) -> Pairs {
    first(usable(labels, is_valid_label))
}

/// The annotations that an import can have.
pub(super) fn usable_annotations(annotations: &Pairs) -> Pairs {
    first(usable(annotations, |key, _| is_valid_key(key)))
}

/// The first ones, if there are too many.
fn first(pairs: impl Iterator<Item = (Arc<str>, Arc<str>)>) -> Pairs {
    let mut bytes = 0;
    let fits = |(key, value): &(Arc<str>, Arc<str>)| {
        let size = key.len() + value.len();
        let fits = bytes + size <= MOST_BYTES;
        bytes += if fits { size } else { 0 };
        fits
    };
    pairs.filter(fits).take(MOST).collect()
}

/// Exported labels and annotations must not claim that another controller owns the import, or change how implementations
/// read it. The API server checks labels of objects, but not labels in `spec` of a ServiceExport.
fn usable(
    pairs: &Pairs,
    is_valid: impl Fn(&str, &str) -> bool,
) -> impl Iterator<Item = (Arc<str>, Arc<str>)> {
    let is_usable =
        move |key: &str, value: &str| !well_known::is_reserved(key) && is_valid(key, value);
    let pairs = pairs.iter().filter(move |(key, value)| is_usable(key, value));
    pairs.map(|(key, value)| (key.clone(), value.clone()))
}

/// Whether an object can have this name.
pub fn is_object_name(name: &str) -> bool {
    is_domain(name)
}

/// Whether the API server takes the label.
pub(super) fn is_valid_label(key: &str, value: &str) -> bool {
    is_valid_key(key) && (value.is_empty() || is_name(value))
}

/// Whether the API server takes a label or an annotation with this key.
pub(super) fn is_valid_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((domain, name)) => is_domain(domain) && is_name(name),
        None => is_name(key),
    }
}

fn is_name(name: &str) -> bool {
    let is_inner = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
    name.len() <= 63 && name.bytes().all(is_inner) && has_ends(name)
}

/// A subdomain of DNS (RFC 1123).
fn is_domain(domain: &str) -> bool {
    let is_inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let is_part = |part: &str| part.bytes().all(is_inner) && has_ends(part);
    domain.len() <= 253 && domain.split('.').all(is_part)
}

/// Whether it begins and ends with a letter or a digit.
fn has_ends(text: &str) -> bool {
    let is_end = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    is_end(text.bytes().next()) && is_end(text.bytes().last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_and_labels_have_a_total() {
        let large: Arc<str> = "x".repeat(5 * 1024).into();
        let pairs = [("a", &*large), ("b", &*large), ("c", "small"), ("a b", "invalid")];
        let pairs = pairs.map(|(key, value)| (Arc::from(key), Arc::from(value))).into();
        let keys: Vec<_> = usable_annotations(&pairs).into_keys().collect();
        assert_eq!(keys, ["a".into(), "c".into()]);
        let wide = |number: usize| (format!("{number:063}").into(), "x".repeat(63).into());
        let labels: Pairs = (0..256).map(wide).collect();
        assert_eq!(usable_labels(&labels).len(), 8 * 1024 / 126, "as annotations");
        let many: Pairs = (0..300).map(|key| (key.to_string().into(), "v".into())).collect();
        assert_eq!((usable_annotations(&many).len(), usable_labels(&many).len()), (256, 256));
    }

    #[test]
    fn an_import_gets_no_label_by_which_a_tool_would_delete_it() {
        let keys = [
            "app.kubernetes.io/instance",
            "argocd.argoproj.io/tracking-id",
            "applyset.kubernetes.io/part-of",
            "kapp.k14s.io/app",
            "objectset.rio.cattle.io/hash",
        ];
        let pairs: Pairs = keys.map(|key| (key.into(), "mine".into())).into();
        assert!(usable_labels(&pairs).is_empty() && usable_annotations(&pairs).is_empty());
    }

    #[test]
    fn labels_are_those_that_kubernetes_takes() {
        let long = "a".repeat(64);
        for (key, value, is_valid) in [
            ("team", "shop", true),
            ("team", "", true),
            ("example.com/Team_1.x", "a-B_c.9", true),
            ("team", "with space", false),
            ("team", "-a", false),
            ("team", &long, false),
            (&long, "a", false),
            ("", "a", false),
            ("Example.com/team", "a", false),
            ("example..com/team", "a", false),
            ("a/b/c", "a", false),
            ("/team", "a", false),
        ] {
            assert_eq!(is_valid_label(key, value), is_valid, "{key}={value}");
        }
    }
}
