//! The order in which the writes of a plan are sent when some of them fail.

use std::{collections::BTreeSet, sync::Arc};

use super::Write;
use crate::core::clusterset::ClusterId;

/// How a task has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The API server has accepted it.
    Done,
    /// It has failed: nobody knows why, or it may be right the next time.
    Failed,
    /// The API server refuses the object.
    Refused,
    /// The API server refuses it because a quota has no room for another object.
    NoRoom,
    /// It waits for a time, and is not sent now.
    Held,
}

impl Ending {
    /// Whether the API server refuses the object itself.
    pub const fn is_refusal(self) -> bool {
        matches!(self, Self::Refused | Self::NoRoom)
    }

    const fn is_failure(self) -> bool {
        !matches!(self, Self::Done)
    }
}

/// A slice, and the cluster whose endpoints it has; `None`: this one.
pub type SliceOf<'a> = (&'a Arc<str>, Option<&'a ClusterId>);

/// A write whose place depends on others.
pub trait Ordered {
    /// The slice that it creates or replaces.
    fn applied(&self) -> Option<SliceOf<'_>>;

    /// The slice that it deletes.
    fn deleted(&self) -> Option<SliceOf<'_>>;

    /// Whether it may be sent although an earlier one has ended so. `slices`: those that are there. A refused object must
    /// stop neither updates nor deletions of the others.
    fn is_right_without(&self, failed: &Self, ending: Ending, slices: &BTreeSet<Arc<str>>) -> bool;
}

/// The writes of a plan, and how each has ended.
#[derive(Debug)]
pub struct Sending<W> {
    writes: Vec<W>,
    /// The ending of each write. Absent: not sent yet, or to be sent again.
    endings: Vec<Option<Ending>>,
    /// Writes that others of the plan may depend on.
    held: Vec<W>,
    /// The slices that are there of the service.
    slices: BTreeSet<Arc<str>>,
    /// A deletion that is sent early, to make room in a quota.
    makes_room: Option<usize>,
}

impl<W: Ordered> Sending<W> {
    /// `slices`: those that are there of the service.
    pub fn new(writes: Vec<W>, slices: impl IntoIterator<Item = Arc<str>>) -> Self {
        let endings = vec![None; writes.len()];
        let slices = slices.into_iter().collect();
        Self { writes, endings, held: vec![], slices, makes_room: None }
    }

    /// Sends no write that must not precede these, which are not sent now.
    #[must_use]
    pub fn without(self, held: Vec<W>) -> Self {
        Self { held, ..self }
    }

    /// The index of the next write to send.
    pub fn next_index(&mut self) -> Option<usize> {
        let first = self.makes_room.take();
        first.or_else(|| (0..self.writes.len()).find(|index| self.may_send(*index)))
    }

    /// The write at this index.
    pub fn write(&self, index: usize) -> Option<&W> {
        self.writes.get(index)
    }

    /// Notes how the write at this index has ended.
    pub fn end(&mut self, index: usize, ending: Ending) {
        let Some(write) = self.writes.get(index) else { return };
        match (write.applied(), write.deleted(), ending) {
            (Some((slice, _)), _, Ending::Done) => {
                self.slices.insert(Arc::clone(slice));
            }
            (_, Some((slice, _)), Ending::Done) => {
                self.slices.remove(slice);
            }
            (Some((_, cluster)), _, Ending::NoRoom) => {
                // Otherwise a full quota would keep slices of deleted pods.
                let goes = |later: &usize| {
                    let deleted = self.writes.get(*later).and_then(W::deleted);
                    deleted.is_some_and(|(_, of)| of == cluster) && self.may_send(*later)
                };
                self.makes_room = (index + 1..self.writes.len()).find(goes);
                if self.makes_room.is_some() {
                    return;
                }
            }
            _ => {}
        }
        if let Some(former) = self.endings.get_mut(index) {
            *former = Some(ending);
        }
    }

    /// Whether the write at this index has failed and is not sent again.
    pub fn has_failed(&self, index: usize) -> bool {
        self.endings.get(index).copied().flatten().is_some_and(Ending::is_failure)
    }

    /// Splits the writes into sent and unsent ones.
    pub fn finish(self) -> (Vec<W>, Vec<W>) {
        let (mut made, mut unsent) = (vec![], vec![]);
        for (write, ending) in self.writes.into_iter().zip(self.endings) {
            match ending {
                Some(Ending::Done) => made.push(write),
                Some(_) => {}
                None => unsent.push(write),
            }
        }
        (made, unsent)
    }

