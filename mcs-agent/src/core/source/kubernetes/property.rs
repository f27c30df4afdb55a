//! A ClusterProperty with a value for the agents of the cluster.

use mcs_kube::{PropertyDecoder, ResourceEvent, WatchTarget};

use super::watched_list::{WatchedList, WatchedResource};
use crate::core::model::{SourceProblem, shorten};

/// The value that a ClusterProperty last had that can be used. Without the object it is the default.
pub(super) struct Property<V> {
    name: &'static str,
    list: WatchedList<Option<String>>,
    parse: fn(&str) -> Result<V, String>,
    value: V,
    /// Why the present value cannot be used.
    problem: Option<String>,
}

impl<V: Clone + Default> Property<V> {
    pub(super) fn new(
        name: &'static str,
        target: &WatchTarget,
        parse: fn(&str) -> Result<V, String>,
    ) -> Self {
        let list = WatchedList::new(target).optional();
        Self { name, list, parse, value: V::default(), problem: None }
    }

    /// A value that cannot be used changes nothing.
    pub(super) fn apply(&mut self, event: ResourceEvent<PropertyDecoder>) {
        self.list.keep(event, Some);
        let parse = |value: &Option<String>| (self.parse)(value.as_deref().unwrap_or_default());
        match self.list.values().next().map_or_else(|| Ok(V::default()), parse) {
            Ok(value) => (self.value, self.problem) = (value, None),
            Err(problem) => self.problem = Some(problem),
        }
    }

    pub(super) fn value(&self) -> V {
        self.value.clone()
    }

    pub(super) const fn resource(&self) -> &WatchedResource {
        &self.list.resource
    }

    #[cfg(test)]
    pub(super) const fn resource_mut(&mut self) -> &mut WatchedResource {
        &mut self.list.resource
    }

    pub(super) fn problem(&self) -> Option<SourceProblem> {
        Some(SourceProblem {
            place: format!("ClusterProperty {}", self.name),
            message: format!(
                "spec.value: {}; what the agent last read there still counts",
                shorten(self.problem.as_deref()?)
            ),
        })
    }
}
