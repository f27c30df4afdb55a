//! Cached results for a slice: a change of one slice then costs nothing for the other slices of its service.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use mcs_kube::reasons::Rejection;

use super::{ClusterId, EndpointCount, EndpointRules, ServiceName};

/// The cached results. They are no content: equality ignores them, and a clone, which may change, starts without them.
#[derive(Default)]
pub struct Memo {
    copied: Mutex<Option<(Arc<CopyRules>, Copied)>>,
    content: OnceLock<u64>,
}

/// Everything that decides the content of a copy, apart from the slice and its stamp.
#[derive(PartialEq, Eq, Debug)]
pub struct CopyRules {
    pub(super) name: ServiceName,
    pub(super) source: ClusterId,
    pub(super) importer: ClusterId,
    pub(super) has_derived_service: bool,
    pub(super) has_zone_hints: bool,
    pub(super) is_headless: bool,
    pub(super) ports: BTreeSet<Arc<str>>,
    pub(super) endpoints: Arc<EndpointRules>,
}

/// The properties of the copy of a slice.
#[derive(Clone, Debug)]
pub struct Copied {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// [`ImportedSlice::fingerprint`](super::ImportedSlice::fingerprint).
    pub fingerprint: u64,
    /// The number of endpoints that it lacks, by reason.
    pub rejected: BTreeMap<Rejection, usize>,
    /// The endpoints that the copy has.
    pub endpoints: EndpointCount,
}

impl Memo {
    /// The copy by these rules, if [`Memo::note_copied`] has stored it.
    pub fn copied(&self, rules: &Arc<CopyRules>) -> Option<Copied> {
        let mut noted = self.copied.lock().unwrap_or_else(PoisonError::into_inner);
        let (of, copied) = noted.as_mut().filter(|(of, _)| of == rules)?;
        // All slices of a service share one allocation of the rules.
        of.clone_from(rules);
        Some(copied.clone())
    }

    /// Stores the copy by these rules.
    pub fn note_copied(&self, rules: Arc<CopyRules>, copied: Copied) {
        note_work();
        *self.copied.lock().unwrap_or_else(PoisonError::into_inner) = Some((rules, copied));
    }

    /// A hash of the content, computed once.
    pub fn content(&self, compute: impl FnOnce() -> u64) -> u64 {
        *self.content.get_or_init(|| {
            note_work();
            compute()
        })
    }
}

impl Clone for Memo {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Memo {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Memo {}

impl fmt::Debug for Memo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memo")
    }
}

#[cfg(not(test))]
const fn note_work() {}

#[cfg(test)]
pub(crate) use self::work::{note_work, work};

#[cfg(test)]
mod work {
    use std::cell::Cell;

    thread_local! {
        static WORK: Cell<usize> = const { Cell::new(0) };
    }

    pub(crate) fn note_work() {
        WORK.set(WORK.get() + 1);
    }

    /// The number of slices that this thread has read since the last call.
    pub(crate) fn work() -> usize {
        WORK.take()
    }
}
