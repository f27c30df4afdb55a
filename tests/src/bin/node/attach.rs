//! Which devices get programs, and what becomes of the programs when agents, devices and foreign programs change.

use rustix::net::bind;

use crate::prelude::*;

/// Long after a connection that is translated is there.
const SOON: Duration = Duration::from_millis(300);
const PODS: [(Layout, u8); 1] = [(Layout::Routed, 2)];
/// The device of the first pod, and of the second.
pub(crate) const FIRST: &str = "routed-2";
pub(crate) const SECOND: &str = "routed-3";
pub(crate) const UPLINK: &str = "uplink";

pub(crate) fn cases(suite: &mut Suite<World>) {
    for by in Mechanism::BOTH {
        let mut case = |name: &str, check: fn(&World, Mechanism) -> Result| {
            suite.case(format!("{name}, by {by}"), move |world| {
                can_attach(by)?;
                check(world, by)
            });
        };
        case("devices of pods and uplinks get programs", chooses);
        case("the agent is killed under load", is_killed);
        case("pods come and go", follows_pods);
        case("another process detaches programs", repairs);
        case("the qdisc or the pins of links are removed", repairs_places);
        case("a program of others on a device", leaves_alone);
        case("a program of others that comes later", stays);
        case("the packet path is turned off", turns_off);
        case("agents side by side", coexist);
        case("cleanup leaves what others have", cleans_up);
    }
    suite.case("from tcx to clsact and back under load", |world| {
        can_attach(Mechanism::Tcx)?;
        changes_mechanism(world)
    });
    suite.case("an ingress qdisc is in the way of clsact", |world| {
        can_attach(Mechanism::Tcx)?;
        is_in_the_way(world)
    });
    suite.case("patterns choose devices", |world| {
        can_attach(Mechanism::Tcx)?;
        follows_patterns(world)
    });
}

pub(crate) fn can_attach(by: Mechanism) -> Result {
    if by == Mechanism::Tcx && !Features::probe()?.tcx {
        return Err(skip("tcx needs Linux 6.6"));
    }
    Ok(())
}

/// A separate node with two pods and an agent.
pub(crate) struct Bench {
    pub(crate) site: Site,
    pub(crate) target: Target,
    pub(crate) place: Place,
}

impl Bench {
    pub(crate) fn start(world: &World, by: Mechanism, flags: &[&str]) -> Result<Self> {
        Self::on(world, world.new_place(&PODS)?, by, flags)
    }

    pub(crate) fn on(world: &World, place: Place, by: Mechanism, flags: &[&str]) -> Result<Self> {
        let target = world.fresh("attached").with_remote(Distance::Near, World::WEB);
        let flags = all_flags(by, flags);
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        let node = &place.node.netns;
        let site =
            Site::start(&world.run, &place.name("attach"), node, &flags, &[&target.service])?;
        Ok(Self { site, target, place })
    }

    pub(crate) fn node(&self) -> &Namespace {
        &self.place.node.netns
    }

    fn restart(&mut self, by: Mechanism, flags: &[&str]) -> Result {
        let flags = all_flags(by, flags);
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        self.site.agent.come_back(&flags)
    }

    pub(crate) fn client(&self) -> Result<&Pod> {
        self.place.pod(Layout::Routed)
    }

    /// What the agent says of each device.
    pub(crate) fn devices(&self) -> Result<BTreeMap<String, Value>> {
        let status = self.site.agent.status()?;
        let devices = status["report"]["tc"]["devices"].as_array().context("no devices")?;
        let named = |device: &Value| Some((device["name"].as_str()?.to_owned(), device.clone()));
        Ok(devices.iter().filter_map(named).collect())
    }

