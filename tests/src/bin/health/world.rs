//! What the cases share: a node with an agent that answers, and two remote pods.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use anyhow::{Context as _, ensure};
use mcs_tests::{
    client::{Family, connected, identity},
    manifests::{Manifests, Protocol, Service},
    netns::Namespace,
    run::Run,
    server::Server,
    site::Site,
    target::{REMOTE, TCP},
    topology::network::Network,
    wait,
};
use serde_json::Value;

use crate::http::{self, HEALTH, METRICS};

/// The VIP of `web`, which has backends.
pub(crate) const WEB: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
/// The VIP of `empty`, which has none.
pub(crate) const EMPTY: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
/// The remote pods, as host numbers.
pub(crate) const PODS: [u8; 2] = [11, 12];

// They have to be removed in this order.
pub(crate) struct World {
    /// The agent that most cases ask.
    pub(crate) site: Site,
    pub(crate) network: Network,
    pub(crate) run: Run,
}

impl World {
    /// Creates everything.
    pub(crate) fn begin(run: Run) -> anyhow::Result<Self> {
        let network = Network::create(&run, &PODS, &[(Server::tcp, TCP.1)])?;
        let flags = ["--health-address", HEALTH, "--metrics-address", METRICS];
        let site = Site::start(&run, "main", &network.node.netns, &flags, &[&web(), &empty()])?;
        Ok(Self { site, network, run })
    }

    /// Starts another agent in a separate namespace, without waiting for it. It listens on the default
    /// addresses.
    pub(crate) fn another(
        &self,
        role: &str,
        flags: &[&str],
        prepare: impl FnOnce(&Manifests) -> anyhow::Result<()>,
    ) -> anyhow::Result<(Site, Namespace)> {
        let netns = Namespace::create(&self.run, role)?;
        let manifests = Manifests::create(&self.run)?;
        prepare(&manifests)?;
        let flags = [&["--health-address", HEALTH, "--metrics-address", METRICS], flags].concat();
        let site = Site::begin(&self.run, role, &netns, &flags, manifests)?;
        wait::until("an answer", || http::health(&netns, "/livez"))?;
        Ok((site, netns))
    }

    /// Connects to a VIP from the node, in the cgroup of the agent.
    pub(crate) fn connect(&self, vip: Ipv4Addr) -> anyhow::Result<SocketAddr> {
        let _in_cgroup = self.site.cgroup.visit()?;
        self.network
            .node
            .netns
            .run(|| identity(&connected(Family::V4, SocketAddr::new(vip.into(), 80))?))?
    }

    /// What `/metrics` says of one sample.
    pub(crate) fn sample(&self, name: &str) -> anyhow::Result<f64> {
        let samples = http::samples(&self.network.node.netns)?;
        samples.get(name).copied().with_context(|| format!("there is no {name} in {samples:?}"))
    }

    /// Waits until it says that.
    pub(crate) fn wait_for_sample(&self, name: &str, expected: f64) -> anyhow::Result<()> {
        wait::until(&format!("{name} to be {expected}"), || {
            let value = self.sample(name)?;
            ensure!((value - expected).abs() < f64::EPSILON, "it is {value}");
            Ok(())
        })
    }
}

/// A service with both remote pods, one in each of two clusters.
pub(crate) fn web() -> Service {
    Service::new("web", [WEB.into()])
        .port(Protocol::Tcp, 80, 8080)
        .endpoints("east", [pod_address(PODS[0])])
        .endpoints("west", [pod_address(PODS[1])])
}

/// A service without endpoints.
pub(crate) fn empty() -> Service {
    Service::new("empty", [EMPTY.into()]).port(Protocol::Tcp, 80, 8080)
}

/// Where a remote pod is.
pub(crate) fn pod_address(pod: u8) -> IpAddr {
    REMOTE.v4(pod).into()
}

/// Replaces a manifest at once.
pub(crate) fn write(manifests: &Manifests, name: &str, content: &Value) -> anyhow::Result<()> {
    let fresh = manifests.path().join(format!("{name}.new"));
    fs::write(&fresh, content.to_string())?;
    Ok(fs::rename(fresh, manifests.path().join(format!("{name}.json")))?)
}
