//! Merges the exports of one service (KEP-1645, "Constraints and Conflict Resolution").
//!
//! The result depends only on the exports and on the IP families that the import already has. So clusters with the same
//! exports compute the same import.

mod families;
mod input;
mod ports;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use mcs_kube::reasons::Reason;
use serde_json::Value;

use super::{
    ClusterId, Conflict, Export, IpFamily, ServicePort, ServiceSpec, ServiceType,
    label::{Pairs, usable_annotations, usable_labels},
    well_known,
};
use input::{Input, disagreement};

/// The merged exports of one service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Merged {
    /// The properties of the import.
    pub spec: ServiceSpec,
    /// What each cluster contributes. A cluster without a family of the import contributes nothing.
    pub contributions: BTreeMap<ClusterId, Contribution>,
    /// Everything that the clusters disagree about, sorted by reason.
    pub conflicts: Vec<Conflict>,
}

impl Merged {
    /// The ports by which clients of the ClusterSetIP reach a cluster. Clients of a headless service reach its pods at any.
    pub fn ports_of(&self, cluster: &ClusterId) -> Vec<&ServicePort> {
        let is_headless = self.spec.service_type == ServiceType::Headless;
        let Some(of) = self.contributions.get(cluster).filter(|_| !is_headless) else {
            return vec![];
        };
        self.spec.ports.iter().filter(|port| of.ports.contains(&port.name)).collect()
    }
}

/// What the import takes from one cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contribution {
    /// The names of its ports that clients reach. Its slices lose the others.
    pub ports: BTreeSet<Arc<str>>,
}

/// Merges the exports that reach a cluster. The order of `exports` does not matter. `record`: the present import, if it
/// names an unreadable cluster; it counts as the oldest export. `living`: the families of the present import, which a new
/// export does not remove.
///
/// None if nothing is exported.
pub fn merge<'a>(
    exports: impl IntoIterator<Item = &'a Export>,
    record: Option<&'a ServiceSpec>,
    living: &[IpFamily],
) -> Option<Merged> {
    let all = input::inputs(exports, record);
    let mut conflicts = Vec::new();
    let (ip_families, inputs) = families::choose(&all, living, &mut conflicts);
    let oldest = inputs.first()?.spec;
    let (ports, contributions) = ports::unite(&inputs, &mut conflicts);
    conflicts.extend(other_conflicts(&inputs));
    conflicts.sort_by_key(|conflict| conflict.reason);
    let spec = ServiceSpec {
        ports,
        ip_families,
        labels: usable_labels(&oldest.labels),
        annotations: usable_annotations(&oldest.annotations),
        ..oldest.clone()
    };
    Some(Merged { spec, contributions, conflicts })
}

/// The properties that the oldest export decides alone.
fn other_conflicts<'a>(inputs: &'a [Input<'a>]) -> impl Iterator<Item = Conflict> + 'a {
    [
        disagreement(inputs, Reason::TypeConflict, |spec| spec.service_type, ToString::to_string),
        disagreement(
            inputs,
            Reason::SessionAffinityConflict,
            |spec| spec.session_affinity.name(),
            ToString::to_string,
        ),
        affinity_config(inputs),
        disagreement(
            inputs,
            Reason::InternalTrafficPolicyConflict,
            |spec| spec.internal_traffic_policy,
            ToString::to_string,
        ),
        disagreement(
            inputs,
            Reason::TrafficDistributionConflict,
            |spec| spec.distribution(),
            |value| value.unwrap_or("none").to_owned(),
        ),
        disagreement(inputs, Reason::LabelsConflict, |spec| &spec.labels, |map| shown(map)),
        disagreement(inputs, Reason::AnnotationsConflict, other_annotations, shown),
        disagreement(inputs, Reason::ClusterSelectorsConflict, selectors, |value| match value {
            Some(Ok(selectors)) => selectors.to_string(),
            Some(Err(text)) => (*text).to_owned(),
            None => "none".to_owned(),
        }),
    ]
    .into_iter()
    .flatten()
}

fn other_annotations(spec: &ServiceSpec) -> Pairs {
    let mut annotations = spec.annotations.clone();
    annotations.remove(well_known::CLUSTER_SELECTORS);
    annotations
}

/// The selectors, or their text if it is no JSON. Whitespace and empty members do not matter.
fn selectors(spec: &ServiceSpec) -> Option<Result<Value, &str>> {
    let text = spec.annotations.get(well_known::CLUSTER_SELECTORS)?;
    Some(serde_json::from_str(text).map(without_empty).map_err(|_| &**text))
}

fn without_empty(value: Value) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
        _ => false,
    };
    match value {
        Value::Array(all) => all.into_iter().map(without_empty).collect(),
        Value::Object(all) => {
            let members = all.into_iter().map(|(name, value)| (name, without_empty(value)));
            members.filter(|(_, value)| !is_empty(value)).collect()
        }
        value => value,
    }
}

/// Only clusters with affinity have a configuration of it.
fn affinity_config(inputs: &[Input<'_>]) -> Option<Conflict> {
    let oldest = inputs.first()?.spec.session_affinity.timeout_seconds()?;
    disagreement(
        inputs,
        Reason::SessionAffinityConfigConflict,
        |spec| spec.session_affinity.timeout_seconds().unwrap_or(oldest),
        |seconds| format!("clientIP.timeoutSeconds {seconds}"),
    )
}

fn shown(map: &BTreeMap<Arc<str>, Arc<str>>) -> String {
    let pairs: Vec<_> = map.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if pairs.is_empty() { "none".to_owned() } else { pairs.join(", ") }
}

#[cfg(test)]
pub(super) mod tests;