    /// The ids of pinned links and of their programs, by hook and device index.
    pub(crate) fn links(&self) -> Result<BTreeMap<(String, u64), (u64, u64)>> {
        let status = self.site.agent.status()?;
        let links = status["tc_links"].as_array().context("no links")?;
        let id = |value: &Value| value.as_u64().context("no number");
        links
            .iter()
            .map(|link| {
                ensure!(link["attached"] == true, "{link}");
                let hook = link["hook"].as_str().context("no hook")?.to_owned();
                Ok((
                    (hook, id(&link["device"])?),
                    (id(&link["link_id"])?, id(&link["program_id"])?),
                ))
            })
            .collect()
    }

    /// Waits until the agent has left a device alone for this reason.
    fn wait_until_left_alone(&self, device: &str, reason: &str) -> Result {
        wait::until(&format!("{device} to be left alone"), || {
            let devices = self.devices()?;
            let device = devices.get(device).context("it is not listed")?;
            let said = device["left_alone"].as_str().unwrap_or_default();
            ensure!(said.contains(reason), "{device}");
            Ok(())
        })
    }
}

pub(crate) fn all_flags(by: Mechanism, flags: &[&str]) -> Vec<String> {
    let mut all = vec!["--socket-lb=off".to_owned(), format!("--tc-attach={by}")];
    all.extend(flags.iter().map(|&flag| flag.to_owned()));
    if !flags.iter().any(|flag| flag.starts_with("--tc=")) {
        all.push("--tc=auto".to_owned());
    }
    all
}

/// A pod reaches the service of both families, and sees the VIP.
pub(crate) fn reaches(pod: &Pod, target: &Target) -> Result {
    for family in Family::ON_WIRE {
        pod.netns.run(|| greeted(family, target.tcp(family)))??;
    }
    Ok(())
}

/// No packet of the pod is translated; on the uplink those of the VIP are dropped.
fn misses(pod: &Pod, target: &Target) -> Result {
    for family in Family::ON_WIRE {
        let connected = pod.netns.run(|| TcpStream::connect_timeout(&target.tcp(family), SOON))?;
        ensure!(connected.is_err(), "the pod has reached the service by {family}");
    }
    Ok(())
}

/// Runs `work` while each of these pods makes one connection after the other, and keeps one open.
pub(crate) fn under_load(pods: &[&Pod], target: &Target, work: impl FnOnce() -> Result) -> Result {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let connect = |pod: &Pod| pod.netns.run(|| connect_until(&is_over, target))?;
        let clients: Vec<_> = pods.iter().map(|pod| scope.spawn(move || connect(pod))).collect();
        let result = work();
        is_over.store(true, Ordering::Relaxed);
        for client in clients {
            let connections =
                client.join().map_err(|_| anyhow::anyhow!("the client panicked"))??;
            ensure!(connections > 10, "there were {connections} connections only");
        }
        result
    })
}

/// Makes connections until it is over. Returns how many.
fn connect_until(is_over: &AtomicBool, target: &Target) -> Result<u32> {
    let (kept, _) = greeted(Family::V4, target.tcp(Family::V4))?;
    let mut connections = 0;
    while !is_over.load(Ordering::Relaxed) {
        for family in Family::ON_WIRE {
            greeted(family, target.tcp(family))
                .with_context(|| format!("after {connections} connections"))?;
            connections += 1;
        }
    }
    bulk(&kept, 100_000).context("the connection that was kept")?;
    Ok(connections)
}

