//! A new agent cannot attach its programs to one device: the others are switched, and the former agent's programs
//! serve the clients of that one until the cause is gone.

use std::os::unix::fs::symlink;

use crate::{attach::all_flags, prelude::*};

/// One side of a device has room for fewer programs of tcx (kernel: `BPF_MPROG_MAX`).
const TOO_MANY: usize = 65;
const METRICS: &str = "127.0.0.1:16451";

pub(crate) fn cases(suite: &mut Suite<World>) {
    for (from, to) in [(Mechanism::Tcx, Mechanism::Clsact), (Mechanism::Clsact, Mechanism::Tcx)] {
        let name = format!("one device cannot be switched from {from} to {to}, under load");
        suite.case(name, move |world| {
            can_attach(Mechanism::Tcx)?;
            others_are_switched(world, from, to)
        });
    }
    suite.case("the pin of one device's link cannot be opened", |world| {
        can_attach(Mechanism::Tcx)?;
        is_pinned_again(world)
    });
}

/// Nobody can open a symbolic link to itself.
fn is_pinned_again(world: &World) -> Result {
    let bench = Bench::start(world, Mechanism::Tcx, &[])?;
    let before = bench.links()?;
    let index = bench.node().index(FIRST)?;
    let pin = bench.site.bpffs.path().join(format!("mcs/links/tc/to_pod-{index}"));
    fs::remove_file(&pin)?;
    symlink(&pin, &pin)?;
    wait::until("the link to be pinned again", || {
        ensure!(pin.symlink_metadata()?.is_file(), "the symbolic link is there");
        Ok(())
    })?;
    wait::until("the agent to be healthy", || {
        let status = bench.site.agent.status()?;
        ensure!(status["state"] == "healthy", "{}", status["degraded"]);
        Ok(())
    })?;
    ensure!(bench.links()? == before, "other links");
    reaches(bench.client()?, &bench.target)
}

/// What keeps programs off the first pod's device.
enum Obstacle {
    IngressQdisc,
    /// The side of the device is full.
    Programs(#[expect(dead_code, reason = "they are attached until this is dropped")] Vec<Counter>),
}

impl Obstacle {
    fn put(node: &Namespace, to: Mechanism) -> Result<Self> {
        match to {
            Mechanism::Clsact => {
                node.output("tc", &["qdisc", "add", "dev", FIRST, "ingress"])?;
                Ok(Self::IngressQdisc)
            }
            Mechanism::Tcx => {
                let attach = |_| Counter::by_tcx(node, FIRST, Way::Ingress, Order::Last).ok();
                let counters: Vec<_> = (0..TOO_MANY).map_while(attach).collect();
                ensure!(counters.len() < TOO_MANY, "the device has room for {TOO_MANY} programs");
                Ok(Self::Programs(counters))
            }
        }
    }

    /// What `status` says of the device.
    const fn says(&self) -> &'static str {
        match self {
            Self::IngressQdisc => "an ingress qdisc",
            Self::Programs(_) => "cannot attach from_pod by tcx",
        }
    }

    fn remove(self, node: &Namespace) -> Result {
        match self {
            Self::IngressQdisc => {
                node.output("tc", &["qdisc", "del", "dev", FIRST, "ingress"]).map(drop)
            }
            Self::Programs(_) => Ok(()),
        }
    }
}

fn others_are_switched(world: &World, from: Mechanism, to: Mechanism) -> Result {
    let mut bench = Bench::start(world, from, &[])?;
    let later = world.fresh("later").with_remote(Distance::Near, World::WEB);
    let Bench { site, target, place } = &mut bench;
    let node = &place.node.netns;
    let pods = [place.pod(Layout::Routed)?, place.peer(Layout::Routed)?];
    let flags = all_flags(to, &[&format!("--metrics-address={METRICS}")]);
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    under_load(&pods, target, || {
        site.agent.kill()?;
        let obstacle = Obstacle::put(node, to)?;
        site.agent.start_again(&flags)?;
        wait::until("all devices but one to be switched", || {
            is_stuck(&site.agent.status()?, to, obstacle.says())
        })?;
        let log = site.agent.log()?;
        let said = format!("{FIRST}: {}", obstacle.says());
        ensure!(log.contains(&said) && log.contains("; trying again"), "not logged: {log}");
        wait::until("metrics to say so", || {
            let metrics =
                node.output("curl", &["--silent", &format!("http://{METRICS}/metrics")])?;
            for (state, count) in [("failing", 1), ("attached", 1)] {
                let sample = format!("mcs_devices{{role=\"pod\",state=\"{state}\"}} {count}");
                ensure!(metrics.lines().any(|line| line == sample), "no {sample}: {metrics}");
            }
            Ok(())
        })?;
        // The former agent's programs read what this agent writes.
        site.apply(&later.service)?;
        pods.iter().try_for_each(|pod| reaches(pod, &later))?;

        obstacle.remove(node)?;
        site.agent.wait_until_healthy()?;
        is_switched(&site.agent.status()?, to)
    })?;
    // Nothing of the former agent is left.
    let shown = node.output("tc", &["filter", "show", "dev", FIRST, "ingress"])?;
    ensure!(shown.contains("from_pod") == (to == Mechanism::Clsact), "{shown}");
    pods.iter().try_for_each(|pod| reaches(pod, &later))
}

/// Fails unless the first pod's device alone has an error, which says this.
fn is_stuck(status: &Value, to: Mechanism, says: &str) -> Result {
    let devices = status["report"]["tc"]["devices"].as_array().context("no devices")?;
    ensure!(devices.len() == 3, "{devices:?}");
    for device in devices {
        let error = device["error"].as_str();
        if device["name"] == FIRST {
            ensure!(error.is_some_and(|error| error.contains(says)), "{device}");
        } else {
            ensure!(error.is_none() && device["attached_by"] == to.to_string(), "{device}");
        }
    }
    let degraded = status["degraded"].to_string();
    let names_others = [SECOND, UPLINK].iter().any(|name| degraded.contains(name));
    ensure!(degraded.contains(FIRST) && !names_others, "{degraded}");
    Ok(())
}

/// Fails unless every device has programs of this mechanism alone.
fn is_switched(status: &Value, to: Mechanism) -> Result {
    let devices = status["report"]["tc"]["devices"].as_array().context("no devices")?;
    for device in devices {
        ensure!(device["attached_by"] == to.to_string(), "{device}");
    }
    let links = status["tc_links"].as_array().map(Vec::len);
    ensure!(links == Some(if to == Mechanism::Tcx { 5 } else { 0 }), "{status}");
    Ok(())
}
