//! Events about objects: rejected endpoints, imports left alone, conflicts, and exports that a cluster does not import.

use std::collections::BTreeMap;

use mcs_kube::ObjectKey;

use super::{super::contests::Part, State};
use crate::{
    clusterset::{
        Actual, ClusterId, Condition, ConditionStatus, ConditionType, Rejection, ServiceName,
        Wanted, WantedImport,
    },
    objects::MCS_GROUP,
    plan::Write,
    status::{Notice, Regarding},
};

impl State {
    pub(super) fn note_rejected(
        &mut self,
        name: &ServiceName,
        rejected: &BTreeMap<(ClusterId, Rejection), usize>,
    ) {
        let former = self.rejected.remove(name).unwrap_or_default();
        for ((cluster, reason), count) in rejected {
            tracing::debug!("{name}: {count} endpoints of cluster {cluster} are refused: {reason}");
        }
        // An event needs an import to be about.
        if self.own.import_object(name).is_none() {
            return;
        }
        if rejected.is_empty() {
            if !former.is_empty() {
                let note = "no endpoint of it is refused any more".to_owned();
                self.tell(name, false, "EndpointsAccepted", note);
            }
            return;
        }
        self.rejected.insert(name.clone(), rejected.clone());
        let new = rejected.iter().filter(|(rejected, _)| !former.contains_key(rejected));
        for note in new.map(rejected_note) {
            self.tell_of_import(name, "EndpointsRefused", note);
        }
    }

    /// Repeats the events of rejected endpoints: events live an hour.
    pub(in crate::controller) fn tell_rejected_again(&mut self) {
        let told = self.rejected.iter().flat_map(|(name, rejected)| {
            rejected.iter().map(|rejected| (name.clone(), rejected_note(rejected)))
        });
        for (name, note) in told.collect::<Vec<_>>() {
            self.tell_of_import(&name, "EndpointsRefused", note);
        }
    }

    pub(super) fn note_left_alone(&mut self, name: &ServiceName, wanted: &Wanted) {
        if wanted.import != WantedImport::LeftAlone {
            self.left_alone.remove(name);
        } else if self.left_alone.insert(name.clone()) {
            let mut note = "somebody else has written this ServiceImport, so the controller leaves it alone. With \
                            --adopt it takes it over"
                .to_owned();
            if !wanted.slices.is_empty() {
                note.push_str(
                    ". The controller's slices stay up to date until the other one has slices of their clusters",
                );
            }
            self.tell_of_import(name, "LeftAlone", note);
        }
    }

    pub(super) fn tell_of_import(&mut self, name: &ServiceName, reason: &str, note: String) {
        self.tell(name, true, reason, note);
    }

    fn tell(&mut self, name: &ServiceName, is_warning: bool, reason: &str, note: String) {
        let Some(import) = self.own.import_object(name) else { return };
        let regarding =
            regarding("ServiceImport", self.own.import_version(), name, import.uid.clone());
        let reason = reason.to_owned();
        self.notices.push(Notice { regarding, is_warning, reason, note });
    }

    /// Reports when an import stops being accepted, and when it is accepted again.
    pub(super) fn note_acceptance(&mut self, name: &ServiceName, wanted: &Wanted) {
        let now = match &wanted.import {
            WantedImport::Present(_, status) => status.condition(ConditionType::Accepted),
            WantedImport::Absent | WantedImport::LeftAlone => wanted.accepted.as_ref(),
        };
        let is_fault = |one: &&Condition| one.status == ConditionStatus::False;
        // A deleted import does not become accepted.
        let Some(now) = now else {
            self.acceptance_faults.remove(name);
            return;
        };
        // An import that does not exist yet gets no event. The first event after its creation is new.
        let Some(import) = self.own.import_object(name) else {
            self.acceptance_faults.insert(name.clone(), None);
            return;
        };
        let said = import.actual.status.condition(ConditionType::Accepted).filter(is_fault);
        let fault = is_fault(&now).then(|| now.clone());
        // A new leader does not repeat the events of the former one.
        let former = self
            .acceptance_faults
            .insert(name.clone(), fault.clone())
            .unwrap_or_else(|| said.cloned());
        let both = [former.as_ref(), fault.as_ref()];
        let turn = turn(both, |one| &one.reason, ("Accepted", &now.message));
        if let Some((is_warning, reason, note)) = turn {
            self.tell(name, is_warning, &reason, note);
        }
    }

