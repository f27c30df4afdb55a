//! Whom clients get: by the weights of clusters, and after the deadline of a drain.

use std::thread::sleep;

use jiff::{SignedDuration, Timestamp};
use mcs_tests::{agent::CAPABILITY_FOR_STALE_UDP, manifests::Aside};

use crate::prelude::*;

const TRAFFIC: &str = "traffic.clusterset.mcs-agent.io";
/// The pod of the cluster that is drained, and that of another one.
const DRAINED: u8 = 11;
const OTHER: u8 = 12;
/// Sockets of each kind.
const EACH: usize = 12;
/// How long the drain lasts. All clients are asked once within that time.
const DRAIN: SignedDuration = SignedDuration::from_secs(8);

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("new clients are shared by the weights of clusters", shares);
    suite.case("a drain under load resets nothing, and takes effect at once", drains_under_load);
    suite.case("former clients leave a drained cluster at the deadline, and no others do", ends);
}

/// Threads with clients, and how many connections each makes a second.
const THREADS: usize = 4;
const RATE: u32 = 250;
/// From then on after the change of the maps, no new connection goes to the drained cluster.
const EFFECTIVE: Duration = Duration::from_millis(100);
const UNDER_LOAD: Duration = Duration::from_secs(2);

/// When a connection was begun, and which backend it got.
type Connection = (Instant, Result<SocketAddr>);

