//! Missing namespaces: this cluster's, for its peers, and the peers', for its exports.

use std::{collections::BTreeSet, sync::Arc};

use super::State;
use crate::core::{
    clusterset::{
        Actual, ClusterId, Condition, Export, ServiceName, is_named_as_lacking, not_imported,
    },
    peers::Peer,
};

impl State {
    /// The namespaces of exports of peers that this cluster lacks, for the Lease. A new leader keeps the Lease's list until
    /// it knows its own.
    pub(super) fn lacking(&self) -> Arc<BTreeSet<Arc<str>>> {
        let said = || self.own_mailbox.lease().map(|lease| Arc::clone(&lease.lacking));
        self.lacking.clone().or_else(said).unwrap_or_default()
    }

    /// Records which namespaces this cluster lacks. The former list stays until every peer was read and every service
    /// planned. Namespaces that the controller will create are not missing.
    pub(in crate::core::control) fn note_lacking(&mut self) {
        if !self.is_synced() {
            return;
        }
        let waiting = self.import_states.without_namespace().iter().map(ServiceName::namespace);
        let mut namespaces: Vec<_> = waiting.filter(|_| !self.settings.create_namespaces).collect();
        namespaces.dedup();
        let mut lacking: BTreeSet<Arc<str>> = namespaces.into_iter().map(Into::into).collect();
        let former = self.lacking();
        let peers = self.peers.by_cluster(&self.cluster);
        let is_whole =
            self.imports.is_drained() && peers.iter().all(|peer| peer.view.was_complete());
        if !is_whole {
            let stays = |namespace: &&Arc<str>| !self.own.has_namespace(namespace);
            lacking.extend(former.iter().filter(stays).cloned());
        }
        if self.lacking.is_none() || *former != lacking {
            self.lacking = Some(Arc::new(lacking));
        }
    }

    /// Queues the exports of namespaces about which a cluster has reported.
    pub(super) fn queue_exports_in(
        &mut self,
        cluster: &ClusterId,
        namespaces: &BTreeSet<Arc<str>>,
    ) {
        if namespaces.is_empty() {
            return;
        }
        for name in self.own.exported().filter(|name| namespaces.contains(name.namespace())) {
            self.imports.add_of(Some(cluster.clone()), name.clone());
        }
    }

    /// The condition of an export that a cluster does not import because it lacks the namespace. The former report about a
    /// cluster stays until the cluster itself reports.
    pub(super) fn not_imported(&self, export: &Export, actual: &Actual) -> Option<Condition> {
        let namespace = export.name.namespace();
        let said = actual.export_conditions.as_deref().unwrap_or_default();
        let lacks = |peer: &&Peer| match peer.view.lacking() {
            Some(namespaces) => namespaces.contains(namespace),
            None => is_named_as_lacking(said, &peer.object.cluster),
        };
        let peers = self.peers.by_cluster(&self.cluster).into_iter();
        let lacking = peers.filter(lacks).map(|peer| &peer.object.cluster);
        let mut lacking: Vec<_> = lacking.filter(|cluster| export.reaches(cluster)).collect();
        lacking.sort();
        not_imported(namespace, &lacking)
    }
}
