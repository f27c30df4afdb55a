//! Two sets of config maps that hold the same, while programs are switched from one to the other.

use crate::reconcile::{MapError, Maps, Step};

/// The config maps that programs read, and the larger ones that they are being switched to.
///
/// Each write goes to both, so both are right whichever of them a program reads. A write that
/// succeeds in one and fails in the other counts as failed: [`Maps::write`] allows a failed write to
/// have taken effect, so the plan that follows is right for either.
#[derive(Clone, Debug)]
pub struct Mirror<M> {
    current: M,
    next: Option<M>,
}

impl<M: Maps> Mirror<M> {
    /// Only one set of maps.
    pub const fn new(current: M) -> Self {
        Self { current, next: None }
    }

    /// The maps that programs read, or did before the switch began.
    pub const fn current(&self) -> &M {
        &self.current
    }

    /// The maps that programs are being switched to.
    pub const fn next(&self) -> Option<&M> {
        self.next.as_ref()
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
        match &mut self.next {
            // The wait above was for the readers of all maps.
            Some(next) if *step != Step::WaitForReaders => next.write(step),
            _ => Ok(()),
        }
    }

    fn reader(&self) -> &M::Reader {
        self.current.reader()
    }
}
