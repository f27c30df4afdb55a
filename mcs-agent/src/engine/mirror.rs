//! Two sets of config maps that hold the same, while the second one is made and programs are switched to it.

use crate::reconcile::{MapError, Maps, Step};

/// The config maps that programs read, and the larger ones that they are being switched to.
///
/// While the larger ones are being made, the writes are noted, and then repeated on them: they were filled with what
/// there was before the first of these writes.
///
/// Each write goes to both, so both are right whichever of them a program reads. A write that
/// succeeds in one and fails in the other counts as failed: [`Maps::write`] allows a failed write to
/// have taken effect, so the plan that follows is right for either.
#[derive(Clone, Debug)]
pub struct Mirror<M> {
    current: M,
    next: Option<M>,
    /// The writes since larger maps are being made.
    noted: Option<Vec<Step>>,
}

impl<M: Maps> Mirror<M> {
    /// Only one set of maps.
    pub const fn new(current: M) -> Self {
        Self { current, next: None, noted: None }
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
        self.noted = Some(Vec::new());
    }

    /// Forgets the noted writes: the larger maps could not be made.
    pub fn end_noting(&mut self) {
        self.noted = None;
    }

    /// Repeats the noted writes on the larger maps, which no program reads yet. They hold what [`Mirror::current`]
    /// does after that, at the same indexes. Returns the writes.
    pub fn catch_up(&mut self, next: &mut M) -> Result<Vec<Step>, MapError> {
        let noted = self.noted.take().unwrap_or_default();
        noted.iter().try_for_each(|step| next.write(step))?;
        Ok(noted)
    }

    /// Begins to write these too. They hold what [`Mirror::current`] does, at the same indexes.
    pub fn set_next(&mut self, next: M) {
        self.next = Some(next);
    }

    /// Drops the former maps: all programs read the next ones.
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
        if let Some(noted) = &mut self.noted {
            noted.push(step.clone());
        }
        self.next.as_mut().map_or(Ok(()), |next| next.write(step))
    }

    fn reader(&self) -> &M::Reader {
        self.current.reader()
    }
}