fn chooses(world: &World, by: Mechanism) -> Result {
    let bench = Bench::start(world, by, &[])?;
    let devices = bench.devices()?;
    assert_eq!(devices.keys().collect::<Vec<_>>(), [FIRST, SECOND, UPLINK]);
    for (device, role, hooks) in [
        (FIRST, "pod", vec!["to_pod", "from_pod"]),
        (SECOND, "pod", vec!["to_pod", "from_pod"]),
        (UPLINK, "uplink", vec!["uplink"]),
    ] {
        let device = &devices[device];
        assert_eq!(device["role"], role, "{device}");
        assert_eq!(device["hooks"], serde_json::json!(hooks), "{device}");
        assert_eq!(device["attached_by"], by.to_string(), "{device}");
    }
    reaches(bench.client()?, &bench.target)?;
    let index = bench.node().index(SECOND)?;
    let links = bench.links()?;
    assert_eq!(links.contains_key(&("to_pod".to_owned(), index.into())), by == Mechanism::Tcx);
    // Nobody translates what the node itself sends, without socket hooks.
    bench
        .node()
        .run(|| client::udp(Family::V4)?.send_to(b"leak", bench.target.udp(Family::V4)))??;
    let counters = bench.site.agent.counters()?;
    assert_eq!(counters.get("leak_prevented"), Some(&1), "{counters:?}");
    Ok(())
}

fn is_killed(world: &World, by: Mechanism) -> Result {
    let mut bench = Bench::start(world, by, &[])?;
    let before = (bench.links()?, bench.devices()?);
    let place = &bench.place;
    let pod = place.pod(Layout::Routed)?;
    let (site, target) = (&mut bench.site, &bench.target);
    let flags = all_flags(by, &[]);
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    under_load(&[pod], target, || {
        site.agent.kill()?;
        thread::sleep(Duration::from_millis(200));
        site.agent.come_back(&flags)
    })?;
    let after = (bench.links()?, bench.devices()?);
    let ids = |links: &BTreeMap<_, (u64, u64)>| -> Vec<_> {
        links.values().map(|(link, _)| *link).collect()
    };
    assert_eq!(ids(&before.0), ids(&after.0), "other links");
    assert_eq!(after.0.len(), if by == Mechanism::Tcx { 5 } else { 0 });
    for (name, device) in &before.1 {
        assert_ne!(device["programs"], after.1[name]["programs"], "{name} has the old programs");
    }
    Ok(())
}

fn follows_pods(world: &World, by: Mechanism) -> Result {
    let bench = Bench::start(world, by, &[])?;
    let pins = bench.site.bpffs.path().join("mcs/links");
    let pod = bench.place.another_pod(&world.run, Layout::Routed)?;
    let start = Instant::now();
    let index = bench.node().index(&pod.device)?;
    wait::until("the new pod's device to be attached", || {
        let devices = bench.devices()?;
        let device = devices.get(&pod.device).context("it is not listed")?;
        ensure!(device["attached_by"] == by.to_string(), "{device}");
        Ok(())
    })?;
    let took = start.elapsed();
    // Without events it would take five seconds, at most and mostly.
    ensure!(took < wait::scaled(Duration::from_secs(3)), "it took {took:?}");
    reaches(&pod, &bench.target)?;
    let left = || -> Result<Vec<String>> {
        let mut names = Vec::new();
        for directory in ["tc", "clsact"].map(|name| pins.join(name)) {
            if directory.exists() {
                for entry in std::fs::read_dir(directory)? {
                    names.push(entry?.file_name().to_string_lossy().into_owned());
                }
            }
        }
        let suffix = format!("-{index}");
        Ok(names.into_iter().filter(|name| name.ends_with(&suffix)).collect())
    };
    assert_eq!(left()?.len(), if by == Mechanism::Tcx { 2 } else { 1 });
    drop(pod);
    wait::until("what is pinned for the pod to go", || {
        let left = left()?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })?;
    wait::until("the report to leave the pod out", || {
        let devices = bench.devices()?;
        ensure!(devices.keys().eq([FIRST, SECOND, UPLINK]), "{devices:?}");
        Ok(())
    })?;
    ensure!(bench.site.agent.is_healthy()?, "{}", bench.site.agent.status()?["degraded"]);
    reaches(bench.client()?, &bench.target)?;
    takes_index(world, &bench)
}

