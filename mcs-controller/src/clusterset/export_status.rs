//! The conditions of a ServiceExport of this cluster.

use super::{
    Condition,
    ConditionStatus::{False, True, Unknown},
    ConditionType::{Conflict as ConflictCondition, Ready, Valid},
    Conflict, Export, ExportSource, NamespaceRules,
};

/// Whether peers can read the export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Publication {
    /// It waits to be written.
    Pending,
    /// It is in the mailbox.
    Published,
    /// It cannot be written; what the API server answered.
    Failed(String),
}

/// The conditions of an export. `Conflict` is absent if the export is not valid.
pub fn export_conditions(
    export: &Export,
    namespaces: &NamespaceRules,
    publication: &Publication,
    conflicts: &[Conflict],
) -> Vec<Condition> {
    match problem(export, namespaces) {
        Some((reason, message)) => vec![
            Condition::new(Valid, False, reason, message),
            Condition::new(Ready, False, "Pending", "nothing is exported: see condition Valid"),
        ],
        None => vec![
            Condition::new(Valid, True, "Valid", "the Service can be exported"),
            ready(publication),
            conflict(conflicts),
        ],
    }
}

/// Whether peers get the export.
pub fn is_exportable(export: &Export, namespaces: &NamespaceRules) -> bool {
    problem(export, namespaces).is_none()
}

/// The reason and message of `Valid` if it is false.
fn problem(export: &Export, namespaces: &NamespaceRules) -> Option<(&'static str, String)> {
    let name = &export.name;
    if !namespaces.allows(name.namespace()) {
        let message = format!(
            "the controller does not export from namespace {}: the cluster's operator decides which ones",
            name.namespace()
        );
        return Some(("NamespaceNotExportable", message));
    }
    match export.source {
        ExportSource::Service(_) => None,
        ExportSource::Missing => Some(no_service(name)),
        ExportSource::ExternalName => Some((
            "InvalidServiceType",
            format!("Service {name} has type ExternalName, which has no endpoints to export"),
        )),
    }
}

fn no_service(name: &impl std::fmt::Display) -> (&'static str, String) {
    ("NoService", format!("there is no Service {name}: create it, or delete the ServiceExport"))
}

fn ready(publication: &Publication) -> Condition {
    match publication {
        Publication::Pending => {
            Condition::new(Ready, Unknown, "Pending", "the export is being published")
        }
        Publication::Published => {
            Condition::new(Ready, True, "Exported", "the clusters of the clusterset can read it")
        }
        Publication::Failed(error) => Condition::new(
            Ready,
            False,
            "Failed",
            format!("the export cannot be published: {error}"),
        ),
    }
}

/// The reasons of all conflicts with commas between, as the API allows.
fn conflict(conflicts: &[Conflict]) -> Condition {
    if conflicts.is_empty() {
        return Condition::new(ConflictCondition, False, "NoConflicts", "the clusters agree");
    }
    let reasons: Vec<_> = conflicts.iter().map(|conflict| conflict.reason.to_string()).collect();
    let messages: Vec<_> = conflicts.iter().map(ToString::to_string).collect();
    Condition::new(ConflictCondition, True, reasons.join(","), bounded(messages.join(". ")))
}

/// The API allows messages of 32,768 characters. Labels can be longer.
fn bounded(mut message: String) -> String {
    const MOST: usize = 32_768;
    if message.len() > MOST {
        message.truncate(message.floor_char_boundary(MOST - 3));
        message.push_str("...");
    }
    message
}
