//! Names in clusterset.local: the real CoreDNS with the shipped configuration, and the specs of the public conformance
//! suite about DNS.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    path::Path,
    process::{Child, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use mcs_tests::{cluster::Programs, netns::Namespace, suite::Suite, wait};
use serde_json::json;
use simple_dns::{
    CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE, rdata::RData,
};

use crate::{
    cluster::Cluster,
    objects::{headless, service},
    world::{World, slice_of},
};

const COREFILE: &str = include_str!("../../../../deploy/dns/Corefile");
/// Plug-ins of the Corefile that need more than an API server.
const ELSEWHERE: [&str; 7] =
    ["health", "ready", "prometheus", "forward", "loop", "reload", "loadbalance"];
/// Where CoreDNS listens in the namespace that the control planes share: with the shipped configuration, of the first cluster and of
/// the second, and with another one.
const PORTS: [u16; 3] = [5300, 5301, 5302];

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("the version of the schema", version);
    suite.case("a lookup of a ClusterIP service resolves to the clusterset IP", to_clusterset_ip);
    suite.case("an SRV query of a ClusterIP service", srv_of_clusterset_ip);
    suite.case("lookups of cluster.local only resolve local services", cluster_local);
    suite.case("a lookup of a headless service resolves to all ready pods", headless_pods);
    suite.case("an SRV query of a headless service", srv_of_headless);
    suite.case("a pod of a StatefulSet by its host name and cluster", pod_by_hostname);
}

/// CoreDNS of one cluster. It is killed when this is dropped.
pub(crate) struct Dns {
    child: Child,
    netns: Arc<Namespace>,
    server: SocketAddr,
}

impl Dns {
    /// Starts it with the shipped configuration, for the first or the second cluster.
    pub(crate) fn start(world: &World, place: usize) -> anyhow::Result<Self> {
        Self::start_at(world, &world.clusters[place], COREFILE, PORTS[place])
    }

    /// Starts another one, with this configuration if it is not the shipped one.
    pub(crate) fn another(
        world: &World,
        cluster: &Cluster,
        text: Option<&str>,
    ) -> anyhow::Result<Self> {
        Self::start_at(world, cluster, text.unwrap_or(COREFILE), PORTS[2])
    }

    fn start_at(world: &World, cluster: &Cluster, text: &str, port: u16) -> anyhow::Result<Self> {
        let corefile = cluster.directory().join(format!("Corefile-{port}"));
        fs::write(&corefile, configuration(text, &cluster.administrator()?, port))?;
        let log = File::create(cluster.directory().join(format!("coredns-{port}.log")))?;
        let child = world
            .control
            .netns()
            .command(Programs::from_env().find("coredns")?)
            .arg("-conf")
            .arg(&corefile)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start CoreDNS")?;
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let dns = Self { child, netns: Arc::clone(world.control.netns()), server };
        wait::until("CoreDNS", || dns.ask("dns-version.clusterset.local", TYPE::TXT))?;
        Ok(dns)
    }

    /// Its process id. `nsenter` becomes CoreDNS.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The records of a name; none if there is no such name.
    fn ask(&self, name: &str, kind: TYPE) -> anyhow::Result<Vec<Record>> {
        ask(&self.netns, self.server, name, kind)
    }

    /// Waits for the addresses of a name.
    fn wait_for(&self, name: &str, kind: TYPE, expected: &[IpAddr]) -> anyhow::Result<()> {
        let expected: BTreeSet<_> = expected.iter().copied().map(Record::Address).collect();
        self.wait_for_records(name, kind, &expected)
    }

