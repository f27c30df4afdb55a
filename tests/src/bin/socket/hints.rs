//! Sockets whose backends the config maps no longer have, across agents with right, missing and wrong hints.

use aya::maps::Array;
use mcs_agent::core::kernel::dataplane::{Run, read_run_record, write_run_record};
use mcs_tests::{
    aged,
    writer::{WriteFaults, Writer},
};

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("sockets of former backends, when agents find right, no or wrong hints", survive);
    suite.case("sockets of former backends, when the address filter is rebuilt", are_found);
}

/// Sockets that use a VIP, of one family.
struct Sockets {
    family: Family,
    tcp: TcpStream,
    udp: UdpSocket,
}

impl Sockets {
    fn begin(target: &Target, family: Family) -> Result<Self> {
        let (tcp, udp) = (target.tcp(family), target.udp(family));
        Ok(Self { family, tcp: connected(family, tcp)?, udp: udp_connected(family, udp)? })
    }

    fn show_vips(&self, target: &Target) -> Result {
        let vip = target.udp(self.family);
        assert_eq!(self.tcp.peer_addr()?, target.tcp(self.family));
        assert_eq!(self.udp.peer_addr()?, vip);
        // The pod still answers.
        self.udp.send(b"who are you")?;
        assert_eq!(receive(&self.udp)?.source, vip);
        Ok(())
    }
}

fn survive(world: &mut World) -> Result {
    let target = world.fresh("hinted");
    let first = target.clone().with(&PODS[..1]);
    let flags = ["--stale-udp=leave", "--max-memory=64Ki"];
    let mut site = world.start("hinted", &flags, &[&first.service])?;
    let _in_cgroup = site.cgroup.visit()?;
    let sockets: Result<Vec<Sockets>> = world.at(Place::Pod, || {
        Family::ALL.into_iter().map(|family| Sockets::begin(&target, family)).collect()
    });
    let sockets = sockets?;
    let check = || sockets.iter().try_for_each(|sockets| sockets.show_vips(&target));
    check()?;
    forget_backends(world, &mut site, &target)?;
    check().context("after the change")?;

    let pins = Pins::new(site.bpffs.path());
    let restart = |site: &mut Site, flags: &[&str]| site.agent.come_back(flags);
    // Right ones, of another size.
    site.manifests.write(&target.clone().with(&PODS[3..5]).service)?;
    for memory in ["512Ki", "128Ki"] {
        restart(&mut site, &["--stale-udp=leave", "--max-memory", memory])?;
        check().context("with other hints")?;
        site.agent.kill()?;
    }
    // None, as versions before them leave it.
    fs::remove_file(pins.hints())?;
    restart(&mut site, &["--stale-udp=leave"])?;
    check().context("without hints")?;
    // Wrong ones: a version that does not know them has changed the maps.
    site.agent.kill()?;
    let run = read_run_record(&pins.run())?;
    ensure!(run.keeps_hints, "the agent does not say that it keeps them");
    write_run_record(&pins.run(), &Run { keeps_hints: false, ..run })?;
    let mut words = Array::<_, u64>::try_from(Map::Array(MapData::from_pin(pins.hints())?))?;
    (0..words.len()).try_for_each(|word| words.set(word, 0, 0))?;
    restart(&mut site, &["--stale-udp=leave"])?;
    check().context("with wrong hints")?;
    // New connections and servers are as always.
    world.at(Place::Pod, || {
        Family::ALL
            .into_iter()
            .try_for_each(|family| Sockets::begin(&target, family)?.show_vips(&target))
    })
}

/// A rebuild finds former backends wherever the programs keep them: in two slots, in socket storage, and with what
/// unconnected sockets have sent.
fn are_found(world: &mut World) -> Result {
    let target = world.fresh("found");
    let first = target.clone().with(&PODS[..1]);
    let flags = ["--stale-udp=leave", "--max-memory=64Ki"];
    let mut site = world.start_with_two_slots("found", &flags, &[&first.service])?;
    let _in_cgroup = site.cgroup.visit()?;
    let begin = |family| {
        // Its reply is read after the rebuild.
        let unconnected = udp(family)?;
        unconnected.send_to(b"who are you", target.udp(family))?;
        anyhow::Ok((Sockets::begin(&target, family)?, unconnected))
    };
    let sockets: Vec<_> = world.at(Place::Pod, || Family::ALL.into_iter().map(begin).collect())?;
    forget_backends(world, &mut site, &target)?;
    site.manifests.write(&target.clone().with(&PODS[3..5]).service)?;
    aged::start(&mut site, &flags)?;
    for (sockets, unconnected) in &sockets {
        sockets.show_vips(&target)?;
        assert_eq!(receive(unconnected)?.source, target.udp(sockets.family));
    }
    Ok(())
}

/// Stops the agent, and changes the endpoints until no config map has the first ones.
fn forget_backends(world: &World, site: &mut Site, target: &Target) -> Result {
    let first = [Family::V4, Family::V6].map(|family| backend(PODS[0], family, TCP.1).ip());
    let sets = [&PODS[1..3], &PODS[3..5]].map(|set| target.clone().with(set).service);
    Writer::take_over(site, WriteFaults::default())?.forget(&world.run, sets.each_ref(), &first)
}
