//! Devices that change while connections use them: their name, their qdisc, a program before the stack, their namespace.

use mcs_tests::bpf::{AttachType, Instruction, Program, ProgramType, code, instruction};

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    for by in Mechanism::BOTH {
        suite.case(format!("a device is changed under load, by {by}"), move |world| {
            can_attach(by)?;
            is_changed(world, by)
        });
        suite.case(format!("a device is moved away and comes back, by {by}"), move |world| {
            can_attach(by)?;
            moves(world, by)
        });
    }
}

/// An XDP program that lets every packet pass.
fn passes() -> Result<Program> {
    const XDP_PASS: i32 = 2;
    let program: [Instruction; 2] =
        [instruction(code::MOVE_CONSTANT, 0, 0, 0, XDP_PASS), instruction(code::EXIT, 0, 0, 0, 0)];
    Ok(Program::load(ProgramType::BPF_PROG_TYPE_XDP, None, &program)?)
}

fn is_changed(world: &World, by: Mechanism) -> Result {
    const OTHER: &str = "renamed-2";
    let bench = Bench::start(world, by, &[])?;
    let node = bench.node();
    let pin = bench.site.bpffs.path().join("passes");
    passes()?.pin(&pin)?;
    let pinned = pin.to_str().context("no name")?;
    under_load(&[bench.client()?], &bench.target, || {
        for (from, to) in [(FIRST, OTHER), (OTHER, FIRST)] {
            node.ip(&format!("link set {from} name {to}"))?;
            wait_until_attached(&bench, to, by)?;
            for qdisc in ["pfifo", "bfifo"] {
                node.output("tc", &["qdisc", "replace", "dev", to, "root", qdisc])?;
            }
            node.output("tc", &["qdisc", "delete", "dev", to, "root"])?;
            // ip(8) in a namespace of its own does not see the pin.
            node.output("ip", &["link", "set", "dev", to, "xdp", "pinned", pinned])?;
            reaches(bench.client()?, &bench.target).context("with an XDP program")?;
            node.ip(&format!("link set dev {to} xdp off"))?;
        }
        Ok(())
    })?;
    std::fs::remove_file(&pin)?;
    ensure!(bench.site.agent.is_healthy()?, "{}", bench.site.agent.status()?["degraded"]);
    let dropped = bench.site.agent.counters()?["leak_prevented"];
    ensure!(dropped == 0, "{dropped} packets were not translated");
    Ok(())
}

fn wait_until_attached(bench: &Bench, device: &str, by: Mechanism) -> Result {
    wait::until(&format!("{device} to be attached"), || {
        let devices = bench.devices()?;
        let found = devices.get(device).context("it is not listed")?;
        ensure!(found["attached_by"] == by.to_string(), "{found}");
        Ok(())
    })
}

/// What runs at a device's hooks for packets.
fn programs_at(netns: &Namespace, device: &str) -> Result<Vec<String>> {
    let index = netns.index(device)?;
    let mut found = Vec::new();
    for (attach, way) in
        [(AttachType::BPF_TCX_INGRESS, "ingress"), (AttachType::BPF_TCX_EGRESS, "egress")]
    {
        // Before Linux 6.6 there is no tcx.
        if let Ok(ids) = netns.run(|| bpf::attached_to_interface(index, attach))? {
            found.extend(ids.iter().map(|id| format!("{way}: {id}")));
        }
        let filters = netns.output("tc", &["filter", "show", "dev", device, way])?;
        found.extend(filters.lines().map(str::to_owned));
    }
    Ok(found)
}

/// Where it is meanwhile, none of our programs is on it.
fn moves(world: &World, by: Mechanism) -> Result {
    let bench = Bench::start(world, by, &[])?;
    let node = bench.node();
    let elsewhere = Namespace::create(&world.run, &bench.place.name("elsewhere"))?;
    let peer = bench.place.peer(Layout::Routed)?;
    reaches(peer, &bench.target)?;
    under_load(&[bench.client()?], &bench.target, || {
        node.ip(&format!("link set {SECOND} netns {}", elsewhere.name()))?;
        wait::until("our programs to leave the device", || {
            let devices = bench.devices()?;
            ensure!(!devices.contains_key(SECOND), "it is listed");
            let left = programs_at(&elsewhere, SECOND)?;
            ensure!(left.is_empty(), "{left:?} are attached");
            Ok(())
        })?;
        elsewhere.ip(&format!("link set {SECOND} netns {}", node.name()))?;
        peer.reconnect(&bench.place.node)?;
        wait_until_attached(&bench, SECOND, by)
    })?;
    reaches(peer, &bench.target)?;
    ensure!(bench.site.agent.is_healthy()?, "{}", bench.site.agent.status()?["degraded"]);
    Ok(())
}
