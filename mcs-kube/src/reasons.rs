//! The table of reasons: every code of a condition, an Event, a rejection, a finding or a check, with what
//! it means, what to do, and who can do it. `cargo xtask lint reasons --write` makes deploy/reasons.md from it.
#![expect(clippy::doc_markdown, reason = "the comments are the text of a document")]

mod checks;
mod conditions;
mod findings;
mod rejections;
mod states;

use serde::Serialize;

pub use self::{
    checks::{Check, ClusterCheck},
    conditions::Reason,
    findings::{Code, Fate},
    rejections::{LeftAloneReason, Rejection, RejectionReason},
    states::{ExportState, ImportState},
};

/// The document that has a heading for each code.
const DOCUMENT: &str = "https://github.com/mcs-agent/mcs-agent/blob/main/deploy/reasons.md";

/// The weight of a code. It decides the exit status of a command that finds it, and the `status` of a
/// condition of a ClusterPeer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Something is not as it should be: exit 1.
    Wrong,
    /// It is not known: exit 3, if nothing is wrong.
    Unknown,
    /// It is as it should be, or worth knowing.
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

/// A row of the table. The document also says who can do something: that is for people alone.
#[derive(Debug)]
pub struct Row {
    /// The code, as people and programs see it.
    pub name: &'static str,
    /// Its weight.
    pub severity: Severity,
    /// What it means.
    pub meaning: &'static str,
    /// What to do; empty if there is nothing to do.
    pub advice: &'static str,
}

/// A code of the table. The names are stable.
pub trait Coded: Copy {
    /// What is before the name in its heading: another kind of codes has the same name.
    const BEFORE: &'static str;

    /// What the table has of it.
    fn row(self) -> &'static Row;

    /// For programs.
    fn name(self) -> &'static str {
        self.row().name
    }

    /// Its weight.
    fn severity(self) -> Severity {
        self.row().severity
    }

    /// What to do; empty if there is nothing to do.
    fn advice(self) -> &'static str {
        self.row().advice
    }

    /// What it means, without the links of the document.
    fn meaning(self) -> String {
        let mut plain = String::new();
        let mut rest = self.row().meaning;
        while let Some((before, after)) = rest.split_once("](") {
            let (before, text) = before.rsplit_once('[').unwrap_or((before, ""));
            plain.extend([before, text]);
            rest = after.split_once(')').map_or("", |(_, rest)| rest);
        }
        plain + rest
    }

    /// Where the document explains it.
    fn link(self) -> String {
        link(&format!("{}{}", Self::BEFORE, self.name()))
    }
}

/// Where the document explains a code; the first one, of several with commas between.
#[must_use]
pub fn link(code: &str) -> String {
    let first = code.split(',').next().unwrap_or(code);
    // As GitHub makes an anchor of a heading.
    let kept = first.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    let anchor: String =
        kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect();
    format!("{DOCUMENT}#{anchor}")
}

/// A part of the table: its kind of codes, its heading, what is before the names in headings, and the page
/// about them. Then of each code the meaning, the name where it is not that of the variant, the severity, who
/// can do something, and what.
macro_rules! reasons {
    ($(#[doc = $about:literal])+ $kind:ident $heading:literal $before:literal $page:literal {
        $($(#[doc = $doc:literal])+ $code:ident $($name:literal)? $severity:ident $who:ident $advice:expr;)+
    }) => {
        $(#[doc = $about])+
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize,
        )]
        pub enum $kind {
            $($(#[doc = $doc])+ $(#[serde(rename = $name)])? $code,)+
        }

        impl $kind {
            /// Every code, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$code),+];
        }

        impl $crate::reasons::Coded for $kind {
            const BEFORE: &'static str = $before;

            fn row(self) -> &'static $crate::reasons::Row {
                const ROWS: &[$crate::reasons::Row] = &[$($crate::reasons::Row {
                    name: [$($name,)? stringify!($code)][0],
                    severity: $crate::reasons::Severity::$severity,
                    meaning: concat!($($doc),+).trim_ascii(),
                    advice: $advice,
                }),+];
                &ROWS[self as usize]
            }
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str($crate::reasons::Coded::name(*self))
            }
        }

        impl PartialEq<$kind> for String {
            fn eq(&self, code: &$kind) -> bool {
                self == $crate::reasons::Coded::name(*code)
            }
        }

    };
}
use reasons;