    fn wait_for_records(
        &self,
        name: &str,
        kind: TYPE,
        expected: &BTreeSet<Record>,
    ) -> anyhow::Result<()> {
        wait::within(Duration::from_mins(1), &format!("records of {name}"), || {
            let found: BTreeSet<_> = self.ask(name, kind)?.into_iter().collect();
            ensure!(found == *expected, "there are {found:?}, not {expected:?}");
            Ok(())
        })
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks a DNS server, from a namespace, for the records of a name; none if there is no such name.
pub(crate) fn ask(
    netns: &Namespace,
    server: SocketAddr,
    name: &str,
    kind: TYPE,
) -> anyhow::Result<Vec<Record>> {
    let mut query = Packet::new_query(1);
    query.set_flags(PacketFlag::RECURSION_DESIRED);
    let (qtype, qclass) = (QTYPE::TYPE(kind), QCLASS::CLASS(CLASS::IN));
    query.questions.push(Question::new(Name::new(name)?, qtype, qclass, false));
    let bytes = query.build_bytes_vec()?;
    let answer = netns.run(|| exchange(&bytes, server))??;
    let answer = Packet::parse(&answer)?;
    match answer.rcode() {
        RCODE::NoError => {}
        RCODE::NameError => return Ok(vec![]),
        other => bail!("{name}: {other:?}"),
    }
    Ok(answer.answers.iter().filter_map(|record| Record::of(&record.rdata)).collect())
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Record {
    Address(IpAddr),
    Service { port: u16, target: String },
    Text(String),
}

impl Record {
    fn of(data: &RData<'_>) -> Option<Self> {
        match data {
            RData::A(record) => Some(Self::Address(Ipv4Addr::from(record.address).into())),
            RData::AAAA(record) => {
                Some(Self::Address(std::net::Ipv6Addr::from(record.address).into()))
            }
            RData::SRV(record) => {
                Some(Self::Service { port: record.port, target: record.target.to_string() })
            }
            RData::TXT(record) => Some(Self::Text(String::try_from(record.clone()).ok()?)),
            _ => None,
        }
    }
}

fn exchange(query: &[u8], server: SocketAddr) -> anyhow::Result<Vec<u8>> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    socket.connect(server)?;
    socket.send(query)?;
    let mut answer = vec![0; 4096];
    let length = socket.recv(&mut answer)?;
    answer.truncate(length);
    Ok(answer)
}

/// The shipped configuration with another port, an API server outside, and without caches and what a pod has.
fn configuration(shipped: &str, kubeconfig: &Path, port: u16) -> String {
    let mut text = String::new();
    let mut skip = false;
    for line in shipped.lines() {
        let word = line.split_whitespace().next().unwrap_or_default();
        let is_elsewhere = ELSEWHERE.contains(&word) || word == "cache";
        if skip {
            skip = word != "}";
            continue;
        }
        if is_elsewhere {
            skip = line.ends_with('{');
            continue;
        }
        text.push_str(&line.replace(":53 {", &format!(":{port} {{")));
        text.push('\n');
        if word == "kubernetes" {
            text.push_str("        kubeconfig ");
            text.push_str(&kubeconfig.to_string_lossy());
            text.push('\n');
        }
    }
    text
}

fn name(namespace: &str, zone: &str) -> String {
    format!("hello.{namespace}.svc.{zone}")
}

fn in_clusterset(namespace: &str) -> String {
    name(namespace, "clusterset.local")
}

fn version(world: &mut World) -> anyhow::Result<()> {
    let dns = world.dns()?;
    let found = dns.ask("dns-version.clusterset.local", TYPE::TXT)?;
    ensure!(matches!(&*found, [Record::Text(_)]), "{found:?}");
    Ok(())
}

/// The VIPs of an import of the second cluster.
fn vips(world: &World, namespace: &str) -> anyhow::Result<Vec<IpAddr>> {
    let import = world.second().wait_for_import(namespace, |import| {
        ensure!(import["spec"]["ips"][1].is_string(), "no addresses");
        Ok(())
    })?;
    let ips = import["spec"]["ips"].as_array().into_iter().flatten();
    ips.map(|ip| Ok(ip.as_str().unwrap_or_default().parse()?)).collect()
}

fn to_clusterset_ip(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    world.first().export(&service(&namespace), Some(&slice_of(&namespace, 0, 1)))?;
    let vips = vips(world, &namespace)?;
    let dns = world.dns()?;
    let of = |is_v4| vips.iter().copied().filter(|ip| ip.is_ipv4() == is_v4).collect::<Vec<_>>();
    dns.wait_for(&in_clusterset(&namespace), TYPE::A, &of(true))?;
    dns.wait_for(&in_clusterset(&namespace), TYPE::AAAA, &of(false))?;
    dns.wait_for(&format!("c1.{}", in_clusterset(&namespace)), TYPE::A, &[])
}

fn srv_of_clusterset_ip(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let mut service = service(&namespace);
    service["spec"]["ports"] = json!([{ "name": "tcp", "port": 42, "protocol": "TCP" }]);
    world.first().export(&service, None)?;
    vips(world, &namespace)?;
    let dns = world.dns()?;
    let target = in_clusterset(&namespace);
    let expected = [Record::Service { port: 42, target: target.clone() }].into();
    dns.wait_for_records(&target, TYPE::SRV, &expected)?;
    dns.wait_for_records(&format!("_tcp._tcp.{target}"), TYPE::SRV, &expected)
}

fn cluster_local(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    world.first().export(&service(&namespace), Some(&slice_of(&namespace, 0, 1)))?;
    vips(world, &namespace)?;
    let local = name(&namespace, "cluster.local");
    world.dns()?.wait_for(&local, TYPE::A, &[])?;
    let path = format!("/api/v1/namespaces/{namespace}/services/hello");
    let service = world.first().api().get(&path)?;
    let address = service["spec"]["clusterIP"].as_str().context("a ClusterIP")?.parse()?;
    let dns = Dns::start(world, 0)?;
    dns.wait_for(&local, TYPE::A, &[address])
}

/// A headless service with two pods in each cluster, and CoreDNS of the second one.
fn two_each<'a>(world: &'a World, namespace: &str) -> anyhow::Result<&'a Dns> {
    for (cluster, number) in world.clusters.iter().zip(0..2) {
        cluster.export(&headless(namespace), Some(&slice_of(namespace, number, 2)))?;
    }
    world.dns()
}