/// Another pod gets the index, the address and the ports of one that has gone. By itself the kernel gives an index again
/// after 2^31 devices. The programs on the device that has gone are no sign that this one has any, and flows of its pod do not lead
/// connections of this one to where backends were.
fn takes_index(world: &World, bench: &Bench) -> Result {
    const PORT: u16 = 45_678;
    const AFTER: &[u8] = &[14, 15];
    let (node, place) = (&bench.place.node, &bench.place);
    let former = place.another_pod(&world.run, Layout::Routed)?;
    wait::until("the pod to reach the service", || reaches(&former, &bench.target))?;
    let ask_from_port = |netns: &Namespace, pods: &[u8]| {
        netns.run(|| {
            for (family, port) in Family::ON_WIRE.into_iter().zip(PORT..) {
                let stream = client::tcp(family)?;
                bind(&stream, &family.any(port))?;
                let (_, backend) = greeted_on(stream, bench.target.tcp(family))?;
                let expected = backends(Distance::Near, pods, family, TCP.1);
                ensure!(expected.contains(&backend), "{backend} answered a connection");
                let socket = client::udp(family)?;
                bind(&socket, &family.any(port))?;
                let backend = ask(&socket, bench.target.udp(family))?.backend;
                let expected = backends(Distance::Near, pods, family, UDP.1);
                ensure!(expected.contains(&backend), "{backend} answered a datagram");
            }
            anyhow::Ok(())
        })?
    };
    ask_from_port(&former.netns, World::WEB)?;
    let index = node.netns.index(&former.device)?;
    let before = bench.links()?;

    bench.site.apply(&bench.target.clone().with_remote(Distance::Near, AFTER).service)?;
    let netns = Namespace::create(&world.run, &place.name("heir"))?;
    let (device, v4, v6) = (&former.device, former.v4(), former.v6());
    let (gateway, mac, link_local) =
        ("169.254.1.1", "ee:ee:ee:ee:ee:ee", "fe80::ecee:eeff:feee:eeee");
    node.netns.ip(&format!(
        "link delete {device}\n\
         link add {device} index {index} address {mac} type veth peer name eth0 netns {}",
        netns.name()
    ))?;
    netns.ip(&format!(
        "address add {v4}/32 dev eth0\n\
         address add {v6}/128 dev eth0 nodad\n\
         link set eth0 up\n\
         route add {gateway} dev eth0 scope link\n\
         route add default via {gateway} dev eth0\n"
    ))?;
    former.reconnect(node)?;
    netns.ip(&format!("route add default via {link_local} dev eth0"))?;
    assert_eq!(node.netns.index(device)?, index);
    wait::until("the new pod to reach the service", || {
        netns.run(|| greeted(Family::V4, bench.target.tcp(Family::V4)))?
    })?;
    ask_from_port(&netns, AFTER)?;
    let after = bench.links()?;
    for (key, link) in &before {
        let is_other = after.get(key).is_some_and(|now| now != link);
        assert_eq!(is_other, key.1 == u64::from(index), "{key:?} in {after:?}");
    }
    assert!(before.keys().eq(after.keys()), "{before:?} and {after:?}");
    ensure!(bench.site.agent.is_healthy()?, "{}", bench.site.agent.status()?["degraded"]);
    reaches(bench.client()?, &bench.target)
}

/// Links whose pins are gone stay attached, so that not even a new connection fails.
fn repairs_places(world: &World, by: Mechanism) -> Result {
    let bench = Bench::start(world, by, &[])?;
    let before = bench.links()?;
    let start = Instant::now();
    let lost = match by {
        Mechanism::Tcx => {
            let pins = bench.site.bpffs.path().join("mcs/links/tc");
            let pins: Vec<_> = std::fs::read_dir(pins)?.collect::<Result<_, _>>()?;
            for pin in &pins {
                std::fs::remove_file(pin.path())?;
            }
            reaches(bench.client()?, &bench.target)?;
            pins.len()
        }
        Mechanism::Clsact => {
            bench.node().output("tc", &["qdisc", "del", "dev", FIRST, "clsact"])?;
            2
        }
    };
    wait::until("the repairs to be reported", || {
        let status = bench.site.agent.status()?;
        let repairs = &status["report"]["tc"]["repairs"];
        ensure!(*repairs == lost, "{repairs} repairs instead of {lost}");
        ensure!(status["state"] == "healthy", "{}", status["degraded"]);
        Ok(())
    })?;
    ensure!(by == Mechanism::Clsact || bench.links()? == before, "other links");
    tell(format!("{lost} put right after {:.1?}", start.elapsed()));
    reaches(bench.client()?, &bench.target)
}