    fn may_send(&self, index: usize) -> bool {
        let is_unsent = self.endings.get(index).is_some_and(Option::is_none);
        let ended = self.writes.iter().zip(&self.endings);
        let failed = ended.filter_map(|(write, ending)| {
            ending.filter(|ending| ending.is_failure()).map(|ending| (write, ending))
        });
        let held = self.held.iter().map(|write| (write, Ending::Held));
        let mut missing = failed.chain(held);
        let is_right = |write: &W| {
            missing.all(|(other, ending)| write.is_right_without(other, ending, &self.slices))
        };
        is_unsent && self.writes.get(index).is_some_and(is_right)
    }
}

impl Ordered for Write {
    fn applied(&self) -> Option<SliceOf<'_>> {
        match self {
            Self::ApplySlice(slice) => Some((&slice.name, Some(&slice.cluster))),
            _ => None,
        }
    }

    fn deleted(&self) -> Option<SliceOf<'_>> {
        match self {
            Self::DeleteSlice(_, cluster, slice) => Some((slice, Some(cluster))),
            _ => None,
        }
    }

    fn is_right_without(&self, failed: &Self, ending: Ending, slices: &BTreeSet<Arc<str>>) -> bool {
        match (failed, self) {
            // A former version of the slice is there, and the status says so much.
            (Self::ApplySlice(slice), Self::SetImportStatus(..)) if ending == Ending::Held => {
                slices.contains(&slice.name)
            }
            // Endpoints move between slices of one cluster. The next plan knows which of them.
            (Self::ApplySlice(slice), Self::DeleteSlice(_, cluster, name)) => {
                let is_last =
                    slice.has_derived_service && slices.len() == 1 && slices.contains(name);
                slice.cluster != *cluster && !is_last
            }
            // An import names a derived Service only while it has slices.
            (Self::ApplySlice(_), Self::ApplyImport(import)) => {
                !import.has_derived_service || !slices.is_empty()
            }
            (Self::ApplySlice(_), Self::ApplyDerivedService(..)) => !slices.is_empty(),
            // The status says what is there: after a failure, the next plan does. A Service is deleted after everything that
            // refers to it.
            (
                Self::ApplySlice(_) | Self::ApplyImport(_),
                Self::SetImportStatus(..) | Self::DeleteDerivedService(_),
            )
            | (Self::ApplyImport(_) | Self::SetImportStatus(..), Self::ApplyDerivedService(..))
            | (Self::SetImportStatus(..) | Self::DeleteSlice(..), Self::DeleteDerivedService(_))
            // The import goes before its slices.
            | (Self::DeleteImport(_), Self::DeleteSlice(..) | Self::DeleteDerivedService(_)) => {
                false
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::clusterset::{
        Import, ImportStatus, ImportedSlice,
        fixture::{cluster, imported_slice, name, spec},
    };

    fn slice(of: &str, name: &str) -> ImportedSlice {
        ImportedSlice { name: name.into(), ..imported_slice(of) }
    }

    fn deletion(of: &str, slice: &str) -> Write {
        Write::DeleteSlice(name("shop/web"), cluster(of), slice.into())
    }

    /// The indexes of the writes in the order in which they are sent. `ending` says how each one ends.
    fn sent(
        writes: &[Write],
        slices: &[&str],
        mut ending: impl FnMut(usize) -> Ending,
    ) -> Vec<usize> {
        let mut sending = Sending::new(writes.to_vec(), slices.iter().map(|name| (*name).into()));
        let mut indexes = Vec::new();
        while let Some(index) = sending.next_index() {
            indexes.push(index);
            assert!(indexes.len() < 100, "it does not end: {indexes:?}");
            sending.end(index, ending(index));
        }
        indexes
    }

    fn failing(failed: usize) -> impl FnMut(usize) -> Ending {
        move |index| if index == failed { Ending::Failed } else { Ending::Done }
    }

    #[test]
    fn a_slice_that_fails_stops_its_cluster_alone() {
        let status = Write::SetImportStatus(name("shop/web"), ImportStatus::default());
        let writes = [
            Write::ApplySlice(slice("c2", "web-1")),
            Write::ApplySlice(slice("c3", "web-2")),
            status,
            Write::SetExportConditions(name("shop/web"), vec![]),
            deletion("c2", "web-3"),
            deletion("c3", "web-4"),
        ];
        assert_eq!(sent(&writes, &["web-3", "web-4"], failing(0)), [0, 1, 3, 5]);
        assert_eq!(sent(&writes, &["web-3", "web-4"], failing(1)), [0, 1, 3, 4]);
        assert_eq!(sent(&writes, &["web-3", "web-4"], failing(2)), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn under_a_quota_a_slice_that_goes_makes_room() {
        let writes = [
            Write::ApplySlice(slice("c2", "web-1")),
            Write::ApplySlice(slice("c2", "web-2")),
            deletion("c3", "web-3"),
            deletion("c2", "web-4"),
            deletion("c2", "web-5"),
        ];
        let slices = ["web-3", "web-4", "web-5"];
        let mut room = 0;
        let indexes = sent(&writes, &slices, |index| {
            if index >= 2 {
                room += 1;
            } else if room == 0 {
                return Ending::NoRoom;
            } else {
                room -= 1;
            }
            Ending::Done
        });
        assert_eq!(indexes, [0, 3, 0, 1, 4, 1, 2]);
        let full = |index| if index < 2 { Ending::NoRoom } else { Ending::Done };
        assert_eq!(sent(&writes, &slices, full), [0, 3, 0, 4, 0, 1, 2], "others have the room");
    }

    #[test]
    fn slices_go_although_the_import_cannot_be_written() {
        let shop = name("shop/web");
        let writes = [
            Write::SetImportStatus(shop.clone(), ImportStatus::default()),
            Write::SetExportConditions(shop.clone(), vec![]),
            deletion("c2", "web-1"),
        ];
        assert_eq!(sent(&writes, &["web-1"], |_| Ending::Failed), [0, 1, 2]);
        let writes = [Write::DeleteImport(shop.clone()), deletion("c2", "web-1")];
        assert_eq!(sent(&writes, &["web-1"], failing(0)), [0], "the import goes first");
    }

    /// What is sent without the slice `web` of c2, which waits.
    fn sent_without(slice: &ImportedSlice, writes: &[Write], slices: &[&str]) -> Vec<usize> {
        let there = slices.iter().map(|name| (*name).into());
        let held = vec![Write::ApplySlice(slice.clone())];
        let mut sending = Sending::new(writes.to_vec(), there).without(held);
        std::iter::from_fn(|| {
            let index = sending.next_index()?;
            sending.end(index, Ending::Done);
            Some(index)
        })
        .collect()
    }

    #[test]
    fn a_slice_that_waits_holds_up_what_follows_it() {
        let status = Write::SetImportStatus(name("shop/web"), ImportStatus::default());
        let writes = [
            Write::ApplySlice(slice("c3", "web-2")),
            status,
            deletion("c2", "web-3"),
            deletion("c3", "web-4"),
        ];
        let waits = slice("c2", "web");
        assert_eq!(sent_without(&waits, &writes, &["web-3", "web-4"]), [0, 3]);
        let there = ["web", "web-3", "web-4"];
        assert_eq!(sent_without(&waits, &writes, &there), [0, 1, 3], "with other endpoints");
    }

    #[test]
    fn an_import_names_no_derived_service_before_its_first_slice() {
        let import = Write::ApplyImport(Import {
            name: name("shop/web"),
            ips: vec![],
            spec: spec(),
            has_derived_service: true,
            tiers: None,
        });
        let service = Write::ApplyDerivedService(name("shop/web"), vec![]);
        let writes = [import, service, deletion("c3", "web-4")];
        let waits = ImportedSlice { has_derived_service: true, ..slice("c2", "web") };
        assert!(sent_without(&waits, &writes[..2], &[]).is_empty());
        assert_eq!(sent_without(&waits, &writes, &["web-4"]), [0, 1], "the last slice stays");
        assert_eq!(sent_without(&waits, &writes, &["web-4", "web"]), [0, 1, 2]);
    }

    #[test]
    fn what_was_made_and_what_was_not_sent_is_told() {
        let writes = [
            Write::ApplySlice(slice("c2", "web-1")),
            Write::ApplySlice(slice("c3", "web-2")),
            deletion("c2", "web-3"),
        ];
        let mut sending = Sending::new(writes.to_vec(), ["web-3".into()]);
        while let Some(index) = sending.next_index() {
            assert!(!sending.has_failed(index), "it does not end");
            sending.end(index, if index == 0 { Ending::Failed } else { Ending::Done });
        }
        assert_eq!(sending.finish(), (vec![writes[1].clone()], vec![writes[2].clone()]));
    }
}
