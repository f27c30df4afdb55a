//! What must hold, and what is said when it does not.

use std::{error::Error, fmt};

/// What holds in every played clusterset.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::clustersets) enum Invariant {
    Kept,
    Address,
    Distinct,
    Alike,
    Form,
    Withdrawn,
    Converged,
    Still,
    Alive,
    Accepted,
    Served,
    Returned,
    Single,
    Prompt,
    Calm,
}

impl Invariant {
    #[cfg(test)]
    const ALL: [Self; 15] = [
        Self::Kept,
        Self::Address,
        Self::Distinct,
        Self::Alike,
        Self::Form,
        Self::Withdrawn,
        Self::Converged,
        Self::Still,
        Self::Alive,
        Self::Accepted,
        Self::Served,
        Self::Returned,
        Self::Single,
        Self::Prompt,
        Self::Calm,
    ];

    /// The sentence of tests/README.md.
    pub(in crate::clustersets) const fn sentence(self) -> &'static str {
        match self {
            Self::Kept => "silence, restarts and partial answers delete nothing",
            Self::Address => "an import keeps its addresses while it lives",
            Self::Distinct => "no two imports of a cluster share an address",
            Self::Alike => "clusters that see the same exports make the same import",
            Self::Form => "nothing is written that an API server would refuse for its form",
            Self::Withdrawn => "what was withdrawn is in no import after faults have ended",
            Self::Converged => "what is exported is in every import after faults have ended",
            Self::Still => "once all has settled, nothing is written any more",
            Self::Alive => "no controller panics or ends by itself",
            Self::Accepted => "agents reject nothing that controllers write",
            Self::Returned => "what was withdrawn does not come back",
            Self::Single => "one replica of a controller writes",
            Self::Prompt => {
                "a withdrawn endpoint is in no import ten seconds later while nothing is wrong"
            }
            Self::Calm => "nobody sends one request more than 600 times in ten minutes",
            Self::Served => "clients of an address go to the ready endpoints of its exports alone",
        }
    }

    pub(in crate::clustersets) fn broken(self, said: String) -> Broken {
        Broken { invariant: self, said }
    }
}

/// What does not hold.
#[derive(Debug)]
pub(in crate::clustersets) struct Broken {
    pub(in crate::clustersets) invariant: Invariant,
    pub(in crate::clustersets) said: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not so: {}: {}", self.invariant.sentence(), self.said)
    }
}

impl Error for Broken {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_each_sentence() {
        let document = include_str!("../../../README.md");
        for invariant in Invariant::ALL {
            assert!(document.contains(invariant.sentence()), "{}", invariant.sentence());
        }
    }
}