fn repairs(world: &World, by: Mechanism) -> Result {
    let bench = Bench::start(world, by, &[])?;
    match by {
        Mechanism::Tcx => {
            let key = ("from_pod".to_owned(), u64::from(bench.node().index(FIRST)?));
            let (link, _) = *bench.links()?.get(&key).context("no link")?;
            bpf::detach_link(u32::try_from(link)?)?;
        }
        Mechanism::Clsact => {
            bench.node().output("tc", &["filter", "del", "dev", FIRST, "ingress"])?;
        }
    }
    let logged = || -> Result<usize> {
        Ok(bench.site.agent.log()?.matches("another process detached from_pod").count())
    };
    wait::until("the agent to notice", || {
        ensure!(logged()? > 0, "it has not logged so");
        Ok(())
    })?;
    wait::until("the agent to be healthy", || {
        ensure!(bench.site.agent.is_healthy()?, "{}", bench.site.agent.status()?["degraded"]);
        Ok(())
    })?;
    reaches(bench.client()?, &bench.target)?;
    assert_eq!(logged()?, 1);
    Ok(())
}

/// A program of others on the first pod's device.
fn stranger(bench: &Namespace, by: Mechanism, pins: &BpfDirectory) -> Result<Counter> {
    match by {
        Mechanism::Tcx => Counter::by_tcx(bench, FIRST, Way::Egress, Order::Last),
        Mechanism::Clsact => Counter::by_filter(bench, FIRST, Way::Egress, pins.path()),
    }
}

fn leaves_alone(world: &World, by: Mechanism) -> Result {
    let place = world.new_place(&PODS)?;
    let pins = BpfDirectory::create(&world.run, "strangers")?;
    if by == Mechanism::Clsact {
        place.node.netns.output("tc", &["qdisc", "add", "dev", FIRST, "clsact"])?;
    }
    let counter = stranger(&place.node.netns, by, &pins)?;
    let mut bench = Bench::on(world, place, by, &[])?;
    bench.wait_until_left_alone(FIRST, "eBPF program")?;
    assert_eq!(bench.devices()?[FIRST]["hooks"], serde_json::json!([]));
    misses(bench.client()?, &bench.target)?;
    reaches(bench.place.peer(Layout::Routed)?, &bench.target)?;

    bench.site.agent.stop()?;
    bench.restart(by, &["--tc=on"])?;
    reaches(bench.client()?, &bench.target)?;
    bench.site.agent.stop()?;
    // What `on` attached is no reason for `auto` to stay.
    bench.restart(by, &[])?;
    bench.wait_until_left_alone(FIRST, "eBPF program")?;
    misses(bench.client()?, &bench.target)?;
    reaches(bench.place.peer(Layout::Routed)?, &bench.target)?;

    drop(counter);
    if by == Mechanism::Clsact {
        bench.node().output("tc", &["filter", "del", "dev", FIRST, "egress"])?;
    }
    wait::until("the device to be attached", || reaches(bench.client()?, &bench.target))
}

