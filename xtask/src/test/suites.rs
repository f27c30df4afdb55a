//! The list of suites: commands, requirements and budgets.

use std::{fmt, time::Duration};

use crate::setup::Purpose;

/// A build that only few suites need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extra {
    /// The agent's image, which the command finds in `MCS_IMAGE`, and the program of clients and servers, in
    /// `MCS_TRAFFIC`.
    Images,
    /// The controller, which the command finds in `MCS_CONTROLLER`, the command line of a clusterset, in `MCS_CLI`, and one that acts as the next version, in
    /// `MCS_CONTROLLER_NEXT`.
    Controller,
    /// The agent of another version, which the command finds in `MCS_AGENT_WIDE`.
    OtherVersion,
    /// An agent with two slots for connected sockets, which the command finds in `MCS_AGENT_TWO_SLOTS`.
    TwoSlots,
}

/// What a suite runs. It exits with 0 if everything in it holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// `cargo test` of all packages. The arguments of the command line follow after `--`.
    UnitTests,
    /// A binary of mcs-tests without optimisation and without the programs. It takes the arguments of the command line.
    Debug(&'static str),
    /// A static binary of mcs-tests, with the programs of the image. It takes the arguments of the command line.
    Binary(&'static str),
    /// A sample of mutants, or the mutants that the command line chooses. It fails if the tests miss one.
    Mutants,
    /// A verb of xtask. It takes no arguments of the command line.
    Verb(&'static [&'static str]),
}

/// What else may run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Company {
    /// Nothing: it uses every CPU, or asserts how long something takes.
    Alone,
    /// Other suites of this sort. Limits of time are longer then, by `MCS_PATIENCE`.
    Others,
}

/// One suite.
pub(super) struct Suite {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Whether it takes root: for namespaces, cgroups and loading programs.
    pub(super) root: bool,
    /// What setup has to provide. With [`Purpose::Build`] the agent and the binaries of mcs-tests are built first, and
    /// the command finds the agent's path in `MCS_AGENT`; with [`Purpose::Clusters`] it finds the programs of a cluster
    /// in `MCS_PROGRAMS`.
    pub(super) needs: &'static [Purpose],
    /// What is built for few suites only.
    pub(super) extras: &'static [Extra],
    pub(super) work: Work,
    pub(super) company: Company,
    /// Seconds that it takes on two CPUs that do nothing else, builds apart, among the suites that run beside it. One
    /// that takes more than three times as long fails.
    pub(super) budget: u64,
    /// What `--full` runs in its place.
    pub(super) full: Option<Work>,
}

impl Suite {
    pub(super) const fn budget(&self) -> Duration {
        Duration::from_secs(self.budget)
    }

    /// What it runs, with `--full` or without.
    pub(super) fn work(&self, full: bool) -> Work {
        self.full.filter(|_| full).unwrap_or(self.work)
    }
}

/// The suite that can run on anybody's clusters.
pub(super) const END_TO_END: &str = "e2e";

/// The suites that run with `--full` and by their names alone: one starts a Docker, all take minutes.
pub(super) const UNUSUAL: [&str; 7] =
    ["controllers", "cni", "kind", "upstream", "features", "simulation", "mutants"];

const DELETE: Work = Work::Verb(&["lint", "features", "--delete"]);

/// What most suites have in common.
const SUITE: Suite = Suite {
    name: "",
    about: "",
    root: true,
    needs: &[Purpose::Build],
    extras: &[],
    work: Work::UnitTests,
    company: Company::Others,
    budget: 0,
    full: None,
};

/// What suites with API servers need that start other programs of a cluster too.
const CLUSTERS: &[Purpose] = &[Purpose::Build, Purpose::Test, Purpose::Clusters];
/// What suites with API servers and kube-proxies alone need.
const SERVERS: &[Purpose] = &[Purpose::Build, Purpose::Test, Purpose::Servers];

/// A suite that is the binary of its name.
const fn binary(name: &'static str) -> Suite {
    Suite { name, work: Work::Binary(name), ..SUITE }
}

/// The same, which does more with `--full`.
const fn longer(name: &'static str) -> Suite {
    Suite { full: Some(Work::Binary(name)), ..binary(name) }
}