fn drains_under_load(world: &mut World) -> Result {
    let target = world.fresh("drained");
    let both = target.service.clone().endpoints("west", pod_addresses(DRAINED));
    let both = both.endpoints("south", pod_addresses(OTHER));
    let left = both.clone().aside(Aside::Draining, pod_addresses(DRAINED));
    let api = &world.east.api;
    let objects: Vec<_> = [both.import()].into_iter().chain(both.slices()).collect();
    api.apply_all(&objects)?;
    let mut site = world.start("drained", &[])?;
    site.wait_until_healthy()?;
    site.wait_for(&both)?;
    let _in_cgroup = site.cgroup.visit()?;
    let held = world.network.node.netns.run(|| Client::begin(&target))??;
    let stop = AtomicBool::new(false);
    let (drained_at, connections) = thread::scope(|scope| {
        let client =
            || world.network.node.netns.run(|| connect_until(&stop, target.tcp(Family::V4)));
        let clients: Vec<_> = (0..THREADS).map(|_| scope.spawn(client)).collect();
        sleep(UNDER_LOAD);
        let traffic = cluster_property(TRAFFIC, r#"{"west":{"drain":true}}"#);
        let drained = api.apply(&traffic).and_then(|()| site.wait_for(&left));
        let drained_at = Instant::now();
        sleep(UNDER_LOAD);
        stop.store(true, Ordering::Relaxed);
        let mut connections = Vec::new();
        for client in clients {
            let made = client.join().map_err(|_| anyhow::anyhow!("a client panics"))?;
            connections.extend(made?);
        }
        drained.map(|()| (drained_at, connections))
    })?;
    let is_late = |began: &Instant| *began >= drained_at + EFFECTIVE;
    let (mut late, mut to_drained) = (0, 0);
    for (began, backend) in &connections {
        let backend = backend.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?;
        late += usize::from(is_late(began));
        let is_drained = pod_addresses(DRAINED).contains(&backend.ip());
        to_drained += usize::from(is_late(began) && is_drained);
    }
    tell(format!(
        "{} connections, none failed; {late} were begun after the drain",
        connections.len()
    ));
    ensure!(late > THREADS && to_drained == 0, "{to_drained} of {late} got the drained cluster");
    held.iter().try_for_each(|client| client.goes_on(&target)).context("after the drain")?;
    api.delete(&cluster_property(TRAFFIC, ""))?;
    objects.iter().try_for_each(|object| api.delete(object))
}

fn connect_until(stop: &AtomicBool, vip: SocketAddr) -> Vec<Connection> {
    let began = Instant::now();
    let mut made = Vec::new();
    for nth in 0.. {
        sleep((Duration::from_secs(1) * nth / RATE).saturating_sub(began.elapsed()));
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let at = Instant::now();
        let backend = connected(Family::V4, vip).map_err(anyhow::Error::new);
        made.push((at, backend.and_then(|stream| identity(&stream))));
    }
    made
}

/// How many new clients are counted.
fn clients() -> usize {
    if is_full() { 100_000 } else { 20_000 }
}

/// Weights by cluster, pods by cluster, and a bound of chi-square that right shares exceed once in a million times.
const SHARES: [(&[(&str, u32)], f64); 2] =
    [(&[("west", 90), ("south", 10)], 23.9), (&[("west", 1), ("south", 1), ("north", 1)], 27.6)];
const PODS: [(&str, &[u8]); 3] = [("west", &[11, 12]), ("south", &[13]), ("north", &[14])];

fn shares(world: &mut World) -> Result {
    let target = world.fresh("shares");
    let api = &world.east.api;
    let mut site = world.start("shares", &[])?;
    site.wait_until_healthy()?;
    let _in_cgroup = site.cgroup.visit()?;
    for (weights, bound) in SHARES {
        let mut service = target.service.clone();
        for (cluster, pods) in PODS.iter().filter(|one| weight_of(weights, one.0) > 0) {
            service = service.endpoints(cluster, pods.iter().flat_map(|pod| pod_addresses(*pod)));
        }
        let objects: Vec<_> = [service.import()].into_iter().chain(service.slices()).collect();
        api.apply_all(&objects)?;
        let told: Value = weights
            .iter()
            .map(|(cluster, weight)| ((*cluster).to_owned(), json!({ "weight": weight })))
            .collect();
        api.apply(&cluster_property(TRAFFIC, &told.to_string()))?;
        site.wait_for_report("weights", |report| report["node"]["traffic"] == told)?;
        wait::until("slots", || {
            let backends = site.agent.command(&["backends", "default/shares"])?;
            let text = String::from_utf8_lossy(&backends.stdout).into_owned();
            ensure!(
                text.contains("Source clusters") && weights.iter().all(|one| text.contains(one.0)),
                "{text}"
            );
            Ok(())
        })?;
        let counts = world.network.node.netns.run(|| count(target.udp(Family::V4), weights))??;
        let all: f64 = counts.iter().sum();
        let weight: u32 = weights.iter().map(|(_, weight)| weight).sum();
        let expected = weights.iter().map(|(_, one)| all * f64::from(*one) / f64::from(weight));
        let chi_square: f64 =
            counts.iter().zip(expected).map(|(found, want)| (found - want).powi(2) / want).sum();
        tell(format!("{told}: {counts:?} of {all}, chi-square {chi_square:.1} of {bound}"));
        ensure!(chi_square <= bound, "the shares differ from {told}");
        objects.iter().try_for_each(|object| api.delete(object))?;
    }
    api.delete(&cluster_property(TRAFFIC, ""))
}

fn weight_of(weights: &[(&str, u32)], cluster: &str) -> u32 {
    weights.iter().find(|(name, _)| *name == cluster).map_or(0, |(_, weight)| *weight)
}

/// How many new clients each cluster gets. A UDP socket that connects again is a new client.
fn count(vip: SocketAddr, weights: &[(&str, u32)]) -> Result<Vec<f64>> {
    let socket = udp(Family::V4)?;
    let mut counts = vec![0.0; weights.len()];
    for _ in 0..clients() {
        connect(&socket, vip)?;
        socket.send(b"who are you")?;
        let backend = receive_nameless(&socket)?.ip();
        let has = |pods: &[u8]| pods.iter().any(|pod| pod_addresses(*pod).contains(&backend));
        let cluster = PODS.iter().find(|(_, pods)| has(pods)).context("a strange pod")?.0;
        let nth = weights.iter().position(|(name, _)| *name == cluster);
        counts[nth.with_context(|| format!("{cluster} has no weight"))?] += 1.0;
    }
    Ok(counts)
}

/// A client that is connected to the VIP, and the pod that it got.
enum Client {
    Tcp(TcpStream, SocketAddr),
    Udp(UdpSocket, SocketAddr),
}

impl Client {
    fn begin(target: &Target) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        for _ in 0..EACH {
            let stream = connected(Family::V4, target.tcp(Family::V4))?;
            let backend = identity(&stream)?;
            all.push(Self::Tcp(stream, backend));
            let socket = udp_connected(Family::V4, target.udp(Family::V4))?;
            socket.send(b"who are you")?;
            let backend = receive_nameless(&socket)?;
            all.push(Self::Udp(socket, backend));
        }
        Ok(all)
    }

    fn is_of(&self, pod: u8) -> bool {
        let (Self::Tcp(_, backend) | Self::Udp(_, backend)) = self;
        pod_addresses(pod).contains(&backend.ip())
    }

    fn goes_on(&self, target: &Target) -> Result {
        match self {
            Self::Tcp(stream, _) => still_goes(stream, target.tcp(Family::V4)),
            Self::Udp(socket, backend) => {
                socket.send(b"who are you")?;
                let answered = receive_nameless(socket)?;
                ensure!(answered == *backend, "{answered} answers instead of {backend}");
                Ok(())
            }
        }
    }

    /// Waits until its socket is destroyed.
    fn ends(&self) -> Result {
        let mut buffer = [0; 16];
        let received = match self {
            Self::Tcp(stream, _) => {
                let mut stream = stream;
                stream.read(&mut buffer)
            }
            Self::Udp(socket, _) => socket.recv(&mut buffer),
        };
        let how = received.err().map(|error| error.kind());
        ensure!(how == Some(ErrorKind::ConnectionAborted), "{how:?} instead of ECONNABORTED");
        Ok(())
    }
}

