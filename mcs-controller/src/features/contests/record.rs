//! The objects that were written lately, and how often somebody else has rewritten each.

use std::{
    collections::{BTreeSet, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::{Duration, Instant},
};

use kube::api::{ApiResource, GroupVersionKind};
use mcs_kube::{Decoder, ObjectKey, ResourceEvent, reasons::Reason};

use crate::core::{
    clusterset::{ServiceName, derived_name},
    objects::MCS_GROUP,
    own_cluster::OwnEvent,
    plan::Write,
};

/// Rewrites that can be an upgrade or a person.
const PATIENCE: u32 = 5;
/// The delays after that: a second, twice as long each time, and ten minutes at most.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_mins(10);
/// An object that somebody has rewritten is forgotten after this time without a rewrite.
const PEACE: Duration = LONGEST_DELAY.saturating_mul(2);
/// An object that nobody has rewritten is forgotten so long after its last write: there may be many.
const MEMORY: Duration = Duration::from_mins(1);

/// What this controller and somebody else can both write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Part {
    /// The conditions of a ServiceExport.
    ExportConditions,
    /// A ServiceImport without its status.
    Import,
    /// The status of a ServiceImport.
    ImportStatus,
    /// An imported slice.
    Slice,
    /// A derived Service.
    DerivedService,
}

/// A part of an object.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Contested {
    /// Which part.
    pub(super) part: Part,
    /// The object.
    pub(super) key: ObjectKey,
}

/// The writes of one part of an object.
#[derive(Debug)]
struct Contest {
    /// The service that it belongs to.
    service: ServiceName,
    /// The content that was last sent, as a hash.
    sent: u64,
    /// The content that was last written. `None`: none yet.
    written: Option<u64>,
    /// Whether the object has changed since the latest write was planned.
    has_changed: bool,
    /// Whether the rewrite after the latest write is counted.
    is_counted: bool,
    /// Whether it was due since then.
    was_due: bool,
    /// How often others have rewritten this content.
    lost: u32,
    /// The latest rewrite; the latest write if there was none.
    latest: Instant,
    /// The same content is not written before that.
    next: Instant,
}

/// The objects that were written lately.
#[derive(Debug, Default)]
pub(super) struct Contests(HashMap<Contested, Contest>);

impl Contests {
    /// Notes which objects have changed.
    pub(super) fn observe(&mut self, event: &OwnEvent) {
        match event {
            OwnEvent::Exports(event) => self.note_changes(&[Part::ExportConditions], event),
            OwnEvent::Imports(event) => {
                self.note_changes(&[Part::Import, Part::ImportStatus], event);
            }
            OwnEvent::ImportedSlices(event) => self.note_changes(&[Part::Slice], event),
            OwnEvent::Services(event) => self.note_changes(&[Part::DerivedService], event),
            _ => {}
        }
    }

    fn note_changes<D: Decoder>(&mut self, parts: &[Part], event: &ResourceEvent<D>) {
        match event {
            ResourceEvent::Listed { .. } => {
                let listed = self.0.iter_mut().filter(|(one, _)| parts.contains(&one.part));
                listed.for_each(|(_, contest)| contest.has_changed = true);
            }
            ResourceEvent::Changed(object) | ResourceEvent::Deleted(object) => {
                for part in parts {
                    if let Some(contest) = self.0.get_mut(&Contested::new(*part, object.key())) {
                        contest.has_changed = true;
                    }
                }
            }
            _ => {}
        }
    }

