//! A problem that a rule finds in an object.

use std::fmt::Display;

use mcs_kube::reasons::Coded as _;

use crate::core::model::{ObjectRef, Rejection, RejectionReason};

/// A part of an object that cannot be used. The rule knows the value; its caller adds the object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ObjectProblem {
    pub(crate) reason: RejectionReason,
    /// One complete sentence: the value and what to do.
    pub(crate) message: String,
}

impl ObjectProblem {
    pub(crate) fn new(reason: RejectionReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// The table of reasons says what to do.
    pub(super) fn advised(reason: RejectionReason, fact: impl Display) -> Self {
        Self::new(reason, format!("{fact}; {}", reason.advice()))
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
