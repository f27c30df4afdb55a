//! The namespace and name of an object.

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
