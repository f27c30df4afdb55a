//! A finding of `explain`: a code for programs, a sentence for people, and advice.

use serde::Serialize;

/// The weight of a finding, for the exit status.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Clients are not served as they should be: exit 1.
    Wrong,
    /// It could not be found out: exit 3, if nothing is wrong.
    Unknown,
    /// It is worth knowing.
    Note,
}

impl Severity {
    /// As serialised.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wrong => "wrong",
            Self::Unknown => "unknown",
            Self::Note => "note",
        }
    }

    /// The exit status of a command that finds this, and nothing worse.
    #[must_use]
    pub const fn exit_status(self) -> u8 {
        match self {
            Self::Wrong => 1,
            Self::Unknown => 3,
            Self::Note => 0,
        }
    }
}

/// A kind of finding. The names are stable.
pub trait FindingCode: Copy {
    /// For programs.
    fn name(self) -> &'static str;
    /// Its weight, for the exit status.
    fn severity(self) -> Severity;
    /// What to do.
    fn advice(self) -> &'static str;
}

/// A finding.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// Its weight, for the exit status.
    pub severity: Severity,
    /// The name of a [`FindingCode`], or a reason of the rules, with hyphens.
    pub code: String,
    /// The fact.
    pub message: String,
    /// The advice; empty if the message says it.
    pub advice: &'static str,
}

impl Finding {
    /// A finding with this code.
    pub fn new(code: impl FindingCode, message: impl Into<String>) -> Self {
        let (severity, advice) = (code.severity(), code.advice());
        Self { severity, code: code.name().to_owned(), message: message.into(), advice }
    }

    /// Whether it has this code.
    #[must_use]
    pub fn is(&self, code: impl FindingCode) -> bool {
        self.code == code.name()
    }

    /// For people, without the advice.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{} [{}] {}", self.severity.name(), self.code, self.message)
    }
}
