//! An agent with its own cgroup, bpffs directory and manifests.

use std::fs;

use crate::{
    agent::{Agent, Config, Source},
    bpffs::BpfDirectory,
    cgroup::Cgroup,
    manifests::{Manifests, Service},
    netns::Namespace,
    run::Run,
};

/// An agent with its own cgroup, bpffs directory and manifests. All of it is removed when this is
/// dropped.
#[derive(Debug)]
pub struct Site {
    /// The agent.
    pub agent: Agent,
    /// What it reads.
    pub manifests: Manifests,
    /// The cgroup that its programs are attached to.
    pub cgroup: Cgroup,
    /// Where it pins.
    pub bpffs: BpfDirectory,
}

impl Site {
    /// Starts an agent in `netns` with these services, and waits until it is healthy. `role` names
    /// the site within the run.
    pub fn start(
        run: &Run,
        role: &str,
        netns: &Namespace,
        flags: &[&str],
        services: &[&Service],
    ) -> anyhow::Result<Self> {
        Self::start_with(run, role, netns, &[], flags, services)
    }

    /// The same with more capabilities than others have.
    pub fn start_with(
        run: &Run,
        role: &str,
        netns: &Namespace,
        capabilities: &[&'static str],
        flags: &[&str],
        services: &[&Service],
    ) -> anyhow::Result<Self> {
        let manifests = Manifests::create(run)?;
        services.iter().try_for_each(|service| manifests.write(service))?;
        let mut site = Self::launch(run, role, netns, capabilities, flags, manifests)?;
        site.agent.wait_until_healthy()?;
        Ok(site)
    }

    /// Starts an agent that reads these manifests, without waiting for it.
    pub fn begin(
        run: &Run,
        role: &str,
        netns: &Namespace,
        flags: &[&str],
        manifests: Manifests,
    ) -> anyhow::Result<Self> {
        Self::launch(run, role, netns, &[], flags, manifests)
    }

    fn launch(
        run: &Run,
        role: &str,
        netns: &Namespace,
        capabilities: &[&'static str],
        flags: &[&str],
        manifests: Manifests,
    ) -> anyhow::Result<Self> {
        let source = Source::Manifests(manifests.path().to_owned());
        let (mut config, cgroup, bpffs) = place(run, role, source, flags)?;
        config.capabilities.extend_from_slice(capabilities);
        let agent = Agent::start(netns, config)?;
        Ok(Self { agent, manifests, cgroup, bpffs })
    }

    /// Writes a service, new or changed, and waits until it is in the maps.
    pub fn apply(&self, service: &Service) -> anyhow::Result<()> {
        self.manifests.write(service)?;
        self.agent.wait_for(service)
    }

    /// Removes a service, and waits until it has left the maps.
    pub fn remove(&self, service: &Service) -> anyhow::Result<()> {
        self.manifests.remove(service.name())?;
        self.agent.wait_until_gone(service.name())
    }
}

/// What an agent of that role is started with, and the cgroup and the bpffs directory that it has to
/// itself.
pub fn place(
    run: &Run,
    role: &str,
    source: Source,
    flags: &[&str],
) -> anyhow::Result<(Config, Cgroup, BpfDirectory)> {
    let cgroup = Cgroup::create(run, role)?;
    let bpffs = BpfDirectory::create(run, role)?;
    let config = config(run, role, source, flags, &bpffs, &cgroup)?;
    Ok((config, cgroup, bpffs))
}

/// What an agent of that role is started with, in a cgroup and a bpffs directory that are there.
pub fn config(
    run: &Run,
    role: &str,
    source: Source,
    flags: &[&str],
    bpffs: &BpfDirectory,
    cgroup: &Cgroup,
) -> anyhow::Result<Config> {
    let run_dir = run.directory().join(role);
    fs::create_dir_all(&run_dir)?;
    Ok(Config {
        source,
        bpffs: bpffs.path().to_owned(),
        cgroup_root: cgroup.path().to_owned(),
        run_dir,
        capabilities: Vec::new(),
        flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
        log: run.directory().join(format!("{role}.log")),
        own_process_group: false,
    })
}
