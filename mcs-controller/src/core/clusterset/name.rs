//! Names of clusters and services, checked once where they are read.

use std::{fmt, ops::RangeInclusive, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A name that is no DNS label.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "{name:?} is no DNS label: use 1 to 63 lower-case letters, digits and dashes, and no dash at either end"
)]
pub struct NameError {
    name: String,
}

/// The id of a cluster: the value of its ClusterProperty `cluster.clusterset.k8s.io`. It is one DNS label,
/// because CoreDNS understands no other and because it is the value of a label.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClusterId(Arc<str>);

impl ClusterId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ClusterId {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        label(name).map(Self)
    }
}

impl TryFrom<String> for ClusterId {
    type Error = NameError;

    fn try_from(name: String) -> Result<Self, NameError> {
        name.parse()
    }
}

impl From<ClusterId> for String {
    fn from(id: ClusterId) -> Self {
        id.0.as_ref().to_owned()
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Namespace and name of a service, which are the same in every cluster. Displays as `namespace/name`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServiceName {
    namespace: Arc<str>,
    name: Arc<str>,
}

impl FromStr for ServiceName {
    type Err = NameError;

    /// Reads `namespace/name`.
    fn from_str(text: &str) -> Result<Self, NameError> {
        let (namespace, name) = text.split_once('/').unwrap_or_default();
        Self::new(namespace, name)
    }
}

impl ServiceName {
    /// Both parts have to be DNS labels, as they are of every Service.
    pub fn new(namespace: &str, name: &str) -> Result<Self, NameError> {
        Ok(Self { namespace: label(namespace)?, name: label(name)? })
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A range with the names of all services of a namespace.
    pub fn all_of(namespace: &Arc<str>) -> RangeInclusive<Self> {
        // A label begins with a letter or a digit.
        let name = |name: &str| Self { namespace: Arc::clone(namespace), name: name.into() };
        name("")..=name("~")
    }

    /// The namespace, shared with the names of other services.
    pub const fn shared_namespace(&self) -> &Arc<str> {
        &self.namespace
    }

    /// The name of the Service, its ServiceExport and its ServiceImport.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

fn label(name: &str) -> Result<Arc<str>, NameError> {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = (1..=63).contains(&name.len())
        && name.bytes().all(is_inner)
        && !name.starts_with('-')
        && !name.ends_with('-');
    if is_label { Ok(name.into()) } else { Err(NameError { name: name.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_id_is_one_dns_label() {
        for name in ["c1", "a", "0-a", &"x".repeat(63)] {
            assert_eq!(name.parse::<ClusterId>().map(|id| id.to_string()), Ok(name.to_owned()));
        }
        for name in ["", "A", "a.b", "-a", "a-", "a_b", "ä", "a/b", &"x".repeat(64)] {
            assert!(name.parse::<ClusterId>().is_err(), "{name}");
        }
    }
}
