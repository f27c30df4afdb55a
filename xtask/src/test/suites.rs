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
}

/// What a suite runs. It exits with 0 if everything in it holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// `cargo test` of all packages. The arguments of the command line follow after `--`.
    UnitTests,
    /// A binary of mcs-tests without optimisation and without the programs. It takes the arguments of the command line.
    Debug(&'static str),
    /// A binary of mcs-tests, built like the agent of the image. It takes the arguments of the command line.
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

/// The suites that run with `--full` and by their names alone: one starts a Docker, both take minutes.
pub(super) const UNUSUAL: [&str; 2] = ["kind", "mutants"];

/// Every suite. Neighbours that run in company run side by side.
pub(super) const SUITES: &[Suite] = &[
    Suite {
        name: "unit",
        about: "Unit, table and property tests, beside the code",
        root: false,
        needs: &[],
        extras: &[],
        work: Work::UnitTests,
        company: Company::Alone,
        budget: 45,
        full: None,
    },
    Suite {
        name: "scenario",
        about: "From manifests to maps in memory, with writes that fail",
        root: false,
        needs: &[],
        extras: &[],
        work: Work::Debug("scenario"),
        company: Company::Others,
        budget: 50,
        full: None,
    },
    Suite {
        name: "cost",
        about: "What the programs cost those who use no VIP, against a budget",
        root: true,
        needs: &[Purpose::Build],
        extras: &[],
        work: Work::Binary("cost"),
        company: Company::Others,
        budget: 5,
        full: None,
    },
    Suite {
        name: "scenario-kernel",
        about: "The same as scenario, on the maps of the kernel",
        root: true,
        needs: &[Purpose::Build],
        extras: &[],
        work: Work::Binary("scenario-kernel"),
        company: Company::Others,
        budget: 60,
        full: None,
    },
    Suite {
        name: "flows",
        about: "The flow table as the agent keeps it, on the maps of the kernel",
        root: true,
        needs: &[Purpose::Build],
        extras: &[],
        work: Work::Binary("flows"),
        company: Company::Others,
        budget: 10,
        full: None,
    },
    Suite {
        name: "socket",
        about: "Every hook, family and protocol with real sockets; passive health",
        root: true,
        needs: &[Purpose::Build],
        extras: &[],
        work: Work::Binary("socket"),
        company: Company::Others,
        budget: 115,
        full: Some(Work::Binary("socket")),
    },
    Suite {
        name: "health",
        about: "What an agent says over HTTP, with faults; metrics and alerts by promtool; its page; explain",
        root: true,
        needs: &[Purpose::Build, Purpose::Test],
        extras: &[],
        work: Work::Binary("health"),
        company: Company::Others,
        budget: 80,
        full: Some(Work::Binary("health")),
    },
    Suite {
        name: "packet",
        about: "The packet path's programs, packet by packet, without a network",
        root: true,
        needs: &[Purpose::Build],
        extras: &[],
        work: Work::Binary("packet"),
        company: Company::Others,
        budget: 20,
        full: None,
    },
    Suite {
        name: "node",
        about: "The packet path with real traffic, both CNI layouts, netfilter and other programs",
        root: true,
        needs: &[Purpose::Build, Purpose::Test],
        extras: &[],
        work: Work::Binary("node"),
        company: Company::Others,
        budget: 150,
        full: None,
    },
    Suite {
        name: "api",
        about: "Agents that follow a real API server, whatever becomes of it",
        root: true,
        needs: &[Purpose::Build, Purpose::Test, Purpose::Clusters],
        extras: &[],
        work: Work::Binary("api"),
        company: Company::Others,
        budget: 290,
        full: Some(Work::Binary("api")),
    },
    Suite {
        name: "fleet",
        about: "What many nodes cost one API server, and how soon they follow it; with --full a thousand of them",
        root: true,
        needs: &[Purpose::Build, Purpose::Test, Purpose::Clusters],
        extras: &[],
        work: Work::Binary("fleet"),
        company: Company::Others,
        budget: 80,
        full: Some(Work::Binary("fleet")),
    },
    Suite {
        name: "handover",
        about: "VIPs pass between kube-proxy and the agent while clients use them; with --full for longer",
        root: true,
        needs: &[Purpose::Build, Purpose::Test, Purpose::Clusters],
        extras: &[],
        work: Work::Binary("handover"),
        company: Company::Others,
        budget: 70,
        full: Some(Work::Binary("handover")),
    },
    Suite {
        name: "interop",
        about: "What works with the objects of 18 systems and kube-proxy alone works with the agent",
        root: true,
        needs: &[Purpose::Build, Purpose::Test, Purpose::Clusters],
        extras: &[],
        work: Work::Binary("interop"),
        company: Company::Others,
        budget: 40,
        full: None,
    },
    Suite {
        name: "clusterset",
        about: "Controllers of two and three clusters: conformance, DNS, connections, silence, rights, a hub",
        root: true,
        needs: &[Purpose::Build, Purpose::Test, Purpose::Clusters],
        extras: &[Extra::Controller],
        work: Work::Binary("clusterset"),
        company: Company::Others,
        budget: 600,
        full: Some(Work::Binary("clusterset")),
    },
    Suite {
        name: END_TO_END,
        about: "The DaemonSet on the nodes of two real clusters, of the newest and the oldest Kubernetes",
        root: true,
        needs: &[Purpose::Build, Purpose::Test, Purpose::Clusters],
        extras: &[Extra::Images, Extra::Controller],
        work: Work::Binary("e2e"),
        company: Company::Others,
        budget: 440,
        full: Some(Work::Binary("e2e")),
    },
    Suite {
        name: "image",
        about: "The container image: static and small; with --full twice from different directories, the same bytes",
        root: false,
        needs: &[Purpose::Build],
        extras: &[],
        // Another place than that of the archive which the end-to-end suite reads.
        work: Work::Verb(&["image", "--output", "target/suites/mcs-agent.tar"]),
        company: Company::Others,
        budget: 5,
        full: Some(Work::Verb(&["image", "--check"])),
    },
    Suite {
        name: "release",
        about: "The files of a release for this architecture: written, signed and verified; with --full for both",
        root: false,
        needs: &[Purpose::Build, Purpose::Release],
        extras: &[],
        work: Work::Verb(&["release", "--dry-run", "--output", "target/suites/release"]),
        company: Company::Others,
        budget: 20,
        full: Some(Work::Verb(&["release", "--dry-run", "--cross"])),
    },
    Suite {
        name: "kernels",
        about: "The programs on the oldest and the newest kernel, in virtual machines; with --full more on all five",
        root: false,
        needs: &[Purpose::Build, Purpose::Test, Purpose::Kernels],
        extras: &[],
        work: Work::Verb(&["kernels", "--quick"]),
        company: Company::Others,
        budget: 320,
        full: Some(Work::Verb(&["kernels"])),
    },
    Suite {
        name: "demo",
        about: "The demonstration, which checks what it shows",
        root: true,
        needs: &[Purpose::Build, Purpose::Demo],
        extras: &[],
        work: Work::Verb(&["demo"]),
        company: Company::Others,
        budget: 15,
        full: None,
    },
    Suite {
        name: "lifecycle",
        about: "Clients under load while agents come and go, maps grow and writes fail; with --full for longer",
        root: true,
        needs: &[Purpose::Build],
        extras: &[Extra::OtherVersion],
        work: Work::Binary("lifecycle"),
        company: Company::Alone,
        budget: 240,
        full: Some(Work::Binary("lifecycle")),
    },
    Suite {
        name: "kind",
        about: "Two kind clusters: the end-to-end suite and `mcs up`; with --full or by this name alone",
        root: true,
        needs: &[Purpose::Build, Purpose::Clusters, Purpose::Kind],
        extras: &[],
        work: Work::Verb(&["kind", "--e2e", "--rm"]),
        company: Company::Alone,
        budget: 900,
        full: Some(Work::Verb(&["kind", "--e2e", "--rm"])),
    },
    Suite {
        name: "mutants",
        about: "Changes of the rules that no unit test notices; with --full or by this name alone",
        root: false,
        needs: &[Purpose::Mutants],
        extras: &[],
        work: Work::Mutants,
        company: Company::Alone,
        budget: 1800,
        full: Some(Work::Mutants),
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
        assert!(alone + beside / 3 <= 18 * 60, "{alone} s alone, {beside} s side by side");
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
