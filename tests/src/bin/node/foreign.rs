//! Foreign programs on the same interfaces: each still sees every packet.

use crate::prelude::*;

/// Datagrams, each with a reply.
const DATAGRAMS: u64 = 50;
/// The remote pod that answers.
const POD: u8 = 16;

pub(crate) fn cases(suite: &mut Suite<World>) {
    for mechanism in Mechanism::BOTH {
        for layout in Layout::CNI {
            let name = format!("programs of others, ours by {mechanism}, {layout}");
            suite.case(name, move |world| see_what_they_saw(world, mechanism, layout));
        }
    }
}

/// Where a program of others is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spot {
    /// Attached by tcx before our agent came.
    Earlier,
    /// A filter of clsact from before our agent came.
    Filter,
    /// Put before all programs that are there, ours included.
    Front,
    /// Put behind all programs that are there, ours included.
    Back,
}

impl Spot {
    /// Whether our program has run when this one does. On the way from the pod ours is the first,
    /// and on the way to it the last, unless somebody comes later. Filters run after tcx, and those of others between ours.
    const fn is_after_ours(self, mechanism: Mechanism, way: Way) -> bool {
        match (mechanism, way) {
            (Mechanism::Tcx, Way::Ingress) => !matches!(self, Self::Front),
            (Mechanism::Tcx, Way::Egress) => matches!(self, Self::Back | Self::Filter),
            (Mechanism::Clsact, way) => matches!(way, Way::Ingress),
        }
    }
}

struct Observer {
    spot: Spot,
    way: Way,
    counter: Counter,
}

impl Observer {
    /// Two at the interface of a pod.
    fn attach(node: &Namespace, pod: &Pod, spot: Spot, pins: &BpfDirectory) -> Result<Vec<Self>> {
        let device = &pod.device;
        let attach = |way| {
            let counter = match spot {
                Spot::Front => Counter::by_tcx(node, device, way, Order::First)?,
                Spot::Earlier | Spot::Back => Counter::by_tcx(node, device, way, Order::Last)?,
                Spot::Filter => Counter::by_filter(node, device, way, pins.path())?,
            };
            Ok(Self { spot, way, counter })
        };
        Way::BOTH.into_iter().map(attach).collect()
    }

    /// What it has counted on its way of packets between the pod and another address.
    fn between(&self, pod: IpAddr, other: IpAddr) -> Result<u64> {
        Ok(match self.way {
            Way::Ingress => self.counter.count(pod, other)?,
            Way::Egress => self.counter.count(other, pod)?,
        })
    }
}

fn see_what_they_saw(world: &World, mechanism: Mechanism, layout: Layout) -> Result {
    let place = world.new_place(&[(layout, 1)])?;
    let (node, pod) = (&place.node.netns, place.pod(layout)?);
    let pins = BpfDirectory::create(&world.run, "foreign-pins")?;
    node.output("tc", &["qdisc", "add", "dev", &pod.device, "clsact"])?;
    let mut observers = Observer::attach(node, pod, Spot::Filter, &pins)?;
    // Beside a tcx program of others the agent attaches no filter.
    let has_tcx = mechanism == Mechanism::Tcx;
    if has_tcx {
        observers.extend(Observer::attach(node, pod, Spot::Earlier, &pins)?);
    }
    passes_directly(pod, &observers).context("without an agent")?;

    let target = world.fresh("observed").with_remote(Distance::Near, &[POD]);
    let attach = format!("--tc-attach={mechanism}");
    let flags = ["--socket-lb=off", "--tc=on", &attach];
    let mut site = Site::start(&world.run, "foreign", node, &flags, &[&target.service])?;
    for spot in [Spot::Front, Spot::Back].into_iter().filter(|_| has_tcx) {
        observers.extend(Observer::attach(node, pod, spot, &pins)?);
    }
    passes_directly(pod, &observers).context("beside an agent")?;
    passes_translated(pod, &observers, &target, mechanism)?;
    wait::until("the program before ours to be reported", || {
        let status = site.agent.status()?;
        let devices = status["report"]["tc"]["devices"].as_array().context("no devices")?;
        let of_pod = devices.iter().find(|one| one["name"] == *pod.device).context("no device")?;
        ensure!(of_pod["attached_by"] == mechanism.to_string(), "{of_pod}");
        let ahead = of_pod["ahead"].as_str().unwrap_or_default();
        ensure!(ahead.contains("tcx ingress") == has_tcx, "{of_pod}");
        Ok(())
    })?;

    site.agent.stop()?;
    let cleanup = site.agent.cleanup()?;
    ensure!(cleanup.status.success(), "{cleanup:?}");
    passes_directly(pod, &observers).context("after the cleanup")?;
    let count = observers.len();
    tell(format!("{count} programs of others saw all {DATAGRAMS} packets, IPv4 and IPv6"));
    Ok(())
}

