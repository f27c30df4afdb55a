//! The namespace and name of an object.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// Namespace and name. Displays as `namespace/name`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
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

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