/// Connections are open over the device, so our programs stay.
fn stays(world: &World, by: Mechanism) -> Result {
    let mut bench = Bench::start(world, by, &[])?;
    let vip = bench.target.tcp(Family::V4);
    let (stream, _) = bench.client()?.netns.run(|| greeted(Family::V4, vip))??;
    // This agent finds what `auto` attached, so it is no part of a pod that is being set up.
    bench.site.agent.stop()?;
    bench.restart(by, &[])?;
    let pins = BpfDirectory::create(&world.run, "later")?;
    let _counter = stranger(bench.node(), by, &pins)?;
    wait::until("the program of others to be reported", || {
        let devices = bench.devices()?;
        let device = devices.get(FIRST).context("it is not listed")?;
        let said = device["beside"].as_str().unwrap_or_default();
        ensure!(said.contains("eBPF program"), "{device}");
        Ok(())
    })?;
    let degraded = bench.site.agent.status()?["degraded"].to_string();
    ensure!(degraded.contains("may pass packets by them"), "{degraded}");
    bulk(&stream, 10_000)?;
    reaches(bench.client()?, &bench.target)
}

fn turns_off(world: &World, by: Mechanism) -> Result {
    let mut bench = Bench::start(world, by, &[])?;
    reaches(bench.client()?, &bench.target)?;
    bench.site.agent.kill()?;
    bench.restart(by, &["--tc=off"])?;
    misses(bench.client()?, &bench.target)?;
    assert!(bench.links()?.is_empty() && bench.devices()?.is_empty());
    let qdiscs = bench.node().output("tc", &["qdisc", "show"])?;
    ensure!(!qdiscs.contains("clsact"), "{qdiscs}");
    bench.site.agent.stop()?;
    bench.restart(by, &["--uplinks=none"])?;
    reaches(bench.client()?, &bench.target)?;
    assert_eq!(bench.devices()?.keys().collect::<Vec<_>>(), [FIRST, SECOND]);
    Ok(())
}

/// Another agent is no stranger.
fn coexist(world: &World, by: Mechanism) -> Result {
    // Whose a program is takes CAP_SYS_ADMIN to know, so that `auto` leaves the other one's devices alone.
    let on = ["--tc=on"];
    let mut bench = Bench::start(world, by, &on)?;
    let other = world.fresh("beside").with_remote(Distance::Near, World::WEB);
    let flags = all_flags(by, &on);
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let role = bench.place.name("beside");
    let mut beside = Site::start(&world.run, &role, bench.node(), &flags, &[&other.service])?;
    for target in [&bench.target, &other] {
        reaches(bench.client()?, target)?;
    }
    bench.site.agent.stop()?;
    bench.restart(by, &on)?;
    beside.agent.stop()?;
    let cleanup = beside.agent.cleanup()?;
    ensure!(cleanup.status.success(), "{cleanup:?}");
    misses(bench.client()?, &other)?;
    reaches(bench.client()?, &bench.target)
}

fn cleans_up(world: &World, by: Mechanism) -> Result {
    let place = world.new_place(&PODS)?;
    let node = &place.node.netns;
    let pins = BpfDirectory::create(&world.run, "strangers")?;
    // One qdisc is there before ours, and on one of ours somebody puts a filter later.
    node.output("tc", &["qdisc", "add", "dev", FIRST, "clsact"])?;
    let mut bench = Bench::on(world, place, by, &["--tc=on"])?;
    let node = &bench.place.node.netns;
    if by == Mechanism::Clsact {
        Counter::by_filter(node, SECOND, Way::Ingress, pins.path())?;
    }
    reaches(bench.client()?, &bench.target)?;
    bench.site.agent.stop()?;
    let cleanup = bench.site.agent.cleanup()?;
    ensure!(cleanup.status.success(), "{cleanup:?}");
    ensure!(!bench.site.bpffs.path().join("mcs").exists(), "{cleanup:?}");
    misses(bench.client()?, &bench.target)?;
    let filters = |device| -> Result<usize> {
        let shown = [Way::Ingress, Way::Egress]
            .map(|way| node.output("tc", &["filter", "show", "dev", device, way.name()]));
        let [ingress, egress] = shown;
        Ok(format!("{}{}", ingress?, egress?).matches(" handle ").count())
    };
    let qdiscs = node.output("tc", &["qdisc", "show"])?;
    let has_clsact = |device: &str| qdiscs.contains(&format!("clsact ffff: dev {device} "));
    assert!(has_clsact(FIRST), "{qdiscs}");
    assert_eq!(has_clsact(SECOND), by == Mechanism::Clsact, "{qdiscs}");
    assert!(!has_clsact(UPLINK), "{qdiscs}");
    assert_eq!(filters(FIRST)?, 0);
    assert_eq!(filters(SECOND)?, usize::from(by == Mechanism::Clsact));
    Ok(())
}

