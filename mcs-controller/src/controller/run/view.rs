//! The view of the clusterset that the control task publishes for the page.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use jiff::Timestamp;

use super::Control;
use crate::{
    clusterset::{
        Condition, ConditionStatus, ConditionType, ExportState, ImportState, ServiceName,
    },
    objects::ExportObject,
    server::{ImportView, View},
};

/// How often the view is published.
const PERIOD: Duration = Duration::from_secs(10);
const LACKING: &str =
    "this cluster has no such namespace: create it, or run the controller with --create-namespaces";

impl Control {
    /// Publishes the view if the page is on and it is time.
    pub(super) fn show(&mut self, now: Instant) {
        if self.published.page.is_none() || !self.said_synced || now < self.show_at {
            return;
        }
        self.show_at = now + PERIOD;
        let state = &self.state;
        let peers = self.statuses(now).into_iter().map(|(name, status)| {
            let cluster = state.peers.all().get(&name).map(|peer| peer.object.cluster.clone());
            (name, cluster, status)
        });
        let export = |(name, state): (&ServiceName, ExportState)| {
            let object = self.state.own.export_object(name);
            let conditions = object.map(ExportObject::known_conditions).unwrap_or_default();
            (name.clone(), state, failing(&conditions))
        };
        let exports = state.export_states().all().filter(|(_, one)| *one != ExportState::Exported);
        let rejected = state.rejected().into_iter().flat_map(|(cluster, counts)| {
            counts.into_iter().map(|(reason, count)| (cluster.clone(), reason, count))
        });
        let view = View {
            cluster: state.cluster().clone(),
            clusterset: state.membership().clusterset,
            leads: self.is_leader,
            seen: Timestamp::now(),
            peers: peers.collect(),
            imports: state.import_states().all().map(|one| self.import_view(one)).collect(),
            exports: exports.map(export).collect(),
            rejected: rejected.collect(),
        };
        if let Some(page) = &self.published.page {
            page.set(view);
        }
    }

    fn import_view(&self, (name, state): (&ServiceName, ImportState)) -> ImportView {
        let own = &self.state.own;
        let mut endpoints = BTreeMap::new();
        for slice in own.imported_slices(name).into_iter().flat_map(BTreeMap::values) {
            *endpoints.entry(slice.cluster.clone()).or_default() += slice.addresses.all().count();
        }
        let object = own.import_object(name).map(|object| &object.actual);
        ImportView {
            name: name.clone(),
            state,
            endpoints,
            tiers: object.and_then(|object| object.import.tiers.clone()),
            message: match object {
                Some(object) => failing(&object.status.conditions),
                None if state == ImportState::NoNamespace => LACKING.to_owned(),
                None => String::new(),
            },
        }
    }
}

/// The messages of conditions that report problems, each once.
fn failing(conditions: &[Condition]) -> String {
    let is_failing = |one: &&Condition| {
        let is_problem = one.condition_type == ConditionType::ImportConflict;
        let wanted = if is_problem { ConditionStatus::False } else { ConditionStatus::True };
        one.status != wanted
    };
    let messages = conditions.iter().filter(is_failing).map(|one| &*one.message);
    let messages: BTreeSet<_> = messages.filter(|message| !message.is_empty()).collect();
    messages.into_iter().collect::<Vec<_>>().join("; ")
}
