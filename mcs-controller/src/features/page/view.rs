//! What the page shows of the core.

use std::collections::{BTreeMap, BTreeSet};

use super::data::{ImportView, View};
use crate::core::{
    clock,
    clusterset::{
        Condition, ConditionStatus, ConditionType, ExportState, ImportState, ServiceName,
    },
    feature::Core,
    objects::{ClusterPeerStatus, ExportObject},
    peers::PeerName,
};

const LACKING: &str =
    "this cluster has no such namespace: create it, or run the controller with --create-namespaces";

/// The view of the clusterset.
pub(super) fn view(core: &Core, peers: &[(PeerName, ClusterPeerStatus)]) -> View {
    let state = &core.state;
    let peers = peers.iter().map(|(name, status)| {
        let cluster = state.peers.all().get(name).map(|peer| peer.object.cluster.clone());
        (name.clone(), cluster, status.clone())
    });
    let export = |(name, state): (&ServiceName, ExportState)| {
        let object = core.state.own.export_object(name);
        let conditions = object.map(ExportObject::known_conditions).unwrap_or_default();
        (name.clone(), state, failing(&conditions))
    };
    let exports = state.export_states().all().filter(|(_, one)| *one != ExportState::Exported);
    let rejected = state.rejected().into_iter().flat_map(|(cluster, counts)| {
        counts.into_iter().map(|(reason, count)| (cluster.clone(), reason, count))
    });
    View {
        cluster: state.cluster().clone(),
        clusterset: state.membership().clusterset,
        leads: core.is_leader,
        seen: clock::time_of_day(),
        peers: peers.collect(),
        imports: state.import_states().all().map(|one| import_view(core, one)).collect(),
        exports: exports.map(export).collect(),
        rejected: rejected.collect(),
    }
}

fn import_view(core: &Core, (name, state): (&ServiceName, ImportState)) -> ImportView {
    let own = &core.state.own;
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
