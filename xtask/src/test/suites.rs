//! The suites, as data.

use std::fmt;

use crate::setup::Purpose;

/// What takes a build of its own.
#[derive(Clone, Copy, Debug)]
pub(super) enum Extra {
    /// The agent's image, which the command finds in `MCS_IMAGE`, and the program of clients and
    /// servers, in `MCS_TRAFFIC`.
    Images,
    /// The agent of another version, which the command finds in `MCS_AGENT_WIDE`.
    OtherVersion,
}

/// One suite: a cargo command that exits with 0 if everything in it holds.
pub(super) struct Suite {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Whether it takes root: for namespaces, cgroups and loading programs.
    pub(super) root: bool,
    /// What setup has to provide. With [`Purpose::Build`] the agent and the binaries of mcs-tests are built first, in
    /// the release profile, and the command finds the agent's path in `MCS_AGENT`; with [`Purpose::Clusters`] it finds the programs of a
    /// cluster in `MCS_PROGRAMS`.
    pub(super) needs: &'static [Purpose],
    /// What is built for few suites only.
    pub(super) extras: &'static [Extra],
    /// The arguments of cargo; for a binary of mcs-tests
    /// `["run", "--release", "--package", "mcs-tests", "--bin", NAME]`. One that has `--` takes no filter.
    pub(super) cargo: &'static [&'static str],
}

/// The suite that can run on anybody's clusters.
pub(super) const END_TO_END: &str = "e2e";

/// Every suite, in the order in which they run: the quick ones first.
pub(super) const SUITES: &[Suite] = &[
    Suite {
        name: "unit",
        about: "Unit, table and property tests, beside the code",
        root: false,
        needs: &[],
        extras: &[],
        cargo: &["test"],
    },
    Suite {
        name: "scenario",
        about: "From manifests to maps in memory, with writes that fail",
        root: false,
        needs: &[],
        extras: &[],
        cargo: &["run", "--package", "mcs-tests", "--bin", "scenario"],
    },
    Suite {
        name: "cost",
        about: "What the programs cost those who use no VIP, against a budget",
        root: true,
        needs: &[Purpose::Build],
        extras: &[],
        cargo: &["run", "--release", "--package", "mcs-tests", "--bin", "cost"],
    },
    Suite {
        name: "scenario-kernel",
        about: "The same on the maps of the kernel",
        root: true,
        needs: &[Purpose::Build],
        extras: &[],
        cargo: &["run", "--release", "--package", "mcs-tests", "--bin", "scenario-kernel"],
    },
    Suite {
        name: "flows",
        about: "The flow table as the agent keeps it, on the maps of the kernel",
        root: true,
        needs: &[Purpose::Build],
        extras: &[],
        cargo: &["run", "--release", "--package", "mcs-tests", "--bin", "flows"],
    },
    Suite {
        name: "socket",
        about: "Every hook, family and protocol with real sockets",
        root: true,
        needs: &[Purpose::Build],
        extras: &[],
        cargo: &["run", "--release", "--package", "mcs-tests", "--bin", "socket"],
    },
    Suite {
        name: "health",
        about: "What an agent tells over HTTP, with faults; metrics and alerts by promtool",
        root: true,
        needs: &[Purpose::Build, Purpose::Test],
        extras: &[],
        cargo: &["run", "--release", "--package", "mcs-tests", "--bin", "health"],
    },
    Suite {
        name: "packet",
        about: "The packet path's programs, packet by packet, without a network",
        root: true,
        needs: &[Purpose::Build],
        extras: &[],
        cargo: &["run", "--release", "--package", "mcs-tests", "--bin", "packet"],
    },
    Suite {
        name: "node",
        about: "The packet path with real traffic, both CNI layouts, netfilter and other programs",
        root: true,
        needs: &[Purpose::Build, Purpose::Test],
        extras: &[],
        cargo: &["run", "--release", "--package", "mcs-tests", "--bin", "node"],
    },
    Suite {
        name: "lifecycle",
        about: "Clients under load while agents come and go, maps grow and writes fail; `-- --full` goes on for longer",
        root: true,
        needs: &[Purpose::Build],
        extras: &[Extra::OtherVersion],
        cargo: &["run", "--release", "--package", "mcs-tests", "--bin", "lifecycle"],
    },
    Suite {
        name: "api",
        about: "Agents that follow a real API server, whatever becomes of it",
        root: true,
        needs: &[Purpose::Build, Purpose::Test, Purpose::Clusters],
        extras: &[],
        cargo: &["run", "--release", "--package", "mcs-tests", "--bin", "api"],
    },
    Suite {
        name: END_TO_END,
        about: "The DaemonSet on the nodes of two real clusters, with pods as clients and servers",
        root: true,
        needs: &[Purpose::Build, Purpose::Test, Purpose::Clusters],
        extras: &[Extra::Images],
        cargo: &["run", "--release", "--package", "mcs-tests", "--bin", "e2e"],
    },
    Suite {
        name: "image",
        about: "The container image, twice from different directories: static, small, the same bytes",
        root: false,
        needs: &[Purpose::Build],
        extras: &[],
        cargo: &["run", "--quiet", "--package", "xtask", "--", "image", "--check"],
    },
    Suite {
        name: "kernels",
        about: "Parts of these on the oldest and the newest kernel, in virtual machines",
        root: false,
        needs: &[Purpose::Build, Purpose::Test, Purpose::Kernels],
        extras: &[],
        cargo: &[
            "run",
            "--quiet",
            "--package",
            "xtask",
            "--",
            "kernels",
            "--kernel=5.10,7.2",
            "--suite=load,packet",
        ],
    },
    Suite {
        name: "demo",
        about: "The demonstration, which checks what it shows",
        root: true,
        needs: &[Purpose::Build, Purpose::Demo],
        extras: &[],
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
