use crate::model::{ObjectRef, Rejection, RejectionReason};

/// What a rule turns down. The rule knows the value, its caller the object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    pub(super) reason: RejectionReason,
    /// One sentence that stands alone: the value and what to do.
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(reason: RejectionReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// Puts it down to the object that asked.
    pub(super) fn of(self, object: &ObjectRef) -> Rejection {
        Rejection { object: object.clone(), reason: self.reason, message: self.message }
    }
}