    /// Removes writes of content that somebody else rewrites too often. Returns a part of an object whose contest begins,
    /// unless one of this kind is known for the service. `has_import`: whether the import is there.
    pub(super) fn take(
        &mut self,
        name: &ServiceName,
        writes: &mut Vec<Write>,
        has_import: bool,
        now: Instant,
    ) -> Option<Contested> {
        let (mut begun, mut holds_import) = (None, false);
        writes.retain(|write| {
            if holds_import && matches!(write, Write::SetImportStatus(..)) {
                return false;
            }
            let Some(contested) = Contested::by(write) else { return true };
            let contest = self.0.entry(contested.clone()).or_insert_with(|| Contest::of(name, now));
            let (is_held, begins) = contest.hold(content(write), now);
            // There is nothing to write the status of.
            holds_import |= !has_import && is_held && contested.part == Part::Import;
            if begins && begun.is_none() && !self.has_another(&contested, name) {
                begun = Some(contested);
            }
            !is_held
        });
        begun
    }

    /// Whether others rewrite another object of this kind that belongs to the service.
    fn has_another(&self, contested: &Contested, service: &ServiceName) -> bool {
        self.0.iter().any(|(one, contest)| {
            let is_alike = one.part == contested.part && contest.service == *service;
            is_alike && one != contested && contest.is_contested()
        })
    }

    /// Notes a write that the API server has accepted.
    pub(super) fn note(&mut self, write: &Write) {
        if let Some(contest) = Contested::by(write).and_then(|one| self.0.get_mut(&one)) {
            contest.written = Some(contest.sent);
            contest.is_counted = false;
        }
    }

    /// The services of which something may be written again, once each. Forgets objects that nobody else writes.
    pub(super) fn due(&mut self, now: Instant) -> BTreeSet<ServiceName> {
        self.0.retain(|_, contest| {
            let memory = if contest.lost > 0 { PEACE } else { MEMORY };
            now.saturating_duration_since(contest.latest) < memory
        });
        let due = self.0.values_mut().filter(|contest| contest.is_due(now)).map(|contest| {
            contest.was_due = true;
            contest.service.clone()
        });
        due.collect()
    }

    /// How many objects of each kind somebody else writes too.
    pub(super) fn counts(&self) -> [(&'static str, usize); 4] {
        let mut counts =
            ["ServiceExport", "ServiceImport", "EndpointSlice", "Service"].map(|kind| (kind, 0));
        for (one, _) in self.0.iter().filter(|(_, contest)| contest.is_contested()) {
            for (_, count) in counts.iter_mut().filter(|(kind, _)| *kind == one.part.kind()) {
                *count += 1;
            }
        }
        counts
    }
}

impl Contested {
    fn new(part: Part, key: ObjectKey) -> Self {
        Self { part, key }
    }

    /// What a write writes. `None`: nothing that others keep rewriting.
    fn by(write: &Write) -> Option<Self> {
        let of = |part, name: &ServiceName| {
            Self::new(part, ObjectKey::new(name.namespace(), name.name()))
        };
        Some(match write {
            Write::SetExportConditions(name, _) => of(Part::ExportConditions, name),
            Write::ApplyImport(import) => of(Part::Import, &import.name),
            Write::SetImportStatus(name, _) => of(Part::ImportStatus, name),
            Write::ApplySlice(slice) => {
                let namespace = slice.service.namespace();
                Self::new(Part::Slice, ObjectKey::new(namespace, slice.name.clone()))
            }
            Write::ApplyDerivedService(import, _) => {
                let key = ObjectKey::new(import.namespace(), derived_name(import));
                Self::new(Part::DerivedService, key)
            }
            _ => return None,
        })
    }
}

impl Part {
    /// The kind of its objects.
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::ExportConditions => "ServiceExport",
            Self::Import | Self::ImportStatus => "ServiceImport",
            Self::Slice => "EndpointSlice",
            Self::DerivedService => "Service",
        }
    }

    /// These objects, for people.
    pub(super) const fn objects(self) -> &'static str {
        match self {
            Self::ExportConditions => "the conditions of ServiceExports",
            Self::Import => "ServiceImports of this controller",
            Self::ImportStatus => "the status of ServiceImports of this controller",
            Self::Slice => "EndpointSlices of this controller",
            Self::DerivedService => "derived Services of this controller",
        }
    }

    /// The reason of the event.
    pub(super) const fn reason(self) -> Reason {
        match self {
            Self::ExportConditions => Reason::StatusContested,
            Self::Import | Self::ImportStatus => Reason::ImportContested,
            Self::Slice => Reason::SlicesContested,
            Self::DerivedService => Reason::ServiceContested,
        }
    }

    /// The resource of its objects, by the served versions of ServiceExports and ServiceImports.
    pub(super) fn resource(self, exports: &str, imports: &str) -> ApiResource {
        let (group, version, plural) = match self {
            Self::ExportConditions => (MCS_GROUP, exports, "serviceexports"),
            Self::Import | Self::ImportStatus => (MCS_GROUP, imports, "serviceimports"),
            Self::Slice => ("discovery.k8s.io", "v1", "endpointslices"),
            Self::DerivedService => ("", "v1", "services"),
        };
        let kind = GroupVersionKind::gvk(group, version, self.kind());
        ApiResource::from_gvk_with_plural(&kind, plural)
    }

    /// The path of the field whose writer counts; empty: any field.
    pub(super) const fn field(self) -> &'static [&'static str] {
        match self {
            Self::ExportConditions => &["status", "conditions"],
            Self::ImportStatus => &["status"],
            Self::Import | Self::Slice | Self::DerivedService => &[],
        }
    }
}