/// Every suite. Neighbours that run in company run side by side.
pub(super) const SUITES: &[Suite] = &[
    Suite {
        name: "unit",
        about: "Unit, table and property tests, beside the code",
        root: false,
        needs: &[],
        work: Work::UnitTests,
        company: Company::Alone,
        budget: 75,
        ..SUITE
    },
    Suite {
        name: "scenario",
        about: "From manifests to maps in memory, with writes that fail",
        root: false,
        needs: &[],
        work: Work::Debug("scenario"),
        budget: 75,
        ..SUITE
    },
    Suite {
        name: "clustersets",
        about: "Controllers of several clusters, from objects to imports, with API servers and time in memory",
        root: false,
        needs: &[],
        work: Work::Debug("clustersets"),
        budget: 60,
        ..SUITE
    },
    Suite {
        about: "What the programs cost those who use no VIP, against a budget",
        budget: 35,
        ..binary("cost")
    },
    Suite {
        about: "The same as scenario, on the maps of the kernel",
        budget: 60,
        ..binary("scenario-kernel")
    },
    Suite {
        about: "The flow table as the agent keeps it, on the maps of the kernel",
        budget: 20,
        ..binary("flows")
    },
    Suite {
        about: "Every hook, family and protocol with real sockets; passive health",
        extras: &[Extra::TwoSlots],
        budget: 115,
        ..longer("socket")
    },
    Suite {
        about: "What an agent says over HTTP, with faults; metrics and alerts by promtool; its page; explain",
        needs: &[Purpose::Build, Purpose::Test],
        budget: 80,
        ..longer("health")
    },
    Suite {
        about: "The packet path's programs, packet by packet, without a network",
        budget: 20,
        ..binary("packet")
    },
    Suite {
        about: "The packet path with real traffic, both CNI layouts, netfilter and other programs",
        needs: &[Purpose::Build, Purpose::Test],
        budget: 150,
        ..binary("node")
    },
    Suite {
        about: "Agents that follow a real API server, whatever becomes of it",
        needs: CLUSTERS,
        budget: 250,
        ..longer("api")
    },
    Suite {
        about: "What many nodes cost one API server, and how soon they follow it; with --full a thousand of them",
        needs: CLUSTERS,
        budget: 80,
        ..longer("fleet")
    },
    Suite {
        about: "VIPs pass between kube-proxy and the agent while clients use them; with --full for longer",
        needs: SERVERS,
        budget: 70,
        ..longer("handover")
    },
    Suite {
        about: "What works with the objects of 18 systems and kube-proxy alone works with the agent",
        needs: SERVERS,
        budget: 50,
        ..binary("interop")
    },
    Suite {
        about: "Controllers of two and three real clusters: conformance, DNS, connections, silence, rights, a hub",
        needs: CLUSTERS,
        extras: &[Extra::Controller],
        budget: 300,
        ..longer("clusterset")
    },
    Suite {
        about: "The DaemonSet on the nodes of two real clusters, of the newest and the oldest Kubernetes",
        needs: CLUSTERS,
        extras: &[Extra::Images, Extra::Controller],
        budget: 440,
        ..longer(END_TO_END)
    },
    Suite {
        name: "image",
        about: "The container image: static and small; with --full twice from different directories, the same bytes",
        root: false,
        // The end-to-end suite reads the archive at the usual place.
        work: Work::Verb(&["image", "--output", "target/suites/mcs-agent.tar"]),
        budget: 5,
        full: Some(Work::Verb(&["image", "--check"])),
        ..SUITE
    },
    Suite {
        name: "release",
        about: "The files of a release for this architecture: written, signed and verified; with --full for both",
        root: false,
        needs: &[Purpose::Build, Purpose::Release],
        work: Work::Verb(&["release", "--dry-run", "--output", "target/suites/release"]),
        budget: 45,
        full: Some(Work::Verb(&["release", "--dry-run", "--cross"])),
        ..SUITE
    },
    Suite {
        name: "kernels",
        about: "The programs on the oldest and the newest kernel, in virtual machines; with --full more on all seven",
        root: false,
        needs: &[Purpose::Build, Purpose::Test, Purpose::Kernels],
        work: Work::Verb(&["kernels", "--quick"]),
        budget: 450,
        full: Some(Work::Verb(&["kernels"])),
        ..SUITE
    },
    Suite {
        name: "demo",
        about: "The demonstration, which checks what it shows",
        needs: &[Purpose::Build, Purpose::Demo],
        work: Work::Verb(&["demo"]),
        budget: 15,
        ..SUITE
    },
    Suite {
        about: "Clients under load while agents come and go, maps grow and writes fail; with --full for longer",
        extras: &[Extra::OtherVersion, Extra::TwoSlots],
        company: Company::Alone,
        budget: 245,
        ..longer("lifecycle")
    },
    Suite {
        about: "Karmada and Cilium beside the agent and the controller; with --full or by this name alone",
        needs: &[Purpose::Build, Purpose::Test, Purpose::Neighbours],
        extras: &[Extra::Controller],
        company: Company::Alone,
        budget: 900,
        ..longer("controllers")
    },
    Suite {
        about: "The agent beside real CNIs, clients by sockets and by packets; with --full or by this name alone",
        needs: &[Purpose::Build, Purpose::Test, Purpose::Clusters, Purpose::Cnis],
        extras: &[Extra::Images],
        company: Company::Alone,
        budget: 900,
        ..longer("cni")
    },
    Suite {
        name: "kind",
        about: "Two kind clusters: the end-to-end suite and `mcs up`; with --full or by this name alone",
        needs: &[Purpose::Build, Purpose::Clusters, Purpose::Kind],
        work: Work::Verb(&["kind", "--e2e", "--rm"]),
        company: Company::Alone,
        budget: 900,
        full: Some(Work::Verb(&["kind", "--e2e", "--rm"])),
        ..SUITE
    },
    Suite {
        about: "Kubernetes' own specs of its network, with the agent in kube-proxy's place; with --full or by this name alone",
        needs: &[Purpose::Build, Purpose::Test, Purpose::Clusters, Purpose::Upstream],
        extras: &[Extra::Images],
        company: Company::Alone,
        budget: 900,
        ..longer("upstream")
    },
    Suite {
        name: "features",
        about: "Each feature taken out of a copy of the tree, which compiles; with --full or by this name alone",
        root: false,
        // The verb builds the copies itself.
        needs: &[],
        work: DELETE,
        company: Company::Alone,
        budget: 1200,
        full: Some(DELETE),
        ..SUITE
    },
    Suite {
        name: "simulation",
        about: "Controllers through bad days that are drawn from seeds, and what must hold; with --full or by this name alone",
        root: false,
        needs: &[],
        work: Work::Debug("simulation"),
        company: Company::Alone,
        budget: 900,
        full: Some(Work::Debug("simulation")),
        ..SUITE
    },
    Suite {
        name: "mutants",
        about: "Changes of the rules that no unit test notices; with --full or by this name alone",
        root: false,
        needs: &[Purpose::Mutants],
        work: Work::Mutants,
        company: Company::Alone,
        budget: 1800,
        full: Some(Work::Mutants),
        ..SUITE
    },
];

