//! The suites, as data.

use std::fmt;

use crate::setup::Purpose;

/// One suite: a cargo command that exits with 0 if everything in it holds.
pub(super) struct Suite {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Whether it takes root: for namespaces, cgroups and loading programs.
    pub(super) root: bool,
    /// What setup has to provide. With [`Purpose::Build`] the agent and the binaries of mcs-tests are built first, in
    /// the release profile, and the command finds the agent's path in `MCS_AGENT`.
    pub(super) needs: &'static [Purpose],
    /// The arguments of cargo; for a binary of mcs-tests
    /// `["run", "--release", "--package", "mcs-tests", "--bin", NAME]`. One that has `--` takes no filter.
    pub(super) cargo: &'static [&'static str],
}

/// Every suite, in the order in which they run: the quick ones first.
pub(super) const SUITES: &[Suite] = &[
    Suite {
        name: "unit",
        about: "Unit, table and property tests, beside the code",
        root: false,
        needs: &[],
        cargo: &["test"],
    },
    Suite {
        name: "scenario",
        about: "From manifests to maps in memory, with writes that fail",
        root: false,
        needs: &[],
        cargo: &["run", "--package", "mcs-tests", "--bin", "scenario"],
    },
    Suite {
        name: "cost",
        about: "What the programs cost those who use no VIP, against a budget",
        root: true,
        needs: &[Purpose::Build],
        cargo: &["run", "--release", "--package", "mcs-tests", "--bin", "cost"],
    },
    Suite {
        name: "scenario-kernel",
        about: "The same on the maps of the kernel",
        root: true,
        needs: &[Purpose::Build],
        cargo: &["run", "--release", "--package", "mcs-tests", "--bin", "scenario-kernel"],
    },
    Suite {
        name: "flows",
        about: "The flow table as the agent keeps it, on the maps of the kernel",
        root: true,
        needs: &[Purpose::Build],
        cargo: &["run", "--release", "--package", "mcs-tests", "--bin", "flows"],
    },
    Suite {
        name: "socket",
        about: "Every hook, family and protocol with real sockets",
        root: true,
        needs: &[Purpose::Build],
        cargo: &["run", "--release", "--package", "mcs-tests", "--bin", "socket"],
    },
    Suite {
        name: "packet",
        about: "The packet path's programs, packet by packet, without a network",
        root: true,
        needs: &[Purpose::Build],
        cargo: &["run", "--release", "--package", "mcs-tests", "--bin", "packet"],
    },
    Suite {
        name: "node",
        about: "The packet path with real traffic, both CNI layouts, netfilter and other programs",
        root: true,
        needs: &[Purpose::Build, Purpose::Test],
        cargo: &["run", "--release", "--package", "mcs-tests", "--bin", "node"],
    },
    Suite {
        name: "demo",
        about: "The demonstration, which checks what it shows",
        root: true,
        needs: &[Purpose::Build, Purpose::Demo],
        cargo: &["run", "--quiet", "--package", "xtask", "--", "demo"],
    },
];

/// Suites that may be skipped where `CI` is set; any other skip fails there.
pub(super) const SKIPS_ALLOWED_IN_CI: &[&str] = &[];

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let root = if self.root { "root" } else { "" };
        write!(f, "{:<17}{root:<6}{}", self.name, self.about)
    }
}
