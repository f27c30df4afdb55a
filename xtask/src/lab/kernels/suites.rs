//! The suites that run on kernels, and their commands.

use std::{collections::BTreeSet, fmt};

use clap::ValueEnum;

/// A suite, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Suite {
    /// Loads every program, and prints how many instructions the verifier looked at
    Load,
    /// Every hook, family and protocol with real sockets
    Socket,
    /// The agent ended, killed and started again, as another version too, under load of both paths
    Restart,
    /// The packet path's programs, packet by packet
    Packet,
}

impl Suite {
    /// Binaries of mcs-tests, and their arguments: libtest takes one filter.
    pub(super) const fn commands(self) -> &'static [(&'static str, &'static [&'static str])] {
        match self {
            Self::Load => &[("cost", &["--verified"])],
            Self::Packet => &[("packet", &[])],
            Self::Socket => &[("socket", &[])],
            Self::Restart => &[
                ("lifecycle", &["SIGTERM"]),
                ("lifecycle", &["SIGKILL"]),
                ("lifecycle", &["a restart changes nothing"]),
                ("lifecycle", &["an upgrade"]),
                ("node", &["the agent is killed"]),
            ],
        }
    }

    /// The binaries of `suites`, each once.
    pub(super) fn binaries(suites: &[Self]) -> BTreeSet<&'static str> {
        suites.iter().flat_map(|suite| suite.commands()).map(|(binary, _)| *binary).collect()
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Packet => "packet",
            Self::Socket => "socket",
            Self::Restart => "restart",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::value_variants().iter().copied().find(|suite| suite.name() == name)
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
