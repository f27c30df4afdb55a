//! An agent with its own cgroup, bpffs directory and manifests.

#[cfg(feature = "suites")]
mod view;

use std::fs;

#[cfg(feature = "suites")]
pub use self::view::{SetWatcher, Watcher, problems, rejections};
use crate::{
    agent::{Agent, Config, Source},
    bpffs::BpfDirectory,
    cgroup::Cgroup,
    manifests::{Manifests, Service},
    netns::Namespace,
    run::Run,
};

/// An agent with its own cgroup and bpffs directory, and what it reads: manifests, or `()` where that is an API server. All of it is
/// removed when this is dropped.
#[derive(Debug)]
pub struct Site<M = Manifests> {
    /// The agent.
    pub agent: Agent,
    /// What it reads.
    pub manifests: M,
    /// The cgroup that its programs are attached to.
    pub cgroup: Cgroup,
    /// Where it pins.
    pub bpffs: BpfDirectory,
}

/// An agent to start.
#[must_use]
pub struct Launch<'a> {
    run: &'a Run,
    role: &'a str,
    netns: &'a Namespace,
    capabilities: &'a [&'static str],
    flags: &'a [&'a str],
}

impl<'a> Launch<'a> {
    /// An agent in `netns`. `role` names it within the run.
    pub const fn new(run: &'a Run, role: &'a str, netns: &'a Namespace) -> Self {
        Self { run, role, netns, capabilities: &[], flags: &[] }
    }

    /// The same with these flags.
    pub const fn flags(self, flags: &'a [&'a str]) -> Self {
        Self { flags, ..self }
    }

    /// The same with more capabilities than others have.
    pub const fn capabilities(self, capabilities: &'a [&'static str]) -> Self {
        Self { capabilities, ..self }
    }

    /// Starts it with these services, and waits until it is healthy.
    pub fn knows(self, services: &[&Service]) -> anyhow::Result<Site> {
        let manifests = Manifests::create(self.run)?;
        services.iter().try_for_each(|service| manifests.write(service))?;
        let mut site = self.reads(manifests)?;
        site.agent.wait_until_healthy()?;
        Ok(site)
    }

    /// Starts it with these manifests, without waiting for it.
    pub fn reads(self, manifests: Manifests) -> anyhow::Result<Site> {
        let source = Source::Manifests(manifests.path().to_owned());
        let Site { agent, cgroup, bpffs, .. } = self.follows(source)?;
        Ok(Site { agent, manifests, cgroup, bpffs })
    }

    /// Starts it with this source, without waiting for it.
    pub fn follows(self, source: Source) -> anyhow::Result<Site<()>> {
        let (config, cgroup, bpffs) = self.place(source)?;
        Ok(Site { agent: Agent::start(self.netns, config)?, manifests: (), cgroup, bpffs })
    }

    /// What it is to be started with, and the cgroup and the bpffs directory that it has to itself.
    pub fn place(&self, source: Source) -> anyhow::Result<(Config, Cgroup, BpfDirectory)> {
        let (mut config, cgroup, bpffs) = place(self.run, self.role, source, self.flags)?;
        config.capabilities.extend_from_slice(self.capabilities);
        Ok((config, cgroup, bpffs))
    }
}

impl Site {
    /// Starts an agent in `netns` with these services, and waits until it is healthy.
    pub fn start(
        run: &Run,
        role: &str,
        netns: &Namespace,
        flags: &[&str],
        services: &[&Service],
    ) -> anyhow::Result<Self> {
        Launch::new(run, role, netns).flags(flags).knows(services)
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
