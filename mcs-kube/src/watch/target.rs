//! What a watch reads, and how much of it memory has room for.

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc};

use kube::api::{ApiResource, GroupVersionKind};

/// How long a watch lasts, in seconds.
const WATCH_SECONDS: RangeInclusive<u32> = 240..=300;

/// The resource that a watch reads.
#[derive(Clone, Debug)]
pub struct WatchTarget {
    /// The resource in each version that the program can read, the preferred one first.
    pub versions: Vec<ApiResource>,
    /// The namespace of the requests; `None` means all, and objects of the whole cluster.
    pub namespace: Option<String>,
    /// The `labelSelector` of the requests.
    pub labels: Option<String>,
    /// The `fieldSelector` of the requests.
    pub fields: Option<String>,
    /// What the resource is read for, if more than one watch reads it.
    pub purpose: Option<&'static str>,
    /// The consequence if the program lacks the right to read the resource. `None`: the program requires the right.
    pub without: Option<&'static str>,
    /// The memory for a list. Objects beyond it are only counted.
    pub room: Room,
    /// How long a watch lasts, in seconds. It is a range so that programs that started together do not start their watches
    /// again together. An API server checks an account when a watch starts, and not again while it lasts.
    pub seconds: RangeInclusive<u32>,
    /// Whether the watch gets a connection of its own because of many events: an API server spends less on each there.
    pub has_many_events: bool,
}

impl WatchTarget {
    /// All objects of a kind, in these versions of its group.
    pub fn all(group: &str, versions: &[&str], kind: &str, plural: &str) -> Self {
        let version = |version: &&str| {
            let kind = GroupVersionKind::gvk(group, version, kind);
            ApiResource::from_gvk_with_plural(&kind, plural)
        };
        Self {
            versions: versions.iter().map(version).collect(),
            namespace: None,
            labels: None,
            fields: None,
            purpose: None,
            without: None,
            room: Room::Endless,
            seconds: WATCH_SECONDS,
            has_many_events: false,
        }
    }
}

/// How many bytes of memory the objects of a list can take, by [`Decoder::weight`](super::Decoder::weight).
#[derive(Clone, Debug, Default)]
pub enum Room {
    /// No limit.
    #[default]
    Endless,
    /// This many for all objects together.
    Total(usize),
    /// This many for each of these namespaces. Objects of other namespaces are skipped.
    Each(Arc<BTreeMap<String, usize>>),
}

impl Room {
    /// Whether objects of this namespace are read.
    pub(super) fn has(&self, namespace: &str) -> bool {
        match self {
            Self::Endless | Self::Total(_) => true,
            Self::Each(namespaces) => namespaces.contains_key(namespace),
        }
    }
}
