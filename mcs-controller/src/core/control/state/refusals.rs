//! What API servers refuse: the status of imports and of exports says so, and an Event does.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use mcs_kube::reasons::Reason;

use super::State;
use crate::core::{
    apply::Sent,
    clusterset::{ClusterId, Refused, ServiceName, ServiceObject},
    mailbox::{MailboxObject, MailboxWrite, Withheld, unknown_demands},
    peers::{Peer, PeerName},
    plan::Write,
};

/// How many services a message names.
const NAMED: usize = 3;

/// The objects of each service that the API server of this cluster refuses.
#[derive(Debug, Default)]
pub(in crate::core::control) struct Refusals(HashMap<ServiceName, Refused>);

impl Refusals {
    /// Those of a service.
    pub(super) fn of(&self, name: &ServiceName) -> &Refused {
        self.0.get(name).unwrap_or(Refused::NONE)
    }

    /// What of the imports of these services is refused. `None`: nothing.
    fn told<'a>(&'a self, services: impl Iterator<Item = &'a ServiceName>) -> Option<String> {
        let mut names: Vec<_> =
            services.filter(|name| self.of(name).any(ServiceObject::is_of_import)).collect();
        let more = names.len().saturating_sub(NAMED);
        if more > 0 {
            names.select_nth_unstable(NAMED);
            names.truncate(NAMED);
        }
        names.sort_unstable();
        let words = |name| self.of(name).told(ServiceObject::is_of_import);
        let told: Vec<_> = names
            .into_iter()
            .filter_map(|name| Some(format!("{name}: {}", words(name)?)))
            .collect();
        let more = if more > 0 { format!(" And {more} more services.") } else { String::new() };
        (!told.is_empty()).then(|| format!("{}{more}", told.join(" ")))
    }
}

impl State {
    /// The services that a cluster exports or that are imported from it, of which the API server refuses objects, in its
    /// words. `None`: none.
    pub(in crate::core::control) fn refused_of(&self, cluster: &ClusterId) -> Option<String> {
        if self.refusals.0.is_empty() {
            return None;
        }
        let peers = self.peers.by_cluster(&self.cluster);
        let views = peers.into_iter().filter(|peer| peer.object.cluster == *cluster);
        let views: Vec<_> = views.map(|peer| &peer.view).collect();
        let is_exported =
            |name: &ServiceName| views.iter().any(|view| view.believed().contains_key(name));
        let is_meant =
            |name: &&ServiceName| is_exported(name) || self.own.is_imported_from(name, cluster);
        self.refusals.told(self.refusals.0.keys().filter(is_meant))
    }

    /// Notes the peers of whose services no write is left. Until then nobody knows what is refused.
    pub(in crate::core::control) fn note_tried(&mut self) {
        let is_over = self.is_synced() && self.imports.is_idle(&None);
        let has_tried = |(name, peer): &(&PeerName, &Peer)| {
            let is_over = || is_over && self.imports.is_idle(&Some(peer.object.cluster.clone()));
            peer.view.is_listed() && (self.tried.contains(*name) || is_over())
        };
        let tried = self.peers.all().iter().filter(has_tried);
        self.tried = tried.map(|(name, _)| Arc::clone(name)).collect();
    }

    /// Whether everything of a peer's services was written, or tried, in this term as leader.
    pub(in crate::core::control) fn has_tried(&self, peer: &PeerName) -> bool {
        self.tried.contains(peer)
    }

    /// Forgets what the API server has refused and nobody plans any more.
    pub(crate) fn note_planned_objects(&mut self, name: &ServiceName, writes: &[Write]) {
        let Some(refused) = self.refusals.0.get_mut(name) else { return };
        let planned: BTreeSet<_> = writes.iter().map(Write::object).collect();
        let before = refused.objects().len();
        refused.retain(|object| planned.contains(object));
        if refused.objects().len() < before {
            self.end_refusals(name);
            // The status of this plan tells of them.
            self.imports.add(name.clone());
        }
    }

    fn end_refusals(&mut self, name: &ServiceName) {
        if self.refusals.of(name).is_empty() && self.refusals.0.remove(name).is_some() {
            let note = "nothing of it is refused any more".to_owned();
            self.tell_of_service(name, Reason::Written, note);
        }
    }

    /// Whether an object of a service is refused that was not before.
    pub(in crate::core::control) fn is_newly_refused(
        &self,
        name: &ServiceName,
        sent: &Sent<Write>,
    ) -> bool {
        let former = self.refusals.of(name);
        sent.refused.iter().any(|(write, _)| !former.contains(&write.object()))
    }

    /// Notes how the writes of an import have ended.
    pub(crate) fn note_sent(&mut self, name: &ServiceName, sent: &Sent<Write>) {
        let former = self.refusals.of(name).clone();
        let mut refused = former.clone();
        let made: BTreeSet<_> = sent.made.iter().map(Write::object).collect();
        refused.retain(|object| !made.contains(object));
        for (write, words) in &sent.refused {
            refused.note(write.object(), words.clone());
        }
        if refused == former {
            return;
        }
        let has_turned = refused.objects() != former.objects();
        let told = refused.told(|object| !former.contains(object));
        self.refusals.0.insert(name.clone(), refused);
        if let Some(note) = told {
            self.tell_of_service(name, Reason::Refused, note);
        }
        self.end_refusals(name);
        if has_turned {
            self.imports.add(name.clone());
        }
    }

    /// What the mailbox's API server has refused of a service. `is_outgoing`: the service belongs there.
    pub(super) fn withheld(&self, name: &ServiceName, is_outgoing: bool) -> Withheld {
        let refused = self.withheld.get(name).cloned().unwrap_or_default();
        let demands = unknown_demands(name, &self.own_mailbox);
        Withheld { refused, is_of_later_version: is_outgoing && demands.is_some() }
    }

    /// Notes which objects of a service the mailbox's API server refuses. Returns whether they are others than before.
    pub(super) fn note_withheld(&mut self, name: &ServiceName, sent: &Sent<MailboxWrite>) -> bool {
        let former = self.withheld.remove(name).unwrap_or_default();
        let unsent: BTreeSet<_> = sent.unsent.iter().map(MailboxWrite::object).collect();
        let made: BTreeSet<_> = sent.made.iter().map(MailboxWrite::object).collect();
        let mut refused: BTreeMap<MailboxObject, String> = former.clone();
        refused.retain(|object, _| unsent.contains(object) && !made.contains(object));
        // Without the mark of a withdrawal, readers wait until the Lease no longer counts the service.
        let needed = |(write, _): &&(MailboxWrite, String)| {
            !matches!(write, MailboxWrite::WithdrawService(_))
        };
        let answers = sent.refused.iter().filter(needed);
        refused.extend(answers.map(|(write, words)| {
            // The first words stay while the object is refused: later ones may differ in a number alone.
            let (object, words) = (write.object(), words.clone());
            let words = former.get(&object).cloned().unwrap_or(words);
            (object, words)
        }));
        let has_turned = !refused.keys().eq(former.keys());
        if !refused.is_empty() {
            self.withheld.insert(name.clone(), refused);
        }
        has_turned
    }
}
