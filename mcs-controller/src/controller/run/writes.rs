//! Starts the writes to this cluster and to its mailbox.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use mcs_kube::{ApiAccess, TRAFFIC_PROPERTY, VIP_RANGES_PROPERTY};
use tokio::sync::watch;

use super::{
    super::{contests::Contested, queue::AT_A_TIME},
    Control, ROUND, TaskResult,
};
use crate::{
    apply::{
        ApplyError, Request, Sent, import_writes, mailbox_request, misnamed_request, own_request,
        property_request, send_plan,
    },
    clusterset::ServiceName,
    leases::Change,
    mailbox::MailboxWrite,
    plan::{Sending, Write},
    status::other_writer,
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
        if !self.is_leader || !self.state.is_synced() {
            return false;
        }
        if self.state.is_own_mailbox() {
            self.state.judge_shares(Instant::now());
        }
        let (mut imports, mut publications) = (0, 0);
        let end = Instant::now() + ROUND;
        while imports < PLANS
            && Instant::now() < end
            && let Some(name) = self.state.imports.next()
        {
            self.import(name);
            imports += 1;
        }
        let may_import_more = imports == PLANS || Instant::now() >= end;
        self.renew_lease();
        let end = Instant::now() + ROUND;
        while publications < PLANS
            && Instant::now() < end
            && self.state.is_own_mailbox()
            && self.term.holds()
            && let Some(name) = self.state.publications.next()
        {
            self.publish(name);
            publications += 1;
        }
        may_import_more || publications == PLANS || Instant::now() >= end
    }

    fn import(&mut self, name: ServiceName) {
        let now = Instant::now();
        let planned = self.state.plan(&name);
        let mut writes = self.state.note_planned(planned);
        self.state.imports.note_cost(&name, now.elapsed(), Instant::now());
        let notices = self.state.take_notices();
        self.tell(notices);
        let waits = self.pace.hold_words(&name, &mut writes, &self.state.own, now);
        let has_import = self.state.own.import_object(&name).is_some();
        if let Some(contested) = self.contests.take(&name, &mut writes, has_import, now) {
            self.ask_for_writer(name.clone(), contested);
        }
        self.acceptances.leave_out(&mut writes, now);
        let wanted = import_writes(&writes);
        let none = BTreeMap::new();
        let present = self.state.own.imported_slices(&name).unwrap_or(&none);
        let causes = self.state.causes.take(&name);
        let paced = self.pace.limit(&name, &mut writes, now);
        let limited = self.budgets.take(&name, &mut writes, &causes, present, now);
        self.pace.spend(&name, &writes, now);
        if waits || import_writes(&writes) < wanted {
            self.state.causes.put_back(&name, causes);
        }
        if let Some(until) = paced.into_iter().chain(limited).min() {
            self.state.imports.defer(name.clone(), until);
        }
        if writes.is_empty() {
            self.state.imports.end(&name, false, now);
            return;
        }
        let adopts = self.settings.adopt;
        let requests: Vec<_> =
            writes.iter().map(|write| own_request(write, &self.state.own, adopts)).collect();
        let sending = Sending::new(writes, present.keys().cloned());
        self.state.imports.begin(name.clone());
        let (access, leads) = (Arc::clone(&self.access), self.leads.clone());
        self.tasks.push(Box::pin(async move {
            let result = send_import(&access, &leads, sending, &requests).await;
            TaskResult::Import(name, result)
        }));
    }

    /// Writes the conditions of ServiceExports with a name that no Service can have.
    pub(super) fn judge_misnamed(&mut self) {
        let own = &self.state.own;
        let waiting = own.misnamed().iter().filter(|key| !self.judging.contains(*key));
        let room = AT_A_TIME.saturating_sub(self.judging.len());
        for key in waiting.take(room).cloned().collect::<Vec<_>>() {
            let request = misnamed_request(&key, own);
            self.judging.insert(key.clone());
            let access = Arc::clone(&self.access);
            self.tasks.push(Box::pin(async move {
                let result = request.send(&access).await;
                TaskResult::Misnamed(key, result)
            }));
        }
    }

    /// Asks who else writes an object. One request at a time: there may be thousands of objects.
    fn ask_for_writer(&mut self, name: ServiceName, contested: Contested) {
        if !self.writers.may_ask() {
            return;
        }
        let access = Arc::clone(&self.access);
        let (exports, imports) = (self.state.own.export_version(), self.state.own.import_version());
        let resource = contested.part.resource(exports, imports);
        self.tasks.push(Box::pin(async move {
            let field = contested.part.field();
            let result = other_writer(&access, &resource, &contested.key, field).await;
            TaskResult::Writer(name, contested, result)
        }));
    }

    fn publish(&mut self, name: ServiceName) {
        let (mut writes, is_outgoing) = self.state.plan_publication(&name);
        self.state.note_outgoing(&name, is_outgoing);
        let now = Instant::now();
        if self.state.is_answered(&name)
            && let Some(until) = self.publication_budget.take_publication(&name, &mut writes, now)
        {
            self.state.publications.defer(name, until);
            return;
        }
        let mailbox = &self.settings.mailbox;
        let cluster = self.state.cluster();
        let view = &self.state.own_mailbox;
        let term = &mut self.term;
        let request = |write: MailboxWrite| {
            let request = mailbox_request(&write, mailbox, cluster, view, term.next_stamp())?;
            Some((write, request))
        };
        let (writes, requests): (Vec<_>, Vec<_>) = writes.into_iter().filter_map(request).unzip();
        if requests.is_empty() {
            self.state.publications.end(&name, false, Instant::now());
            self.state.note_publication(&name, &Sent::default());
            return;
        }
        let slices = view.seen_slices(&name).into_iter().flat_map(BTreeMap::keys).cloned();
        let sending = Sending::new(writes, slices.collect::<Vec<_>>());
        self.state.publications.begin(name.clone());
        let access = Arc::clone(&self.outbox.access);
        self.tasks.push(Box::pin(async move {
            let sent = send_plan(&access, || true, sending, &requests, |_, _| false).await;
            TaskResult::Publication(name, sent)
        }));
    }

    /// Writes the ClusterProperties for the agents of this cluster, traffic to source clusters and the ranges of
    /// ClusterSetIPs, if they have changed.
    pub(super) fn write_properties(&mut self) {
        if !self.state.is_synced() || !self.state.own.may_write_properties() {
            return;
        }
        self.note_properties(self.state.own.published_properties().1);
        let now = Instant::now();
        self.note_settings(now);
        let traffic = self.state.traffic_property(now).map(|traffic| traffic.to_value());
        self.write_property(TRAFFIC_PROPERTY, traffic);
        let ranges = self.state.vip_ranges_property();
        self.note_untold(VIP_RANGES_PROPERTY, "read", ranges.as_ref().err().cloned());
        let ranges = ranges.ok().flatten().map(|ranges| ranges.to_value());
        self.write_property(VIP_RANGES_PROPERTY, ranges);
    }

    fn write_property(&mut self, name: &'static str, value: Option<String>) {
        let Some(value) = value else { return };
        if !self.property_writes.begin(name, &value, Instant::now()) {
            return;
        }
        let request = property_request(self.state.own.property_version(), name, &value);
        let access = Arc::clone(&self.access);
        self.tasks.push(Box::pin(async move {
            TaskResult::Property(name, value, request.send(&access).await)
        }));
    }

    /// Handles a change of the publisher of the mailbox.
    pub(super) fn observe_lease(&mut self) {
        if !self.state.is_own_mailbox() {
            return;
        }
        let now = Instant::now();
        let (lease, lists) = (self.state.own_mailbox.lease(), self.state.own_mailbox.lists());
        match self.term.observe(lease, lists, now) {
            Change::None => {}
            Change::Began => self.begin_term(),
            Change::Lost => tracing::error!("this controller publishes nothing any more"),
        }
        let problem = self.term.problem(now).filter(|_| self.is_leader);
        self.state.note_rival(problem);
    }

    /// Publishes everything again.
    pub(super) fn begin_term(&mut self) {
        self.term.follow(self.state.own_mailbox.latest_stamp());
        self.state.begin_term(self.term.epoch());
    }

    /// Renews the Lease, which tells readers what is published and that this publisher lives.
    fn renew_lease(&mut self) {
        if !self.state.is_own_mailbox() {
            return;
        }
        let statement = self.state.statement();
        let membership = self.state.membership();
        if let Some(request) = self.term.next(statement, &membership, Instant::now()) {
            let access = Arc::clone(&self.outbox.access);
            self.tasks
                .push(Box::pin(async move { TaskResult::Lease(request.send(&access).await) }));
        }
    }

    /// Releases the Lease, so that the next publisher can begin at once.
    pub(super) async fn release_lease(&mut self) {
        let membership = self.state.membership();
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
