//! Objects that somebody else rewrites. Two controllers that disagree about an object would rewrite it for ever, and everyone
//! who watches it would follow. This controller then writes the same content less and less often.

mod other_writer;
mod record;

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use mcs_kube::{ObjectKey, reasons::Coded as _};
use prometheus::IntGaugeVec;

use self::{
    other_writer::other_writer,
    record::{Contested, Contests, OtherWriters, Part},
};
use crate::core::{
    clusterset::ServiceName,
    control::{State, Update},
    feature::{Core, Entry, Feature, Question},
    plan::Write,
    server::Metrics,
    status::{Notice, Regarding},
};

/// The feature in the list.
pub(crate) const ENTRY: Entry = Entry {
    start: |_, wiring| Ok(Some(Box::new(Watcher::new(&wiring.published.metrics)?))),
    ..Entry::NONE
};

/// Who else writes an object of a service.
type Writer = (ServiceName, Contested, String);

struct Watcher {
    contests: Contests,
    writers: OtherWriters,
    /// One at a time: there may be thousands of objects.
    question: Question<Writer>,
    answer: Option<Writer>,
    /// By kind: objects of this controller that another one writes too.
    gauge: IntGaugeVec,
}

impl Watcher {
    fn new(metrics: &Metrics) -> prometheus::Result<Self> {
        Ok(Self {
            contests: Contests::default(),
            writers: OtherWriters::default(),
            question: Question::default(),
            answer: None,
            gauge: metrics.gauges(
                "mcs_controller_contested_objects",
                "Objects of this controller, and ServiceExports whose conditions it writes, that somebody else rewrites again and \
                 again",
                &["kind"],
            )?,
        })
    }

    fn ask(&mut self, name: ServiceName, contested: Contested, core: &Core) {
        if self.question.is_asked() {
            return;
        }
        let access = Arc::clone(&core.access);
        let own = &core.state.own;
        let resource = contested.part.resource(own.export_version(), own.import_version());
        self.question.ask(async move {
            let Contested { part, key } = &contested;
            let writer = other_writer(&access, &resource, key, part.field()).await;
            let writer = writer.unwrap_or_else(|error| {
                tracing::debug!("cannot ask who writes {} {key}: {error}", part.kind());
                None
            });
            (name, contested, writer.unwrap_or_else(|| "another controller".to_owned()))
        });
    }

    /// Reports who else writes an object.
    fn tell(&mut self, (name, Contested { part, key }, writer): &Writer, state: &mut State) {
        if self.writers.note(*part, writer) {
            let (objects, advice) = (part.objects(), part.reason().advice());
            tracing::warn!(
                "{writer} rewrites {objects}, such as {key}: this controller writes them less and less often: {advice}"
            );
        }
        state.notices.extend(notice(state, name, *part, key, writer));
    }
}

impl Feature for Watcher {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.question.poll(cx).map(|answer| self.answer = Some(answer))
    }

    fn act(&mut self, core: &mut Core, now: Instant) {
        if let Some(answer) = self.answer.take() {
            self.tell(&answer, &mut core.state);
        }
        if core.is_leader {
            for name in self.contests.due(now) {
                core.state.imports.add(name);
            }
            for (kind, count) in self.contests.counts() {
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                self.gauge.with_label_values(&[kind]).set(count);
            }
        }
    }

    fn lead(&mut self, _: bool, _: &mut State, _: Instant) {
        self.gauge.reset();
    }

    fn observe(&mut self, update: &Update) {
        if let Update::Own(event) = update {
            self.contests.observe(event);
        }
    }

    fn hold(&mut self, name: &ServiceName, writes: &mut Vec<Write>, core: &Core, now: Instant) {
        let has_import = core.state.own.import_object(name).is_some();
        if let Some(contested) = self.contests.take(name, writes, has_import, now) {
            self.ask(name.clone(), contested, core);
        }
    }

    fn note_written(&mut self, write: &Write, _: Instant) {
        self.contests.note(write);
    }

    #[cfg(test)]
    fn fill_metrics(&self) {
        self.gauge.with_label_values(&["Service"]).set(1);
    }
}

/// The event about an object of a service that somebody else keeps rewriting.
fn notice(
    state: &State,
    name: &ServiceName,
    part: Part,
    key: &ObjectKey,
    writer: &str,
) -> Option<Notice> {
    let own = &state.own;
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
    let regarding = Regarding::service(kind, version, name, uid);
    Some(Notice::new(regarding, part.reason(), note))
}
