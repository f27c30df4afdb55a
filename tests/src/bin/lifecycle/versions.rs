//! Upgrades to other versions of the agent, and downgrades, under load.

use std::env;

use crate::prelude::*;

/// Names an agent whose values are longer.
const OTHER: &str = "MCS_AGENT_WIDE";
/// Names an agent of an earlier version, if that is to be tried.
const EARLIER: &str = "MCS_AGENT_EARLIER";

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("an upgrade to longer values, and back, under load", changes_version);
    if let Some(earlier) = env::var_os(EARLIER).map(PathBuf::from) {
        suite.case("an upgrade from an earlier version, and back, under load", move |world| {
            comes_from(world, &earlier)
        });
    }
}

fn changes_version(world: &mut World) -> Result {
    let Some(other) = env::var_os(OTHER) else {
        return Err(skip(format!("{OTHER} names no agent: `cargo xtask test` builds it")));
    };
    let other = PathBuf::from(other);
    let (target, mut site, _in_cgroup) = world.stage("upgraded", &[])?;
    Load::of(&target).during(&world.network.pod, || {
        let own = site.agent.binary().to_owned();
        let mut sockets = vec![Sockets::connect(world, &target)?];
        for binary in [&other, &own, &other, &own] {
            replace(&mut site, &target, binary)?;
            // Those of every version so far.
            sockets.push(Sockets::connect(world, &target)?);
            for (age, sockets) in sockets.iter().rev().enumerate() {
                let shown = sockets.shown()?;
                ensure!(shown == Shown::Vips, "{shown:?} after {age} changes of the version");
            }
        }
        Ok(())
    })?;
    let moved = site.agent.log()?.matches("moved to new ones").count();
    ensure!(moved == 4, "{moved} of 4 agents found maps of another shape and moved");
    tell("upgraded and downgraded twice");
    Ok(())
}

/// Kills the agent, and starts another one in its place.
fn replace(site: &mut Site, target: &Target, binary: &Path) -> Result {
    site.agent.kill()?;
    site.agent.set_binary(binary);
    site.agent.come_back(&[])?;
    site.agent.wait_for(&target.service)
}

/// The node has had the earlier version alone. No connection fails at an upgrade or downgrade. A socket shows its VIP for as
/// long as the agents are of the version that it connected with, or of a later one.
fn comes_from(world: &World, earlier: &Path) -> Result {
    let target = world.target("earlier");
    let mut site = world.start("earlier", &[], &[&target.service])?;
    let own = site.agent.binary().to_owned();
    site.agent.stop()?;
    let output = site.agent.cleanup()?;
    ensure!(output.status.success(), "cleanup failed: {output:?}");
    site.agent.set_binary(earlier);
    site.agent.come_back(&[])?;
    site.agent.wait_for(&target.service)?;

    let _in_cgroup = site.cgroup.visit()?;
    Load::of(&target).during(&world.network.pod, || {
        let older = Sockets::connect(world, &target)?;
        ensure!(older.shown()? == Shown::Vips, "the earlier version shows backends");
        replace(&mut site, &target, &own)?;
        let newer = Sockets::connect(world, &target)?;
        let upgraded = [older.shown()?, newer.shown()?];
        replace(&mut site, &target, earlier)?;
        let downgraded = [older.shown()?, newer.shown()?];
        replace(&mut site, &target, &own)?;
        let again = [older.shown()?, newer.shown()?];
        tell(format!(
            "earlier sockets, and those made after the upgrade, show: upgraded {upgraded:?}, \
             downgraded {downgraded:?}, upgraded again {again:?}"
        ));
        let older = [&upgraded, &downgraded, &again].map(|[older, _]| older);
        ensure!(older == [&Shown::Vips; 3], "sockets of the earlier version show {older:?}");
        ensure!(upgraded[1] == Shown::Vips, "sockets of this version show {:?}", upgraded[1]);
        Ok(())
    })
}

/// Sockets that are connected to a VIP.
struct Sockets {
    vips: Vec<SocketAddr>,
    tcp: Vec<TcpStream>,
    udp: Vec<UdpSocket>,
}

/// What getpeername(2) says of sockets.
#[derive(Debug, PartialEq, Eq)]
enum Shown {
    /// All show their VIP.
    Vips,
    /// None does.
    Backends,
}

impl Sockets {
    fn connect(world: &World, target: &Target) -> Result<Self> {
        let of = |protocol| Family::ALL.map(|family| (family, target.of(family, protocol)));
        let (tcp, udp) = (of(Protocol::Tcp), of(Protocol::Udp));
        world.network.pod.run(|| {
            let streams = tcp.iter().map(|&(family, vip)| connected(family, vip));
            let datagrams = udp.iter().map(|&(family, vip)| udp_connected(family, vip));
            Ok(Self {
                vips: tcp.iter().chain(&udp).map(|&(_, vip)| vip).collect(),
                tcp: streams.collect::<io::Result<_>>().context("connect")?,
                udp: datagrams.collect::<io::Result<_>>().context("connect")?,
            })
        })?
    }

    fn shown(&self) -> Result<Shown> {
        let tcp = self.tcp.iter().map(TcpStream::peer_addr);
        let peers: Vec<_> =
            tcp.chain(self.udp.iter().map(UdpSocket::peer_addr)).collect::<io::Result<_>>()?;
        let as_vip = peers.iter().zip(&self.vips).filter(|(peer, vip)| peer == vip).count();
        match as_vip {
            0 => Ok(Shown::Backends),
            all if all == peers.len() => Ok(Shown::Vips),
            some => anyhow::bail!("{some} of {} sockets show their VIP: {peers:?}", peers.len()),
        }
    }
}
