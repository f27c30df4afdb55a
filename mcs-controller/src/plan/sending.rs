//! The order in which the writes of a plan are sent when some of them fail.

use std::{collections::BTreeSet, sync::Arc};

use super::Write;

/// How a task has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The API server has accepted it.
    Done,
    /// It has failed.
    Failed,
    /// It has failed because a quota has no room for another object.
    NoRoom,
}

impl Ending {
    const fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::NoRoom)
    }
}

/// The writes of a plan, and how each has ended.
#[derive(Debug)]
pub struct Sending {
    writes: Vec<Write>,
    /// The ending of each write. Absent: not sent yet, or to be sent again.
    endings: Vec<Option<Ending>>,
    /// The slices that the cluster has of the service.
    slices: BTreeSet<Arc<str>>,
    /// A deletion that is sent early, to make room in a quota.
    makes_room: Option<usize>,
}

impl Sending {
    /// `slices`: those that the cluster has of the service.
    pub fn new(writes: Vec<Write>, slices: impl IntoIterator<Item = Arc<str>>) -> Self {
        let endings = vec![None; writes.len()];
        Self { writes, endings, slices: slices.into_iter().collect(), makes_room: None }
    }

    /// The index of the next write to send.
    pub fn next_index(&mut self) -> Option<usize> {
        let first = self.makes_room.take();
        first.or_else(|| (0..self.writes.len()).find(|index| self.may_send(*index)))
    }

    /// The write at this index.
    pub fn write(&self, index: usize) -> Option<&Write> {
        self.writes.get(index)
    }

    /// Notes how the write at this index has ended.
    pub fn end(&mut self, index: usize, ending: Ending) {
        match (self.writes.get(index), ending) {
            (Some(Write::ApplySlice(slice)), Ending::Done) => {
                self.slices.insert(Arc::clone(&slice.name));
            }
            (Some(Write::DeleteSlice(_, _, slice)), Ending::Done) => {
                self.slices.remove(slice);
            }
            (Some(Write::ApplySlice(slice)), Ending::NoRoom) => {
                // Otherwise a full quota would keep slices of deleted pods.
                self.makes_room = (index + 1..self.writes.len()).find(|later| {
                    let goes = matches!(self.writes.get(*later),
                        Some(Write::DeleteSlice(_, cluster, _)) if *cluster == slice.cluster);
                    goes && self.may_send(*later)
                });
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
    pub fn finish(self) -> (Vec<Write>, Vec<Write>) {
        let (mut made, mut unsent) = (vec![], vec![]);
        for (write, ending) in self.writes.into_iter().zip(self.endings) {
            match ending {
                Some(Ending::Done) => made.push(write),
                Some(Ending::Failed | Ending::NoRoom) => {}
                None => unsent.push(write),
            }
        }
        (made, unsent)
    }

    fn may_send(&self, index: usize) -> bool {
        let is_unsent = self.endings.get(index).is_some_and(Option::is_none);
        let ended = self.writes.iter().zip(&self.endings);
        let mut failed = ended.filter(|(_, ending)| ending.is_some_and(Ending::is_failure));
        is_unsent
            && self
                .writes
                .get(index)
                .is_some_and(|write| failed.all(|(failed, _)| self.is_right_without(write, failed)))
    }

    /// Whether a write may be sent after the failures of earlier ones. A refused slice must not stop other slices, and a
    /// refused import must not keep obsolete slices.
    fn is_right_without(&self, write: &Write, failed: &Write) -> bool {
        match (failed, write) {
            // Endpoints move between slices of one cluster.
            (Write::ApplySlice(slice), Write::DeleteSlice(_, cluster, name)) => {
                let is_last = slice.has_derived_service
                    && self.slices.len() == 1
                    && self.slices.contains(name);
                slice.cluster != *cluster && !is_last
            }
            // An import names a derived Service only while it has slices.
            (Write::ApplySlice(_), Write::ApplyImport(import)) => {
                !import.has_derived_service || !self.slices.is_empty()
            }
            (Write::ApplySlice(_), Write::ApplyDerivedService(..)) => !self.slices.is_empty(),
            // The status says that the import and all slices exist. A Service is deleted after everything that refers to
            // it.
            (
                Write::ApplySlice(_) | Write::ApplyImport(_),
                Write::SetImportStatus(..) | Write::DeleteDerivedService(_),
            )
            | (
                Write::ApplyImport(_) | Write::SetImportStatus(..),
                Write::ApplyDerivedService(..),
            )
            | (Write::SetImportStatus(..) | Write::DeleteSlice(..), Write::DeleteDerivedService(_))
            // The import goes before its slices.
            | (Write::DeleteImport(_), Write::DeleteSlice(..) | Write::DeleteDerivedService(_)) => {
                false
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusterset::{
        ImportStatus, ImportedSlice,
        fixture::{cluster, imported_slice, name},
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
