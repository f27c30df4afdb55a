//! Programs whose agent does not come back: with `--orphan=release` they leave the VIPs to others.

use mcs_agent::core::kernel::dataplane::LivenessWriter;

use crate::prelude::*;

/// `status` of an agent that is gone says it.
const CONTINUES: &str = "leave the ClusterSetIPs alone then (--orphan=release)";
const RELEASED: &str = "the attached programs leave the ClusterSetIPs alone, ";
const NOT_SYNCED: &str = "leave the ClusterSetIPs alone until the agent is synced";
/// The deadline of `--orphan-after` is brought forward to this.
const SOON: Duration = Duration::from_secs(5);

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("programs of a killed agent let go (--orphan=release)", let_go);
}

pub(crate) struct Scene {
    // They have to be removed in this order.
    pub(crate) site: Site,
    pub(crate) target: Target,
    network: Network,
}

fn let_go(world: &mut World) -> Result {
    let flags = ["--tc=on", "--orphan=release", "--orphan-after=60"];
    let mut scene = Scene::begin(world, "orphan", &flags)?;
    let ours = backends(SETS[0]);
    let established = scene.connect_all()?;
    scene.site.agent.kill()?;
    let others = scene.serve_elsewhere()?;
    // The programs go on first.
    let who = scene.who_answers()?;
    ensure!(who.is_subset(&ours), "{who:?} answered at once");
    ensure!(scene.degraded()?.contains(CONTINUES), "{}", scene.degraded()?);
    let alive = Pins::new(scene.site.agent.bpffs()).alive();
    LivenessWriter::open(&alive, Some(SOON))?.report(true)?;

    // Each client before leaves a UDP flow, and a later one with its port would follow it.
    thread::sleep(SOON);
    let theirs = others.iter().map(Server::address).collect();
    wait::until("the programs to leave the VIPs alone", || {
        let who = scene.who_answers()?;
        ensure!(who == theirs, "{who:?}");
        Ok(())
    })?;
    ensure!(scene.degraded()?.contains(RELEASED), "{}", scene.degraded()?);
    ensure!(scene.site.agent.status()?["released"] == true, "not in JSON");
    go_on(&established)?;

    let manifests = scene.site.manifests.path().to_owned();
    let away = manifests.with_extension("away");
    fs::rename(&manifests, &away)?;
    scene.site.agent.start_again(&flags)?;
    scene.wait_until_not_synced()?;
    let who = scene.who_answers()?;
    ensure!(who == theirs, "{who:?} answered while the agent had read nothing");
    scene.site.agent.kill()?;
    fs::rename(&away, &manifests)?;

    drop(others);
    scene.elsewhere("delete")?;
    scene.site.agent.come_back(&flags)?;
    let who = scene.who_answers()?;
    ensure!(who.is_subset(&ours), "{who:?} answered after the agent was back");
    go_on(&established)
}

pub(crate) fn go_on(established: &[(TcpStream, SocketAddr)]) -> Result {
    established.iter().try_for_each(|(stream, vip)| {
        still_goes(stream, *vip).with_context(|| format!("an established connection to {vip}"))
    })
}

impl Scene {
    pub(crate) fn begin(world: &World, role: &str, flags: &[&str]) -> Result<Self> {
        let network = world.another(role)?;
        let target = world.target(role);
        let netns = &network.node.netns;
        let site = Site::start(&world.run, role, netns, flags, &[&target.service])?;
        let scene = Self { site, target, network };
        lead(&scene.network, &scene.target)?;
        Ok(scene)
    }

    fn vip(&self, family: Family, protocol: Protocol) -> SocketAddr {
        self.target.of(family, protocol)
    }

    /// A connection of each of [`CLIENTS`].
    pub(crate) fn connect_all(&self) -> Result<Vec<(TcpStream, SocketAddr)>> {
        let mut streams = Vec::new();
        for (sockets, family) in CLIENTS {
            let vip = self.vip(family, Protocol::Tcp);
            let stream = by(&self.site, &self.network, sockets, || Ok(connected(family, vip)?))?;
            let who = identity(&stream)?;
            ensure!(backends(SETS[0]).contains(&who), "{who} answered at {vip}");
            streams.push((stream, vip));
        }
        Ok(streams)
    }

    /// Who answers new clients, by each path and family, and each protocol.
    fn who_answers(&self) -> Result<BTreeSet<SocketAddr>> {
        let mut who = BTreeSet::new();
        for (sockets, family) in CLIENTS {
            who.extend(by(&self.site, &self.network, sockets, || answers(&self.target, family))?);
        }
        Ok(who)
    }

    /// Waits until an agent that cannot read its manifests has given signs of life.
    fn wait_until_not_synced(&self) -> Result {
        wait::until("the agent to report that it is not synced", || {
            let status = self.site.agent.status()?;
            ensure!(status["running"] == true && status["report"]["synced"] == false, "{status}");
            Ok(())
        })?;
        thread::sleep(Duration::from_secs(2));
        ensure!(self.degraded()?.contains(NOT_SYNCED), "{}", self.degraded()?);
        Ok(())
    }

    /// The node itself answers at the VIPs, for packets that nobody translates.
    fn serve_elsewhere(&self) -> Result<Vec<Server>> {
        self.elsewhere("add")?;
        let node = &self.network.node.netns;
        let mut servers = Vec::new();
        for family in [Family::V4, Family::V6] {
            servers.push(Server::tcp(node, self.vip(family, Protocol::Tcp))?);
            servers.push(Server::udp(node, self.vip(family, Protocol::Udp))?);
        }
        Ok(servers)
    }

    /// Adds the VIPs to the node's addresses, or deletes them.
    fn elsewhere(&self, action: &str) -> Result {
        for family in [Family::V4, Family::V6] {
            let vip = self.vip(family, Protocol::Tcp).ip();
            self.network.node.netns.ip(&format!("address {action} {vip} dev lo"))?;
        }
        Ok(())
    }

    /// Why `status` takes the agent for degraded.
    fn degraded(&self) -> Result<String> {
        Ok(self.site.agent.status()?["degraded"].to_string())
    }
}
