//! Starts the writes to this cluster and to its mailbox.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Instant,
};

use mcs_kube::ApiAccess;
use tokio::sync::watch;

use super::{super::queue::AT_A_TIME, Control, ROUND, TaskResult};
use crate::core::{
    apply::{
        ApplyError, Request, Sent, mailbox_request, misnamed_request, own_request, send_plan,
        tokens,
    },
    clock,
    clusterset::ServiceName,
    leases::StatementChange,
    mailbox::MailboxWrite,
    plan::{Sending, Write},
};

/// How the writes of an import have ended.
#[derive(Default)]
pub(super) struct PlanResult {
    pub(super) sent: Sent<Write>,
    /// Whether the controller may not delete the derived Service.
    pub(super) keeps_derived_service: bool,
}

/// The most services that are planned before the control task handles events and results.
const PLANS: usize = 32;

impl Control {
    /// Starts waiting writes, as many as can be under way. Returns whether more may be possible.
    pub(super) fn start_writes(&mut self) -> bool {
        if !self.core.is_leader || !self.core.state.is_synced() {
            return false;
        }
        let now = clock::now();
        self.features.each().for_each(|one| one.before_plans(&mut self.core.state, now));
        let (mut imports, mut publications) = (0, 0);
        let end = clock::now() + ROUND;
        while imports < PLANS
            && clock::now() < end
            && let Some(name) = self.core.state.imports.next()
        {
            self.import(name);
            imports += 1;
        }
        let may_import_more = imports == PLANS || clock::now() >= end;
        self.renew_lease();
        let end = clock::now() + ROUND;
        while publications < PLANS
            && clock::now() < end
            && self.core.state.is_own_mailbox()
            && self.term.holds()
            && let Some(name) = self.core.state.publications.next()
        {
            self.publish(name);
            publications += 1;
        }
        may_import_more || publications == PLANS || clock::now() >= end
    }

    fn import(&mut self, name: ServiceName) {
        let now = clock::now();
        let mut writes = self.features.plan(&name, &mut self.core.state);
        self.core.state.imports.note_cost(&name, clock::now() - now, clock::now());
        self.tell_notices();
        let words = self.pace.hold_words(&name, &mut writes, &self.core.state.own, now);
        for feature in self.features.each() {
            feature.hold(&name, &mut writes, &self.core, now);
        }
        let paced = self.pace.limit(&name, &mut writes, now);
        if let Some(until) = words.into_iter().chain(paced).min() {
            self.core.state.imports.defer(name.clone(), until);
        }
        let held = self.hold_unpaid(&name, &mut writes, now);
        if writes.is_empty() {
            self.core.state.imports.end(&name, false, now);
            return;
        }
        self.pace.spend(&name, &writes, now);
        let adopts = self.core.state.settings.adopt;
        let requests: Vec<_> =
            writes.iter().map(|write| own_request(write, &self.core.state.own, adopts)).collect();
        self.pay(&name, &writes, &requests, now);
        let present = self.core.state.own.imported_slices(&name).into_iter();
        let present = present.flat_map(BTreeMap::keys).cloned();
        let sending = Sending::new(writes, present).without(held);
        self.core.state.imports.begin(name.clone());
        let (access, leads) = (Arc::clone(&self.core.access), self.leads.clone());
        self.tasks.push(Box::pin(async move {
            let result = send_import(&access, &leads, sending, &requests).await;
            TaskResult::Import(name, result)
        }));
    }

    /// Takes the writes away whose payers have no tokens, and lets the service wait for these too. Returns the slices among
    /// them. What follows a write of the import waits with it.
    pub(super) fn hold_unpaid(
        &mut self,
        name: &ServiceName,
        writes: &mut Vec<Write>,
        now: Instant,
    ) -> Vec<Write> {
        let own = self.core.state.cluster().clone();
        let imports = &mut self.core.state.imports;
        let payer = imports.payer(name);
        if let Some(first) = writes.iter().position(Write::changes_import)
            && imports.has_spent(&payer, now)
        {
            writes.truncate(first);
            imports.add_of(Some(payer), name.clone());
        }
        let is_held = |write: &mut Write| {
            let Write::ApplySlice(slice) = write else { return false };
            let is_held = slice.cluster != own && imports.has_spent(&slice.cluster, now);
            if is_held {
                imports.add_of(Some(slice.cluster.clone()), name.clone());
            }
            is_held
        };
        writes.extract_if(.., is_held).collect()
    }

    /// Each cluster pays for its slices. An import is free for a cluster that pays for slices of the service too, and slices of
    /// this cluster are free.
    pub(super) fn pay(
        &mut self,
        name: &ServiceName,
        writes: &[Write],
        requests: &[Request],
        now: Instant,
    ) {
        let own = self.core.state.cluster().clone();
        let imports = &mut self.core.state.imports;
        let (mut costs, mut import) = (HashMap::<_, f64>::new(), 0);
        for (write, request) in writes.iter().zip(requests) {
            match write {
                Write::ApplySlice(slice) => {
                    *costs.entry(slice.cluster.clone()).or_default() += tokens(request.bytes());
                }
                _ => import += request.bytes(),
            }
        }
        costs.remove(&own);
        if import > 0 {
            let cost = costs.entry(imports.payer(name)).or_default();
            *cost = cost.max(tokens(import));
        }
        for (cluster, cost) in costs {
            imports.spend(cluster, cost, now);
        }
    }

