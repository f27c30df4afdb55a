//! ExportRules: a rule exports the Services of its namespace that it selects, without a ServiceExport by a person. It costs a
//! watch of the rules.

mod object;
mod rules;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use mcs_kube::{ResourceEvent, ResourceWatch, WatchTarget};
use tokio::sync::mpsc;

use self::{object::ExportRuleDecoder, rules::ExportRules};
use crate::core::{
    clusterset::{ExportSource, ServiceName, well_known},
    control::{Planned, State},
    feature::{Core, Entry, Feature},
    feed::{Feed, changes},
    objects::OWN_VERSION,
    own_cluster::OwnCluster,
    plan::Write,
};

/// How many events may wait.
const WAITING: usize = 64;

/// The feature in the list.
pub(crate) const ENTRY: Entry =
    Entry { start: |_, _| Ok(Some(Box::new(Exporter::new()))), ..Entry::NONE };

/// Whether ExportRules select a Service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Selection {
    /// A rule selects it.
    Selected,
    /// No rule selects it: only a ServiceExport of a person exports it.
    NotSelected,
    /// The rules are unreadable, or were just deleted. Their exports stay.
    Unknown,
}

type Event = ResourceEvent<ExportRuleDecoder>;

struct Exporter {
    rules: ExportRules,
    feed: Feed,
    events: Option<mpsc::Receiver<Event>>,
    event: Option<Event>,
}

fn target() -> WatchTarget {
    let target = WatchTarget::all(well_known::GROUP, &[OWN_VERSION], "ExportRule", "exportrules");
    WatchTarget { without: Some("Services are exported by name alone"), ..target }
}

impl Exporter {
    fn new() -> Self {
        let (rules, feed) = (ExportRules::default(), Feed::new(&target()));
        Self { rules, feed, events: None, event: None }
    }

    /// Whether the rules can be read.
    const fn has_rules(&self) -> bool {
        self.feed.synced && self.feed.failure.is_none()
    }

    /// Whether rules select a Service. They skip this controller's own Services, and Services that stand for imports.
    fn selection(&self, name: &ServiceName, own: &OwnCluster) -> Selection {
        let service = own.service(name).filter(|service| {
            let writer = service.labels.get(well_known::MANAGED_BY);
            writer.is_none_or(|writer| writer != well_known::CONTROLLER)
                && !service.is_derived
                && matches!(service.source, ExportSource::Service(_))
        });
        let selection =
            service.map(|service| self.rules.selection(name.namespace(), &service.labels));
        match selection.unwrap_or(Selection::NotSelected) {
            Selection::NotSelected if !self.has_rules() => Selection::Unknown,
            selection => selection,
        }
    }

    /// Takes an event of the rules.
    fn take(&mut self, event: Event, state: &mut State) {
        let was_synced = self.feed.synced;
        self.feed.record_and_log(&event);
        if !was_synced && self.feed.synced {
            state.unread = state.unread.saturating_sub(1);
        }
        let changed = changes(event).into_iter().flat_map(|change| self.rules.change(change));
        let changed: BTreeSet<_> = changed.collect();
        self.queue(&changed, state);
    }

    /// Forgets deleted rules after their grace time.
    fn forget(&mut self, state: &mut State, now: Instant) {
        if self.has_rules() {
            let namespaces = self.rules.forget(now);
            self.queue(&namespaces, state);
        }
    }

    /// Queues what rules of these namespaces concern.
    fn queue(&mut self, namespaces: &BTreeSet<Arc<str>>, state: &mut State) {
        if namespaces.is_empty() {
            return;
        }
        state.own.followed = self.rules.namespaces().cloned().collect();
        let is_meant = |name: &&ServiceName| namespaces.contains(name.namespace());
        for name in state.own.exported().filter(is_meant).cloned().collect::<Vec<_>>() {
            self.note_changed(&name, state);
        }
        state.queue_in(namespaces);
    }
}

/// The write that makes a Service exported as ExportRules say. `is_made`: whether this controller created the
/// ServiceExport, if there is one. A ServiceExport by a person stays.
fn plan_export(name: &ServiceName, is_made: Option<bool>, selection: Selection) -> Option<Write> {
    match (is_made, selection) {
        (None, Selection::Selected) => Some(Write::CreateExport(name.clone())),
        (Some(true), Selection::NotSelected) => Some(Write::DeleteExport(name.clone())),
        _ => None,
    }
}

impl Feature for Exporter {
    fn begin(&mut self, core: &mut Core) {
        core.state.unread += 1;
        let (sender, events) = mpsc::channel(WAITING);
        self.events = Some(events);
        let access = Arc::clone(&core.access);
        tokio::spawn(async move {
            ResourceWatch::new(&access, target(), sender, |event| event).run().await;
        });
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(events) = &mut self.events else { return Poll::Pending };
        self.event = ready!(events.poll_recv(cx));
        // A watch ends with the process alone.
        if self.event.is_some() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn act(&mut self, core: &mut Core, now: Instant) {
        if let Some(event) = self.event.take() {
            self.take(event, &mut core.state);
        }
        self.forget(&mut core.state, now);
    }

    /// The annotations of rules are those of the exports that they have made.
    fn note_changed(&mut self, name: &ServiceName, state: &mut State) {
        let is_made = state.own.export_object(name).is_some_and(|export| export.is_made);
        let service = state.own.service(name).filter(|_| is_made);
        let annotations =
            service.map(|service| self.rules.annotations(name.namespace(), &service.labels));
        state.own.give_annotations(name, annotations.unwrap_or_default());
    }

    fn note_planned(&mut self, plan: &Planned, writes: &mut Vec<Write>, state: &mut State) {
        let name = &plan.name;
        let is_made = state.own.export_object(name).map(|export| export.is_made);
        let is_allowed = state.exports.allows(name.namespace());
        let selection =
            if is_allowed { self.selection(name, &state.own) } else { Selection::Unknown };
        writes.extend(plan_export(name, is_made, selection));
    }
}
