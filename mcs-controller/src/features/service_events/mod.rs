//! Events about what becomes of services: rejected endpoints, imports left alone or not accepted, and faults of exports.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use mcs_kube::reasons::{Coded as _, Reason, Rejection};

use crate::core::{
    clusterset::{
        Actual, ClusterId, Condition, ConditionStatus, ConditionType, ServiceName, Wanted,
        WantedImport,
    },
    control::{Planned, State},
    feature::{Entry, Feature},
    plan::Write,
    status::{Notice, Regarding},
};

/// The feature in the list.
pub(crate) const ENTRY: Entry =
    Entry { start: |_, _| Ok(Some(Box::new(Events::default()))), ..Entry::NONE };

/// What events have told.
#[derive(Default)]
struct Events {
    /// The number of rejected endpoints of each service, by source cluster and reason.
    rejected: HashMap<ServiceName, BTreeMap<(ClusterId, Rejection), usize>>,
    /// The services whose ServiceImports another controller writes.
    left_alone: BTreeSet<ServiceName>,
    /// The condition `Accepted` of each import, as last computed.
    acceptance_faults: HashMap<ServiceName, Option<Condition>>,
}

impl Feature for Events {
    fn note_planned(&mut self, plan: &Planned, writes: &mut Vec<Write>, state: &mut State) {
        let Planned { name, actual, wanted, .. } = plan;
        self.note_rejected(name, wanted, state);
        self.note_left_alone(name, wanted, state);
        self.note_acceptance(name, wanted, state);
        note_turns(name, actual, writes, state);
    }

    fn tell_again(&mut self, state: &mut State) {
        for (name, rejected) in &self.rejected {
            for one in rejected {
                state.tell_of_import(name, Reason::EndpointsRefused, rejected_note(one));
            }
        }
    }
}

impl Events {
    fn note_rejected(&mut self, name: &ServiceName, wanted: &Wanted, state: &mut State) {
        let former = self.rejected.remove(name).unwrap_or_default();
        // An event needs an import to be about.
        if !matches!(wanted.import, WantedImport::Present(..))
            || state.own.import_object(name).is_none()
        {
            return;
        }
        for ((cluster, reason), count) in &wanted.rejected {
            tracing::debug!("{name}: {count} endpoints of cluster {cluster} are refused: {reason}");
        }
        if wanted.rejected.is_empty() {
            if !former.is_empty() {
                let note = "no endpoint of it is refused any more".to_owned();
                state.tell_of_import(name, Reason::EndpointsAccepted, note);
            }
            return;
        }
        for rejected in
            wanted.rejected.iter().filter(|(rejected, _)| !former.contains_key(rejected))
        {
            state.tell_of_import(name, Reason::EndpointsRefused, rejected_note(rejected));
        }
        self.rejected.insert(name.clone(), wanted.rejected.clone());
    }

    fn note_left_alone(&mut self, name: &ServiceName, wanted: &Wanted, state: &mut State) {
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
            state.tell_of_import(name, Reason::LeftAlone, note);
        }
    }

    /// Reports when an import stops being accepted, and when it is accepted again.
    fn note_acceptance(&mut self, name: &ServiceName, wanted: &Wanted, state: &mut State) {
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
        let Some(import) = state.own.import_object(name) else {
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
        let turn = turn(both, |one| &one.reason, (Reason::Accepted, &now.message));
        if let Some((is_warning, reason, note)) = turn {
            let regarding = state.regarding_import(name);
            state.notices.push(Notice { regarding, is_warning, reason, note });
        }
    }
}

/// Reports the beginning and the end of three faults: a Service that cannot be exported, a conflict, and a cluster that
/// lacks the namespace of an export.
fn note_turns(name: &ServiceName, actual: &Actual, writes: &[Write], state: &mut State) {
    let written = writes.iter().find_map(|write| match write {
        Write::SetExportConditions(_, conditions) => Some(conditions),
        _ => None,
    });
    let (Some(written), Some(export)) = (written, state.own.export_object(name)) else { return };
    let former = actual.export_conditions.as_deref().unwrap_or_default();
    // An export that is not valid is compared with no other, and nobody imports it.
    let is_valid = written.iter().any(|one| one.condition_type == ConditionType::Conflict);
    let conflict = turn(
        [former, written].map(|all| having(all, ConditionType::Conflict, ConditionStatus::True)),
        |one| &one.reason,
        (Reason::NoConflicts, "the clusters agree"),
    );
    // The message names the clusters.
    let import = turn(
        [former, written].map(|all| having(all, ConditionType::Imported, ConditionStatus::False)),
        |one| &one.message,
        (Reason::NamespaceFound, "no cluster lacks its namespace any more"),
    );
    let valid = turn(
        // One reason covers several values.
        [former, written].map(|all| having(all, ConditionType::Valid, ConditionStatus::False)),
        |one| &one.message,
        (Reason::Valid, "the Service can be exported"),
    );
    let others = conflict.into_iter().chain(import);
    let others = others.filter(|(is_warning, ..)| *is_warning || is_valid);
    for (is_warning, reason, note) in valid.into_iter().chain(others) {
        let regarding = Regarding::service(
            "ServiceExport",
            state.own.export_version(),
            name,
            export.uid.clone(),
        );
        state.notices.push(Notice { regarding, is_warning, reason, note });
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
    (reason, note): (Reason, &str),
) -> Option<(bool, String, String)> {
    match (former, now) {
        (former, Some(now)) if former.map(&key) != Some(key(now)) => {
            Some((true, now.reason.clone(), now.message.clone()))
        }
        (Some(_), None) => Some((false, reason.to_string(), note.to_owned())),
        _ => None,
    }
}

fn rejected_note(((cluster, reason), count): (&(ClusterId, Rejection), &usize)) -> String {
    let (meaning, advice) = (reason.meaning(), reason.advice());
    format!(
        "endpoints of cluster {cluster} are refused, {count} in number. {meaning} To do: {advice}"
    )
}
