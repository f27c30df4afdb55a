//! A problem that a rule finds in an object.

use crate::model::{ObjectRef, Rejection, RejectionReason};

/// A part of an object that cannot be used. The rule knows the value; its caller adds the object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ObjectProblem {
    pub(super) reason: RejectionReason,
    /// One complete sentence: the value and what to do.
    pub(super) message: String,
}

impl ObjectProblem {
    pub(super) fn new(reason: RejectionReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// The rejection of this part of `object`.
    pub(super) fn of(self, object: &ObjectRef) -> Rejection {
        Rejection { object: object.clone(), reason: self.reason, message: self.message }
    }
}

/// The rejections of these parts of `object`.
pub(super) fn rejections(
    problems: Vec<ObjectProblem>,
    object: &ObjectRef,
) -> impl Iterator<Item = Rejection> {
    problems.into_iter().map(|problem| problem.of(object))
}
