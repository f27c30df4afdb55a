//! A finding of `explain`: a code for programs, a sentence for people, advice, and where the code is explained.

use serde::Serialize;

use crate::{
    hanging,
    reasons::{Coded, Severity},
};

/// A finding.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// Its weight, for the exit status.
    pub severity: Severity,
    /// A code of the table of reasons; those of the rules with hyphens.
    pub code: String,
    /// The fact.
    pub message: String,
    /// The advice; empty if the message says it.
    pub advice: &'static str,
    /// The link to the explanation of the code.
    pub see: String,
}

impl Finding {
    /// A finding with this code.
    pub fn new(code: impl Coded, message: impl Into<String>) -> Self {
        let (severity, advice, see) = (code.severity(), code.advice(), code.link());
        Self { severity, code: code.name().to_owned(), message: message.into(), advice, see }
    }

    /// Whether it has this code.
    #[must_use]
    pub fn is(&self, code: impl Coded) -> bool {
        self.code == code.name()
    }

    /// For people, in lines of at most `width` columns.
    #[must_use]
    pub fn text(&self, width: usize) -> String {
        let Self { severity, code, message, advice, see } = self;
        let mut text = hanging(0, &format!("{} [{code}] {message}", severity.name()), width);
        if !advice.is_empty() {
            text += &hanging(2, &format!("-> {advice}"), width);
        }
        text + &hanging(2, see, width)
    }
}
