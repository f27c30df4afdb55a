//! Bulk TCP through a VIP, across a hop with a smaller MTU than the pods' interfaces: both sides have to
//! learn the MTU, the client for the VIP alone.

use mcs_tests::capture::{IcmpError, Packet};

use crate::prelude::*;

/// What an interface of a pod puts on the wire at most, with its Ethernet header.
const FRAME: u32 = 1_514;

pub(crate) fn cases(suite: &mut Suite<World>) {
    for offload in [Offload::All, Offload::NoChecksums, Offload::NoSegments] {
        let name = format!("bulk TCP across a 1280-byte hop, {offload}");
        each(suite, &Layout::ALL, &name, move |world, layout, family| {
            completes(world, layout, family, offload)
        });
    }
}

/// What the interfaces of a pod leave to whoever sends the packet on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Offload {
    /// Checksums, and cutting into segments.
    All,
    /// Nothing.
    NoChecksums,
    /// Checksums alone.
    NoSegments,
}

impl Offload {
    /// How much to send each way.
    const fn bytes(self) -> usize {
        match self {
            Self::All => 40_000_000,
            Self::NoChecksums | Self::NoSegments => 10_000_000,
        }
    }

    /// The arguments of ethtool that ask for less, and those that undo it.
    const fn features(self) -> Option<[&'static [&'static str]; 2]> {
        match self {
            Self::All => None,
            Self::NoChecksums => Some([&["tx", "off"], &["tx", "on"]]),
            Self::NoSegments => Some([&["tso", "off", "gso", "off"], &["tso", "on", "gso", "on"]]),
        }
    }
}

impl fmt::Display for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "all offloads",
            Self::NoChecksums => "tx off",
            Self::NoSegments => "gso off",
        })
    }
}

/// Both interfaces of a pod have fewer features while this lives.
struct Reduced<'a> {
    interfaces: [(&'a Namespace, &'a str); 2],
    restore: &'static [&'static str],
}

impl<'a> Reduced<'a> {
    fn reduce(world: &'a World, pod: &'a Pod, offload: Offload) -> Result<Option<Self>> {
        let Some([reduce, restore]) = offload.features() else { return Ok(None) };
        let node = &world.place.node.netns;
        let interfaces = [(&pod.netns, "eth0"), (node, pod.device.as_str())];
        let reduced = Self { interfaces, restore };
        reduced.set(reduce)?;
        Ok(Some(reduced))
    }

    fn set(&self, features: &[&str]) -> Result {
        self.interfaces.iter().try_for_each(|(netns, device)| {
            netns.output("ethtool", &[&["-K", *device], features].concat()).map(drop)
        })
    }
}

impl Drop for Reduced<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.set(self.restore) {
            eprintln!("cannot restore the offloads of a pod: {error:#}");
        }
    }
}

fn completes(world: &World, layout: Layout, family: Family, offload: Offload) -> Result {
    let pod = world.place.pod(layout)?;
    let _reduced = Reduced::reduce(world, pod, offload)?;
    world.backbone.forget_mtus()?;
    pod.netns.forget_mtus()?;
    let vip = world.far.tcp(family);
    let capture = Capture::start(&world.run, "client", &pod.netns, "eth0", "ip or ip6")?;
    let backend = pod.netns.run(|| {
        let (stream, backend) = greeted(family, vip)?;
        bulk(&stream, offload.bytes())?;
        anyhow::Ok(backend)
    })??;
    let packets = capture.finish()?;

    let expected = backends(Distance::Far, World::FAR, family, TCP.1);
    ensure!(expected.contains(&backend), "{backend} answered");
    let backends: BTreeSet<IpAddr> = expected.iter().map(SocketAddr::ip).collect();
    check(&packets, vip.ip(), &backends, offload)
}

/// Fails unless the client saw only the VIP and no backend, and learned the path MTU for the VIP.
fn check(packets: &[Packet], vip: IpAddr, backends: &BTreeSet<IpAddr>, offload: Offload) -> Result {
    for packet in packets {
        let shown = packet.addresses().find(|address| backends.contains(address));
        ensure!(shown.is_none(), "the client sees a backend: {packet:?}");
    }
    let of_vip = packets.iter().filter(|packet| packet.addresses().any(|address| address == vip));
    let of_vip = of_vip.count();
    let too_big = packets.iter().filter_map(|packet| packet.error).filter(IcmpError::is_too_big);
    let too_big: Vec<_> = too_big.collect();
    ensure!(!too_big.is_empty(), "no ICMP error told the client about the narrow hop");
    ensure!(too_big.iter().all(|error| error.dst == vip), "of another packet: {too_big:?}");
    let uncut = packets.iter().filter(|packet| packet.length > FRAME).count();
    ensure!((uncut > 0) == (offload == Offload::All), "{uncut} packets are above the MTU");
    tell(format!(
        "at the client: {of_vip} packets of the VIP, {uncut} of them above the MTU; none of a backend; \
         \"too big\" about the VIP: {}",
        too_big.len(),
    ));
    Ok(())
}
