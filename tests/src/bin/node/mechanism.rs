//! How programs are attached to devices.

use std::fmt;

/// `--tc-attach`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mechanism {
    Tcx,
    Clsact,
}

impl Mechanism {
    pub(crate) const BOTH: [Self; 2] = [Self::Tcx, Self::Clsact];
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        })
    }
}