fn changes_mechanism(world: &World) -> Result {
    let mut bench = Bench::start(world, Mechanism::Tcx, &[])?;
    let place = &bench.place;
    let pod = place.pod(Layout::Routed)?;
    let (site, target) = (&mut bench.site, &bench.target);
    under_load(&[pod], target, || {
        for by in [Mechanism::Clsact, Mechanism::Tcx, Mechanism::Clsact] {
            site.agent.stop()?;
            let flags = all_flags(by, &[]);
            let flags: Vec<_> = flags.iter().map(String::as_str).collect();
            site.agent.come_back(&flags)?;
            let status = site.agent.status()?;
            for device in status["report"]["tc"]["devices"].as_array().context("no devices")? {
                ensure!(device["attached_by"] == by.to_string(), "{device}");
            }
            let links = status["tc_links"].as_array().map(Vec::len);
            ensure!(links == Some(if by == Mechanism::Tcx { 5 } else { 0 }), "{status}");
        }
        Ok(())
    })
}

fn is_in_the_way(world: &World) -> Result {
    let place = world.new_place(&PODS)?;
    place.node.netns.output("tc", &["qdisc", "add", "dev", FIRST, "ingress"])?;
    let mut bench = Bench::on(world, place, Mechanism::Tcx, &[])?;
    reaches(bench.client()?, &bench.target)?;
    bench.site.agent.stop()?;
    let flags = all_flags(Mechanism::Clsact, &[]);
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    bench.site.agent.start_again(&flags)?;
    wait::until("status to name the qdisc", || {
        let degraded = bench.site.agent.status()?["degraded"].to_string();
        let said = format!("{FIRST}: an ingress qdisc");
        ensure!(degraded.contains(&said), "{degraded}");
        Ok(())
    })?;
    bench.node().output("tc", &["qdisc", "del", "dev", FIRST, "ingress"])?;
    bench.site.agent.wait_until_healthy()?;
    reaches(bench.client()?, &bench.target)
}

fn follows_patterns(world: &World) -> Result {
    let mut bench = Bench::start(world, Mechanism::Tcx, &["--tc-devices=!*-3", "--uplinks=none"])?;
    let roles = |bench: &Bench| -> Result<Vec<(String, bool)>> {
        let devices = bench.devices()?;
        let is_attached = |device: &Value| device["attached_by"] == "tcx";
        Ok(devices.iter().map(|(name, device)| (name.clone(), is_attached(device))).collect())
    };
    let expected = |devices: &[(&str, bool)]| -> Vec<_> {
        devices.iter().map(|(name, is_attached)| ((*name).to_owned(), *is_attached)).collect()
    };
    assert_eq!(roles(&bench)?, expected(&[(FIRST, true), (SECOND, false)]));
    bench.site.agent.stop()?;
    bench.restart(Mechanism::Tcx, &["--tc-devices=routed-3,kind=tun", "--uplinks=up*"])?;
    assert_eq!(roles(&bench)?, expected(&[(SECOND, true), (UPLINK, true)]));
    misses(bench.client()?, &bench.target)?;
    reaches(bench.place.peer(Layout::Routed)?, &bench.target)
}