/// Suites that may be skipped where `CI` is set; any other skip fails there.
pub(super) const SKIPS_ALLOWED_IN_CI: &[&str] = &[];

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let root = if self.root { "root" } else { "" };
        write!(f, "{:<17}{root:<6}{:>4} s  {}", self.name, self.budget, self.about)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budgets_fit_into_what_ci_may_take() {
        let usual = |suite: &&Suite| !UNUSUAL.contains(&suite.name);
        let of =
            |company| SUITES.iter().filter(usual).filter(move |suite| suite.company == company);
        let alone: u64 = of(Company::Alone).map(|suite| suite.budget).sum();
        let beside: u64 = of(Company::Others).map(|suite| suite.budget).sum();
        // Builds and checks of the source have the rest of the 30 minutes.
        assert!(alone + beside / 3 <= 20 * 60, "{alone} s alone, {beside} s side by side");
    }

    #[test]
    fn the_documentation_has_every_suite_and_its_budget() {
        let text = include_str!("../../../tests/README.md");
        for Suite { name, budget, full, .. } in SUITES {
            let row = text.lines().find(|line| line.starts_with(&format!("| {name} |")));
            assert!(row.is_some_and(|row| row.contains(&format!("| {budget} s |"))), "{name}");
            let takes_longer = row.is_some_and(|row| !row.ends_with("| |"));
            assert_eq!(takes_longer, full.is_some(), "{name} with --full");
        }
    }

    #[test]
    fn suites_that_run_in_company_are_neighbours() {
        let groups = SUITES.chunk_by(|a, b| a.company == b.company);
        assert_eq!(groups.filter(|group| group[0].company == Company::Others).count(), 1);
    }
}