/// Everybody sees what is to no VIP.
fn passes_directly(pod: &Pod, observers: &[Observer]) -> Result {
    for family in Family::ON_WIRE {
        let (own, backend) = addresses(pod, family);
        let seen = seen(observers, own, &[backend], || {
            exchange(pod, family, SocketAddr::new(backend, UDP.1))
        })?;
        for (Observer { spot, way, .. }, seen) in observers.iter().zip(seen) {
            ensure!(seen == [DATAGRAMS], "{spot:?}, {way:?}: {seen:?} packets, {family}");
        }
    }
    Ok(())
}

/// Everybody sees what is to the VIP, on one side of ours or the other.
fn passes_translated(
    pod: &Pod,
    observers: &[Observer],
    target: &Target,
    mechanism: Mechanism,
) -> Result {
    for family in Family::ON_WIRE {
        let (own, backend) = addresses(pod, family);
        let vip = target.udp(family);
        let seen = seen(observers, own, &[vip.ip(), backend], || exchange(pod, family, vip))?;
        for (Observer { spot, way, .. }, seen) in observers.iter().zip(seen) {
            let meets_vip = (*way == Way::Ingress) != spot.is_after_ours(mechanism, *way);
            let expected = if meets_vip { [DATAGRAMS, 0] } else { [0, DATAGRAMS] };
            ensure!(
                seen == expected,
                "{spot:?}, {way:?}: {seen:?} packets of the VIP and of the backend, {family}"
            );
        }
    }
    Ok(())
}

/// The pod's address and that of the remote pod.
fn addresses(pod: &Pod, family: Family) -> (IpAddr, IpAddr) {
    let [v4, v6] = Distance::Near.pod(POD);
    let backend = if family == Family::V6 { v6 } else { v4 };
    (family.address(pod.v4(), pod.v6(), 0).ip(), backend)
}

fn exchange(pod: &Pod, family: Family, to: SocketAddr) -> Result {
    pod.netns.run(|| {
        let socket = client::udp(family)?;
        (0..DATAGRAMS).try_for_each(|_| {
            let source = ask(&socket, to)?.source;
            ensure!(source == to, "{source} is shown instead of {to}");
            Ok(())
        })
    })?
}

/// What each observer sees of packets between the pod and each of `others` while `work` is done.
fn seen(
    observers: &[Observer],
    pod: IpAddr,
    others: &[IpAddr],
    work: impl FnOnce() -> Result,
) -> Result<Vec<Vec<u64>>> {
    let counts = || {
        let count = |observer: &Observer| {
            others.iter().map(|other| observer.between(pod, *other)).collect()
        };
        observers.iter().map(count).collect::<Result<Vec<Vec<u64>>>>()
    };
    let before = counts()?;
    work()?;
    let mut after = counts()?;
    for (after, before) in after.iter_mut().flatten().zip(before.into_iter().flatten()) {
        *after -= before;
    }
    Ok(after)
}