    /// Writes the conditions of ServiceExports with a name that no Service can have.
    pub(super) fn judge_misnamed(&mut self) {
        let own = &self.core.state.own;
        let waiting = own.misnamed().iter().filter(|key| !self.judging.contains(*key));
        let room = AT_A_TIME.saturating_sub(self.judging.len());
        for key in waiting.take(room).cloned().collect::<Vec<_>>() {
            let request = misnamed_request(&key, own);
            self.judging.insert(key.clone());
            let access = Arc::clone(&self.core.access);
            self.tasks.push(Box::pin(async move {
                let result = request.send(&access).await;
                TaskResult::Misnamed(key, result)
            }));
        }
    }

    pub(super) fn publish(&mut self, name: ServiceName) {
        let (writes, is_outgoing) = self.core.state.plan_publication(&name);
        self.core.state.note_outgoing(&name, is_outgoing);
        let now = clock::now();
        let own = self.core.state.cluster().clone();
        let is_paid = self.core.state.is_answered(&name)
            && writes.iter().any(|write| {
                matches!(write, MailboxWrite::ApplySlice(..) | MailboxWrite::ApplyService(_))
            });
        if is_paid && self.core.state.publications.has_spent(&own, now) {
            self.core.state.publications.add_of(Some(own), name);
            return;
        }
        let mailbox = &self.core.state.settings.mailbox;
        let cluster = self.core.state.cluster();
        let view = &self.core.state.own_mailbox;
        let term = &mut self.term;
        let request = |write: MailboxWrite| {
            let request = mailbox_request(&write, mailbox, cluster, view, term.next_stamp())?;
            Some((write, request))
        };
        let (writes, requests): (Vec<_>, Vec<_>) = writes.into_iter().filter_map(request).unzip();
        if requests.is_empty() {
            self.core.state.publications.end(&name, false, clock::now());
            self.core.state.note_publication(&name, &Sent::default());
            return;
        }
        let slices = view.seen_slices(&name).into_iter().flat_map(BTreeMap::keys).cloned();
        let sending = Sending::new(writes, slices.collect::<Vec<_>>());
        if is_paid {
            let cost = requests.iter().map(|request| tokens(request.bytes())).sum();
            self.core.state.publications.spend(own, cost, now);
        }
        self.core.state.publications.begin(name.clone());
        let (access, leads) = (Arc::clone(&self.outbox.access), self.leads.clone());
        self.tasks.push(Box::pin(async move {
            let leads = || *leads.borrow();
            let sent = send_plan(&access, leads, sending, &requests, |_, _| false).await;
            TaskResult::Publication(name, sent)
        }));
    }

    /// Handles a change of the publisher of the mailbox.
    pub(super) fn observe_lease(&mut self) {
        if !self.core.state.is_own_mailbox() {
            return;
        }
        let now = clock::now();
        let (lease, lists) =
            (self.core.state.own_mailbox.lease(), self.core.state.own_mailbox.lists());
        match self.term.observe(lease, lists, now) {
            StatementChange::None => {}
            StatementChange::Began => self.begin_term(),
            StatementChange::Lost => tracing::error!("this controller publishes nothing any more"),
        }
        let problem = self.term.problem(now).filter(|_| self.core.is_leader);
        self.core.state.note_rival(problem);
    }

    /// Publishes everything again.
    pub(super) fn begin_term(&mut self) {
        self.term.follow(self.core.state.own_mailbox.latest_stamp());
        self.core.state.begin_term(self.term.epoch());
    }

    /// Renews the Lease, which tells readers what is published and that this publisher lives.
    fn renew_lease(&mut self) {
        if !self.core.state.is_own_mailbox() {
            return;
        }
        let mut statement = self.core.state.statement();
        self.features.all().for_each(|one| one.publish(&mut statement, &self.core.state));
        let membership = self.core.state.membership();
        if let Some(request) = self.term.next(statement, &membership, clock::now()) {
            let access = Arc::clone(&self.outbox.access);
            self.tasks
                .push(Box::pin(async move { TaskResult::Lease(request.send(&access).await) }));
        }
    }

    /// Releases the Lease, so that the next publisher can begin at once.
    pub(super) async fn release_lease(&mut self) {
        let membership = self.core.state.membership();
        let Some(request) = self.term.release(&membership) else { return };
        if let Err(error) = request.send(&self.outbox.access).await {
            tracing::warn!(
                "cannot release the Lease publisher: {error}. The next publisher waits for it"
            );
        }
    }
}

/// Sends the writes of an import.
async fn send_import(
    access: &ApiAccess,
    leads: &watch::Receiver<bool>,
    sending: Sending<Write>,
    requests: &[Request],
) -> PlanResult {
    let mut keeps_derived_service = false;
    let is_forgiven = |write: &Write, error: &ApplyError| {
        let Write::DeleteDerivedService(import) = write else { return false };
        if error.is_forbidden() {
            tracing::warn!(
                "the derived Service of {import} stays: {error}. Let the chart remove them (derivedServices=remove), \
                 or delete it"
            );
            keeps_derived_service = true;
        }
        error.is_forbidden()
    };
    let sent = send_plan(access, || *leads.borrow(), sending, requests, is_forgiven).await;
    PlanResult { sent, keeps_derived_service }
}
