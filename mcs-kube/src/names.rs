//! The name of an object with its namespace, and the name of an imported service in DNS:
//! `NAME.NAMESPACE.svc.clusterset.local`.

use std::{cmp::Ordering, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// Namespace and name. Displays as `namespace/name`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ObjectKey {
    /// Empty for an object of the whole cluster.
    pub namespace: Arc<str>,
    /// Never empty.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// Joins the two parts.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl Ord for ObjectKey {
    /// By namespace, then by name. Most keys share the allocation of their namespace, which then needs no comparison.
    fn cmp(&self, other: &Self) -> Ordering {
        let is_shared = Arc::ptr_eq(&self.namespace, &other.namespace);
        let namespaces = || self.namespace.cmp(&other.namespace);
        let by_namespace = if is_shared { Ordering::Equal } else { namespaces() };
        by_namespace.then_with(|| self.name.cmp(&other.name))
    }
}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The zone of the clusterset.
pub const ZONE: &str = "clusterset.local";
/// The end of each name of a service.
const SUFFIX: &str = ".svc.clusterset.local";

/// The name in DNS.
#[must_use]
pub fn of(namespace: &str, name: &str) -> String {
    format!("{name}.{namespace}{SUFFIX}")
}

/// `NAME.NAMESPACE` of a name in DNS, with or without the last dot. `None` for other text.
#[must_use]
pub fn stem(text: &str) -> Option<&str> {
    text.trim_end_matches('.').strip_suffix(SUFFIX)
}

/// The namespace, if there is one, the name and the port of `NAME`, `NAMESPACE/NAME` or a name in DNS, with or without `:PORT`.
#[must_use]
pub fn parse(text: &str) -> Option<(Option<&str>, &str, Option<u16>)> {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) => (name, Some(port.parse().ok().filter(|port| *port != 0)?)),
        None => (text, None),
    };
    let (namespace, name) = match (stem(name), name.split_once('/')) {
        (Some(dns), _) => {
            let (name, namespace) = dns.split_once('.').filter(|(_, of)| !of.contains('.'))?;
            (Some(namespace), name)
        }
        (None, Some((namespace, name))) => (Some(namespace), name),
        (None, None) => (None, name),
    };
    let mut names = namespace.into_iter().chain([name]);
    names
        .all(|name| !name.is_empty() && !name.contains(['/', ':']))
        .then_some((namespace, name, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_of_the_zone() {
        let name = of("shop", "web");
        assert_eq!(name, format!("web.shop.svc.{ZONE}"));
        assert_eq!(stem(&format!("{name}.")), Some("web.shop"));
        assert_eq!(stem("shop/web"), None);
    }

    #[test]
    fn a_service_is_named_in_each_way() {
        let shop = Some("shop");
        assert_eq!(parse("web"), Some((None, "web", None)));
        assert_eq!(parse("shop/web:80"), Some((shop, "web", Some(80))));
        assert_eq!(parse("web.shop.svc.clusterset.local:80"), Some((shop, "web", Some(80))));
        for wrong in [
            "",
            "web:0",
            "web:x",
            "a/b/c",
            "/web",
            "web.svc.clusterset.local",
            "a.b.c.svc.clusterset.local",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
