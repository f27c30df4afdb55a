//! Two sets of config maps that hold the same, while the second one is made and programs are switched to it.

use std::collections::VecDeque;

use crate::reconcile::{MapError, Maps, Step};

/// The config maps that programs read, and the larger ones that they are being switched to.
///
/// While the larger ones are being made, the writes are noted, and then repeated on them: they were filled with what
/// there was before the first of these writes. A write that fails there later is noted too, and repeated before the
/// next one. So both sets of maps get the same writes in the same order.
#[derive(Clone, Debug)]
pub struct Mirror<M> {
    current: M,
    next: Option<M>,
    /// The writes that `next` lacks, once it is there.
    noted: VecDeque<Step>,
    /// Larger maps are being made.
    is_noting: bool,
}

impl<M: Maps> Mirror<M> {
    /// Only one set of maps.
    pub const fn new(current: M) -> Self {
        Self { current, next: None, noted: VecDeque::new(), is_noting: false }
    }

    /// The maps that programs read, or did before the switch began.
    pub const fn current(&self) -> &M {
        &self.current
    }

    /// The maps that programs are being switched to.
    pub const fn next(&self) -> Option<&M> {
        self.next.as_ref()
    }

    /// Begins to note writes: larger maps are being filled with what these hold now.
    pub fn begin_noting(&mut self) {
        self.is_noting = true;
    }

    /// Forgets the noted writes: the larger maps could not be made.
    pub fn end_noting(&mut self) {
        self.is_noting = false;
        self.noted.clear();
    }

    /// Repeats the noted writes on the larger maps, which no program reads yet. They hold what [`Mirror::current`]
    /// does after that, at the same indexes. Returns the writes.
    pub fn catch_up(&mut self, next: &mut M) -> Result<Vec<Step>, MapError> {
        self.is_noting = false;
        let noted = std::mem::take(&mut self.noted);
        noted.iter().try_for_each(|step| next.write(step))?;
        Ok(noted.into())
    }

    /// Begins to write these too. They hold what [`Mirror::current`] does, at the same indexes.
    pub fn set_next(&mut self, next: M) {
        self.next = Some(next);
    }

    /// Repeats the writes that the next maps lack.
    pub fn complete(&mut self) -> Result<(), MapError> {
        while let (Some(next), Some(step)) = (&mut self.next, self.noted.front()) {
            next.write(step)?;
            self.noted.pop_front();
        }
        Ok(())
    }

    /// Drops the former maps: all programs read the next ones, which are complete.
    pub fn advance(&mut self) {
        if let Some(next) = self.next.take() {
            self.current = next;
        }
    }
}

impl<M: Maps> Maps for Mirror<M> {
    type Reader = M::Reader;

    fn write(&mut self, step: &Step) -> Result<(), MapError> {
        self.current.write(step)?;
        if *step == Step::WaitForReaders {
            // For the readers of all maps.
            return Ok(());
        }
        if self.is_noting || self.next.is_some() {
            self.noted.push_back(step.clone());
        }
        self.complete()
    }

    fn reader(&self) -> &M::Reader {
        self.current.reader()
    }
}