fn pods() -> Vec<IpAddr> {
    (0..2)
        .flat_map(|cluster| (0..2).map(move |pod| crate::world::pod(cluster, pod).into()))
        .collect()
}

fn headless_pods(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let dns = two_each(world, &namespace)?;
    dns.wait_for(&in_clusterset(&namespace), TYPE::A, &pods())?;
    let mut slice = slice_of(&namespace, 0, 2);
    slice["endpoints"][1]["conditions"]["ready"] = json!(false);
    world.first().api().apply(&slice)?;
    let ready: Vec<_> = pods().into_iter().filter(|ip| *ip != crate::world::pod(0, 1)).collect();
    dns.wait_for(&in_clusterset(&namespace), TYPE::A, &ready)
}

fn srv_of_headless(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let dns = two_each(world, &namespace)?;
    let name = in_clusterset(&namespace);
    let target = |cluster: &str, pod: u8| format!("hello-{pod}.{cluster}.{name}");
    let expected =
        ["c1", "c2"].into_iter().flat_map(|cluster| (0..2).map(move |pod| (cluster, pod)));
    let expected = expected
        .map(|(cluster, pod)| Record::Service { port: 4242, target: target(cluster, pod) })
        .collect();
    dns.wait_for_records(&name, TYPE::SRV, &expected)
}

fn pod_by_hostname(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let dns = two_each(world, &namespace)?;
    for (cluster, number) in [("c1", 0), ("c2", 1)] {
        let name = format!("hello-1.{cluster}.{}", in_clusterset(&namespace));
        dns.wait_for(&name, TYPE::A, &[crate::world::pod(number, 1).into()])?;
    }
    // No other case asks it.
    drop(world.dns.take());
    Ok(())
}
