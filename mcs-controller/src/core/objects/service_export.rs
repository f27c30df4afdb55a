//! ServiceExports of this cluster (KEP-1645).

use std::collections::BTreeSet;

use jiff::Timestamp as Time;
use mcs_kube::{
    Decoder, ObjectKey,
    objects::{self, ServiceExport},
};
use serde_json::{Value, json};

use super::{MCS_GROUP, Map, conditions, map};
use crate::core::clusterset::{Audience, Condition, ServiceName, Timestamp, well_known};

/// A ServiceExport.
#[derive(Clone, PartialEq, Debug)]
pub struct ExportObject {
    /// `metadata.creationTimestamp`.
    pub created: Timestamp,
    /// `spec.exportedLabels`.
    pub labels: Map,
    /// `spec.exportedAnnotations`, in which `spec.clusterSelectors` is an annotation too.
    pub annotations: Map,
    /// Whether this controller made it, because an ExportRule selects the Service.
    pub is_made: bool,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// The audience.
    pub audience: Audience,
    /// The names in it that no cluster can have.
    pub misnamed_audience: Vec<String>,
    /// `status.conditions`, with their times.
    pub conditions: Vec<objects::Condition>,
}

/// Decodes ServiceExports.
#[derive(Clone, PartialEq, Debug)]
pub struct ExportDecoder;

impl Decoder for ExportDecoder {
    type Object = ServiceExport;
    type Value = ExportObject;

    fn convert(_: &ObjectKey, export: ServiceExport) -> Result<ExportObject, String> {
        let ServiceExport { metadata, spec, status } = export;
        let spec = spec.unwrap_or_default();
        let created = metadata.creation_timestamp.map_or(0, |time| time.seconds);
        let mut exported = map(spec.exported_annotations);
        if let Some(selectors) = spec.cluster_selectors {
            exported.insert(well_known::CLUSTER_SELECTORS.into(), selectors.to_string().into());
        }
        let writer = metadata.labels.get(well_known::MANAGED_BY);
        let (audience, misnamed_audience) =
            audience(metadata.annotations.get(well_known::AUDIENCE));
        Ok(ExportObject {
            created: Timestamp(created),
            is_made: writer.is_some_and(|writer| writer == well_known::CONTROLLER),
            uid: metadata.uid,
            generation: Some(metadata.generation).filter(|generation| *generation > 0),
            labels: map(spec.exported_labels),
            annotations: exported,
            audience,
            misnamed_audience,
            conditions: status.unwrap_or_default().conditions,
        })
    }
}

impl ExportObject {
    /// The conditions of the API's types.
    pub fn known_conditions(&self) -> Vec<Condition> {
        conditions::decode(&self.conditions)
    }

    /// Whether it has condition `Valid`.
    pub fn is_judged(&self) -> bool {
        self.conditions.iter().any(|one| one.condition_type == "Valid")
    }
}

/// The audience, and the names in it that no cluster can have: they match none.
fn audience(annotation: Option<&String>) -> (Audience, Vec<String>) {
    let Some(list) = annotation else { return (Audience::All, vec![]) };
    let (mut named, mut misnamed) = (BTreeSet::new(), Vec::new());
    for id in list.split(',').map(str::trim).filter(|id| !id.is_empty()) {
        match id.parse() {
            Ok(id) => _ = named.insert(id),
            Err(_) => misnamed.push(id.to_owned()),
        }
    }
    (Audience::Only(named), misnamed)
}

/// The ServiceExport of a Service that an ExportRule selects, as the controller creates it.
pub fn made_export(version: &str, name: &ServiceName) -> Value {
    json!({
        "apiVersion": format!("{MCS_GROUP}/{version}"),
        "kind": "ServiceExport",
        "metadata": {
            "namespace": name.namespace(),
            "name": name.name(),
            "labels": {well_known::MANAGED_BY: well_known::CONTROLLER},
        },
    })
}

/// `status` as the controller applies it.
pub fn export_status(
    version: &str,
    (namespace, name): (&str, &str),
    wanted: &[Condition],
    former: &[objects::Condition],
    now: Time,
) -> Value {
    json!({
        "apiVersion": format!("{MCS_GROUP}/{version}"),
        "kind": "ServiceExport",
        "metadata": {"namespace": namespace, "name": name},
        "status": {"conditions": conditions::encode(wanted, former, now)},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audience_says_which_names_no_cluster_can_have() {
        let read = |list: &str| {
            let (audience, misnamed) = audience(Some(&list.to_owned()));
            let Audience::Only(named) = audience else { panic!("{audience:?}") };
            (named.iter().map(ToString::to_string).collect::<Vec<_>>(), misnamed)
        };
        assert_eq!(read("c2, c3"), (vec!["c2".to_owned(), "c3".to_owned()], vec![]));
        assert_eq!(read("c2,C3 c4,"), (vec!["c2".to_owned()], vec!["C3 c4".to_owned()]));
        assert_eq!(read(""), (vec![], vec![]));
        assert_eq!(audience(None), (Audience::All, vec![]));
    }
}