/// A hash of what a write writes.
fn content(write: &Write) -> u64 {
    // A slice can have a hundred endpoints.
    if let Write::ApplySlice(slice) = write {
        return slice.fingerprint();
    }
    let mut hasher = DefaultHasher::new();
    format!("{write:?}").hash(&mut hasher);
    hasher.finish()
}

impl Contest {
    fn of(service: &ServiceName, now: Instant) -> Self {
        Self {
            service: service.clone(),
            sent: 0,
            written: None,
            has_changed: false,
            is_counted: false,
            was_due: false,
            lost: 0,
            latest: now,
            next: now,
        }
    }

    /// Whether the write of this content waits, and whether the contest begins.
    fn hold(&mut self, wanted: u64, now: Instant) -> (bool, bool) {
        let is_same = self.written == Some(wanted);
        let is_lost = is_same && self.has_changed && !self.is_counted;
        if is_lost {
            (self.is_counted, self.was_due) = (true, false);
            self.lost += 1;
            self.latest = now;
            let doublings = self.lost.saturating_sub(PATIENCE).min(16);
            let delay = FIRST_DELAY.saturating_mul(1 << doublings).min(LONGEST_DELAY);
            self.next = if self.is_contested() { now + delay } else { now };
        } else if !is_same && !self.is_contested() {
            self.lost = 0;
        }
        // What changes is written at once: a slice must follow its endpoints while somebody else rewrites its labels.
        let is_held = is_same && self.next > now;
        if !is_held {
            (self.sent, self.has_changed) = (wanted, false);
            if self.lost == 0 {
                self.latest = now;
            }
        }
        (is_held, is_lost && self.lost == PATIENCE)
    }

    const fn is_contested(&self) -> bool {
        self.lost >= PATIENCE
    }

    /// Whether the delay is over. A plan finds out once whether the write is still needed.
    fn is_due(&self, now: Instant) -> bool {
        self.is_contested() && self.is_counted && !self.was_due && self.next <= now
    }
}

/// Who takes part in contests.
#[derive(Debug, Default)]
pub(super) struct OtherWriters(BTreeSet<(Part, String)>);

/// The log names this many writers at most.
const MOST_WRITERS: usize = 16;

impl OtherWriters {
    /// Notes an answer. Returns whether it is new.
    pub(super) fn note(&mut self, part: Part, writer: &str) -> bool {
        self.0.len() < MOST_WRITERS && self.0.insert((part, writer.to_owned()))
    }
}

#[cfg(test)]
mod tests;
