//! Plans what this cluster publishes in its mailbox, and records the results.

use std::sync::Arc;

use super::State;
use crate::core::{
    apply::Sent,
    clusterset::{Properties, Publication, ServiceName},
    leases::Statement,
    mailbox::{MailboxWrite, Outgoing, plan_publication, unknown_demands},
};

impl State {
    /// Whether peers can read the export.
    pub(super) fn publication(
        &self,
        name: &ServiceName,
        outgoing: Option<&Outgoing>,
    ) -> Publication {
        if let Some(problem) = self.own_mailbox.identity_problem() {
            return Publication::Failed(problem.to_string());
        }
        if let Some(rival) = &self.rival {
            return Publication::Failed(rival.clone());
        }
        if let Some(error) = self.publication_errors.get(name) {
            return error.clone();
        }
        if let Some(silence) = &self.silence {
            return silence.clone();
        }
        // A change is on its way; the service stays published.
        if self.own_mailbox.seen().contains_key(name) || outgoing.is_none() {
            Publication::Published
        } else {
            Publication::Pending
        }
    }

    /// The writes to this cluster's mailbox for one service, and whether the service belongs there.
    pub(in crate::core::control) fn plan_publication(
        &self,
        name: &ServiceName,
    ) -> (Vec<MailboxWrite>, bool) {
        let outgoing = self.outgoing(name);
        let withheld = self.withheld(name, outgoing.is_some());
        let view = &self.own_mailbox;
        let writes = plan_publication(name, outgoing.as_ref(), view, self.epoch, &withheld);
        (writes, outgoing.is_some())
    }

    /// Records whether a service belongs in the mailbox.
    pub(in crate::core::control) fn note_outgoing(
        &mut self,
        name: &ServiceName,
        is_outgoing: bool,
    ) {
        if is_outgoing {
            self.outgoing.insert(name.clone());
        } else {
            self.outgoing.remove(name);
        }
        self.note_missing(name);
    }

    #[cfg(test)]
    pub(crate) fn plan_and_note_publication(&mut self, name: &ServiceName) -> Vec<MailboxWrite> {
        let (writes, is_outgoing) = self.plan_publication(name);
        self.note_outgoing(name, is_outgoing);
        writes
    }

    /// A term as publisher begins, in this epoch: everything is planned anew.
    pub(in crate::core::control) fn begin_term(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.outgoing.clear();
        self.missing = Arc::default();
        self.queue_all();
        self.unanswered = self.publications.names().cloned().collect();
        self.outdated = self.publications.busy().cloned().collect();
    }

    /// Whether a service was published or refused since the term as publisher began.
    pub(in crate::core::control) fn is_answered(&self, name: &ServiceName) -> bool {
        !self.unanswered.contains(name)
    }

    /// Why this version must not replace the ExportedService of a service.
    pub(super) fn unknown_demands(&self, name: &ServiceName) -> Option<String> {
        unknown_demands(name, &self.own_mailbox).filter(|_| self.outgoing.contains(name))
    }

    /// Records whether another publisher writes the mailbox.
    pub(in crate::core::control) fn note_rival(&mut self, rival: Option<String>) {
        if rival == self.rival {
            return;
        }
        if let Some(rival) = &rival {
            tracing::error!("{rival}");
        }
        self.rival = rival;
        self.queue_all();
    }

    /// Records why readers get no sign of life of this cluster, or hear nothing new. The conditions of exports report it.
    pub(in crate::core::control) fn note_silence(&mut self, silence: Option<Publication>) {
        if self.silence == silence {
            return;
        }
        self.silence = silence;
        for name in self.own.exported() {
            self.imports.add(name.clone());
        }
    }

    /// The content of the Lease. Readers delete a service only after they see as many services as the Lease counts, and
    /// keep services that the API server refuses.
    pub(crate) fn statement(&self) -> Statement {
        Statement {
            complete: self.is_own_mailbox()
                && self.own_mailbox.unreadable().is_none()
                && !matches!(self.silence, Some(Publication::Unread(_)))
                && self.unanswered.is_empty(),
            services: self.outgoing.len() - self.missing.len(),
            refused: Arc::clone(&self.missing),
            lacking: self.lacking(),
            drain: None,
            properties: self.own_properties().unwrap_or_default(),
        }
    }

    /// The ClusterProperties of this cluster for peers. While they are unreadable, the last published ones.
    pub(crate) fn own_properties(&self) -> Option<Arc<Properties>> {
        if self.own.knows_properties() {
            return Some(Arc::clone(&self.own.published_properties().0));
        }
        self.own_mailbox.lease().and_then(|lease| lease.properties.clone())
    }

    pub(super) fn note_missing(&mut self, name: &ServiceName) {
        let is_there = self.own_mailbox.seen().contains_key(name)
            || self.own_mailbox.unread().contains_key(name);
        let is_missing = self.refused.contains(name) && self.outgoing.contains(name) && !is_there;
        if is_missing == self.missing.contains(name) {
            return;
        }
        let missing = Arc::make_mut(&mut self.missing);
        if is_missing {
            missing.insert(name.clone());
        } else {
            missing.remove(name);
        }
    }

    /// Whether the mailbox is there and is this cluster's own.
    pub(crate) fn is_own_mailbox(&self) -> bool {
        self.own_mailbox.is_listed() && self.own_mailbox.identity_problem().is_none()
    }

    /// Notes how the publication of a service ended. Returns whether there is something else to tell of it than before.
    pub(in crate::core::control) fn note_publication(
        &mut self,
        name: &ServiceName,
        sent: &Sent<MailboxWrite>,
    ) -> bool {
        if self.note_withheld(name, sent) {
            self.publications.add(name.clone());
        }
        let withheld = self.withheld(name, self.outgoing.contains(name));
        if withheld.refused.is_empty() {
            self.refused.remove(name);
        } else {
            self.refused.insert(name.clone());
        }
        self.note_missing(name);
        let failed = sent.failure.as_ref().filter(|error| !error.is_refusal());
        let is_outdated = self.outdated.remove(name);
        if failed.is_none() && !is_outdated {
            self.unanswered.remove(name);
        }
        let is_there = self.own_mailbox.seen().contains_key(name);
        let problem = failed.map(ToString::to_string).map(Publication::Failed).or_else(|| {
            let demands = withheld.is_of_later_version.then(|| self.unknown_demands(name));
            let told = demands.flatten().or_else(|| withheld.told());
            told.map(if is_there { Publication::Partly } else { Publication::Failed })
        });
        let former = self.publication_errors.remove(name);
        let has_changed = former != problem;
        if has_changed {
            self.imports.add(name.clone());
        }
        if let Some(problem) = problem {
            self.publication_errors.insert(name.clone(), problem);
        }
        has_changed
    }
}