    /// Reports the beginning and the end of three faults: a Service that cannot be exported, a conflict, and a cluster that
    /// lacks the namespace of an export.
    pub(super) fn note_turns(&mut self, name: &ServiceName, actual: &Actual, writes: &[Write]) {
        let written = writes.iter().find_map(|write| match write {
            Write::SetExportConditions(_, conditions) => Some(conditions),
            _ => None,
        });
        let (Some(written), Some(export)) = (written, self.own.export_object(name)) else { return };
        let former = actual.export_conditions.as_deref().unwrap_or_default();
        // An export that is not valid is compared with no other, and nobody imports it.
        let is_valid = written.iter().any(|one| one.condition_type == ConditionType::Conflict);
        let conflict = turn(
            [former, written]
                .map(|all| having(all, ConditionType::Conflict, ConditionStatus::True)),
            |one| &one.reason,
            ("NoConflicts", "the clusters agree"),
        );
        // The message names the clusters.
        let import = turn(
            [former, written]
                .map(|all| having(all, ConditionType::Imported, ConditionStatus::False)),
            |one| &one.message,
            ("NamespaceFound", "no cluster lacks its namespace any more"),
        );
        let valid = turn(
            // One reason covers several values.
            [former, written].map(|all| having(all, ConditionType::Valid, ConditionStatus::False)),
            |one| &one.message,
            ("Valid", "the Service can be exported"),
        );
        let others = conflict.into_iter().chain(import);
        let others = others.filter(|(is_warning, ..)| *is_warning || is_valid);
        for (is_warning, reason, note) in valid.into_iter().chain(others) {
            let regarding =
                regarding("ServiceExport", self.own.export_version(), name, export.uid.clone());
            self.notices.push(Notice { regarding, is_warning, reason, note });
        }
    }

    /// Reports that somebody else keeps rewriting an object of a service.
    pub(in crate::controller) fn contest_notice(
        &self,
        name: &ServiceName,
        part: Part,
        key: &ObjectKey,
        writer: &str,
    ) -> Option<Notice> {
        let own = &self.own;
        let (kind, version, uid) = if part == Part::ExportConditions {
            ("ServiceExport", own.export_version(), own.export_object(name)?.uid.clone())
        } else {
            ("ServiceImport", own.import_version(), own.import_object(name)?.uid.clone())
        };
        let object = match part {
            Part::ExportConditions => "the conditions of this ServiceExport".to_owned(),
            Part::Import => "this ServiceImport".to_owned(),
            Part::ImportStatus => "the status of this ServiceImport".to_owned(),
            Part::Slice | Part::DerivedService => format!("{} {}", part.kind(), key.name),
        };
        let note = format!(
            "{writer} rewrites {object}, so this controller writes the same less and less often"
        );
        let regarding = regarding(kind, version, name, uid);
        Some(Notice { regarding, is_warning: true, reason: part.reason().to_owned(), note })
    }

    /// The import of a service, or the one that it would have.
    pub(super) fn regarding_import(&self, name: &ServiceName) -> Regarding {
        let uid = self.own.import_object(name).map(|import| import.uid.clone());
        regarding("ServiceImport", self.own.import_version(), name, uid.unwrap_or_default())
    }

    /// Removes and returns the events to write.
    pub(in crate::controller) fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }
}

fn having(
    conditions: &[Condition],
    condition_type: ConditionType,
    status: ConditionStatus,
) -> Option<&Condition> {
    conditions.iter().find(|one| (one.condition_type, one.status) == (condition_type, status))
}

/// The event about a fault that has begun, changed by its `key`, or ended: whether it is a warning, its reason, and its
/// note.
fn turn(
    [former, now]: [Option<&Condition>; 2],
    key: impl Fn(&Condition) -> &String,
    (reason, note): (&str, &str),
) -> Option<(bool, String, String)> {
    match (former, now) {
        (former, Some(now)) if former.map(&key) != Some(key(now)) => {
            Some((true, now.reason.clone(), now.message.clone()))
        }
        (Some(_), None) => Some((false, reason.to_owned(), note.to_owned())),
        _ => None,
    }
}

fn rejected_note(((cluster, reason), count): (&(ClusterId, Rejection), &usize)) -> String {
    format!("endpoints of cluster {cluster} are refused, {count} in number: {}", why(*reason))
}

/// The note of an event about rejected endpoints.
const fn why(reason: Rejection) -> &'static str {
    match reason {
        Rejection::OutsidePodRanges => {
            "their addresses are not its pods'. See podCIDRs of its ClusterPeer"
        }
        Rejection::NoPodAddress => {
            "every machine has their addresses: loopback, link-local, metadata service"
        }
        Rejection::Reserved => {
            "their addresses belong to this cluster: to its Services, ClusterSetIPs, nodes or API server"
        }
        Rejection::OwnPods => "their addresses belong to pods of this cluster",
        Rejection::OtherPeer => {
            "their addresses belong to pods of another ClusterPeer. See podCIDRs of both"
        }
    }
}

fn regarding(kind: &'static str, version: &str, name: &ServiceName, uid: String) -> Regarding {
    Regarding {
        api_version: format!("{MCS_GROUP}/{version}"),
        kind,
        namespace: Some(name.namespace().to_owned()),
        name: name.name().to_owned(),
        uid,
    }
}