/// How many sockets are connected to a pod, as `mcs-agent sockets` says.
fn counted(site: &Site, pod: u8) -> Result<u64> {
    let output = site.agent.command(&["sockets", "default/deadline", "-o", "json"])?;
    let all = process::json_list(&output)?;
    let of_pod = all.iter().filter(|one| {
        let backend = one["backend"].as_str().and_then(|text| text.parse::<SocketAddr>().ok());
        backend.is_some_and(|backend| pod_addresses(pod).contains(&backend.ip()))
    });
    Ok(of_pod.filter_map(|one| one["sockets"].as_u64()).sum())
}

fn ends(world: &mut World) -> Result {
    let target = world.fresh("deadline");
    let both = target.service.clone().endpoints("west", pod_addresses(DRAINED));
    let both = both.endpoints("south", pod_addresses(OTHER));
    let api = &world.east.api;
    let objects: Vec<_> = [both.import()].into_iter().chain(both.slices()).collect();
    api.apply_all(&objects)?;
    let source = Source::Kubeconfig(world.east.agents_kubeconfig());
    let launch = world.agent("deadline").flags(&["--stale-tcp=destroy"]);
    let mut site = launch.capabilities(&[CAPABILITY_FOR_STALE_UDP]).follows(source)?;
    site.wait_until_healthy()?;
    site.wait_for(&both)?;
    let _in_cgroup = site.cgroup.visit()?;

    let clients = world.network.node.netns.run(|| Client::begin(&target))??;
    let (drained, others): (Vec<_>, Vec<_>) =
        clients.into_iter().partition(|client| client.is_of(DRAINED));
    tell(format!("{} clients of the drained cluster, {} of another", drained.len(), others.len()));
    ensure!(!drained.is_empty() && !others.is_empty());

    let deadline = Timestamp::now() + DRAIN;
    let traffic = |value: &str| cluster_property(TRAFFIC, value);
    let wish = json!({ "west": { "drain": true, "deadline": deadline.to_string() } });
    api.apply(&traffic(&wish.to_string()))?;
    let mut new = Vec::new();
    wait::until("new clients that get the other cluster", || {
        new = world.network.node.netns.run(|| Client::begin(&target))??;
        let drained = new.iter().filter(|client| client.is_of(DRAINED)).count();
        ensure!(drained == 0, "{drained} of {} get the drained one", new.len());
        Ok(())
    })?;
    drained
        .iter()
        .chain(&others)
        .try_for_each(|client| client.goes_on(&target))
        .context("before the deadline")?;
    ensure!(counted(&site, DRAINED)? == drained.len() as u64, "sockets of the drained cluster");
    let rest = deadline.duration_since(Timestamp::now());
    let rest = Duration::try_from(rest).context("the machine is too slow for this drain")?;

    sleep(rest);
    drained.iter().try_for_each(Client::ends)?;
    let late = Timestamp::now().duration_since(deadline);
    tell(format!("{} ms after the deadline all of them have ended", late.as_millis()));
    ensure!(late <= SignedDuration::try_from(wait::scaled(Duration::from_secs(2)))?, "late");
    others
        .iter()
        .chain(&new)
        .try_for_each(|client| client.goes_on(&target))
        .context("a client of the other cluster")?;
    drop(drained);
    ensure!(counted(&site, DRAINED)? == 0, "sockets that are closed count");
    ensure!(counted(&site, OTHER)? >= (others.len() + new.len()) as u64, "sockets of the other");
    site.wait_for_report("a drain past its deadline", |report| {
        report["node"]["traffic"]["west"]["is_past_deadline"] == true
    })?;
    api.delete(&traffic(""))?;
    site.wait_for(&both)?;
    objects.iter().try_for_each(|object| api.delete(object))
}
