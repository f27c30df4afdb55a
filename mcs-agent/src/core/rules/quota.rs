//! Room for a limited number of things, and what to say when it runs out.

use std::collections::BTreeSet;

use super::problem::ObjectProblem;
use crate::core::model::RejectionReason;

/// How many things of a kind fit, and how many all objects together want.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    allowed: usize,
    /// The things, in the plural.
    noun: &'static str,
    wanted: usize,
}

impl Limit {
    pub(super) fn new(allowed: u32, noun: &'static str, wanted: usize) -> Self {
        Self { allowed: usize::try_from(allowed).unwrap_or(usize::MAX), noun, wanted }
    }

    pub(super) fn fits(&self, total: usize) -> bool {
        total <= self.allowed
    }

    /// Whether everything that is wanted fits.
    pub(super) fn suffices(&self) -> bool {
        self.fits(self.wanted)
    }

    pub(super) fn exceeded(&self, what: &str) -> ObjectProblem {
        let Self { allowed, noun, wanted } = self;
        let room = format!("{wanted} {noun} are wanted and --max-memory has room for {allowed}");
        ObjectProblem::advised(RejectionReason::Capacity, format_args!("{what}: {room}"))
    }
}

/// A limit that is used up one by one. It reserves room for entries that are in force.
#[derive(Debug)]
pub(super) struct Quota<T> {
    limit: Limit,
    /// The entries in force that have not taken their room yet.
    reserved: BTreeSet<T>,
    taken: usize,
}

impl<T: Ord> Quota<T> {
    /// Reserves room for the entries that are in force and wanted.
    pub(super) fn new(limit: Limit, reserved: BTreeSet<T>) -> Self {
        Self { limit, reserved, taken: 0 }
    }

    /// Takes room for one. `what` names it in the problem if there is none.
    pub(super) fn take(
        &mut self,
        who: &T,
        what: impl FnOnce() -> String,
    ) -> Result<(), ObjectProblem> {
        let others = if self.reserved.remove(who) { 0 } else { self.reserved.len() };
        if !self.limit.fits(self.taken + others + 1) {
            return Err(self.limit.exceeded(&format!("{} does not fit", what())));
        }
        self.taken += 1;
        Ok(())
    }
}
