//! The objects that Submariner leaves in its clusters: ClusterSet VIPs whose endpoints are ClusterIPs.

use mcs_tests::deployed::{SERVER, ports};

use crate::prelude::*;

/// The exported Service, and so its import.
const NAME: &str = "nginx";
/// Where Submariner keeps its records.
const OPERATOR: &str = "submariner-operator";
/// Where the broker keeps what all clusters export, in one of the clusters.
const BROKER: &str = "submariner-k8s-broker";
/// Of the range that Submariner takes ClusterSet VIPs from by default.
const VIP: Ipv4Addr = Ipv4Addr::new(243, 0, 0, 7);
const VIPS: &str = "243.0.0.0/8";
/// Asked so often, every one of the servers has answered.
const TIMES: u32 = 40;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("Submariner's ClusterSet VIPs, by sockets", |world| {
        check(world, "all", &[Place::Pod, Place::HostNetworkPod])
    });
    // Nothing translates packets of the host.
    suite.case("Submariner's ClusterSet VIPs, by packets", |world| {
        check(world, "off", &[Place::Pod])
    });
}

/// A Service that both clusters export.
struct Exported<'a> {
    members: &'a [Member; 2],
    /// Its ClusterIP in each cluster.
    cluster_ips: [Ipv4Addr; 2],
}

fn check(world: &mut World, socket_lb: &str, places: &[Place]) -> Result {
    let exported = Exported::create(world)?;
    for member in &world.members {
        let range = format!("vipCidrs={{{VIPS}}}");
        world.release.install(member, &[&format!("socketLb={socket_lb}"), &range])?;
    }
    exported.publish()?;
    let served = exported.is_served(places);
    exported.withdraw()?;
    for member in &world.members {
        world.release.install(member, &[])?;
    }
    served
}

impl<'a> Exported<'a> {
    /// Creates the Service in both clusters, and the routes that stand in for Submariner's gateways: each
    /// cluster reaches the ClusterIPs of the other, where kube-proxy serves them.
    fn create(world: &'a World) -> Result<Self> {
        let members = &world.members;
        for (from, to) in world.directions() {
            route(from, to)?;
        }
        let [a, b] = members;
        Ok(Self { members, cluster_ips: [create_service(a)?, create_service(b)?] })
    }

    fn publish(&self) -> Result {
        for (member, own_ip) in self.members.iter().zip(self.cluster_ips) {
            let mut objects =
                vec![namespace(OPERATOR), namespace(BROKER), import(), record(member, own_ip)];
            if member.name == self.members[0].name {
                objects.push(aggregate());
            }
            let slices = self.members.iter().zip(self.cluster_ips);
            objects.extend(slices.map(|(exporter, ip)| slice(exporter, ip)));
            member.apply(&objects)?;
        }
        Ok(())
    }

    fn withdraw(&self) -> Result {
        for member in self.members {
            member.run(&["delete", "serviceimport,service", NAME])?;
            let label = format!("multicluster.kubernetes.io/service-name={NAME}");
            member.run(&["delete", "endpointslices", "--selector", &label])?;
            for namespace in [OPERATOR, BROKER] {
                let all = ["delete", "serviceimports", "--all", "--namespace", namespace];
                member.kubectl.run(&all)?;
            }
        }
        Ok(())
    }

    /// Clients of both clusters reach the servers of both by the VIP, and those of their own by its ClusterIP.
    fn is_served(&self, places: &[Place]) -> Result {
        for (member, own_ip) in self.members.iter().zip(self.cluster_ips) {
            for place in places {
                let client = Client::new(member, *place);
                for (protocol, port) in [("tcp", TCP), ("udp", UDP)] {
                    self.all_answer(&client, protocol, SocketAddr::new(VIP.into(), port))?;
                    let own = member.backends()?;
                    let own_service = SocketAddr::new(own_ip.into(), port);
                    client.wait_for(protocol, own_service, |answer| {
                        own.contains(&answer.by) && answer.shown == own_service
                    })?;
                }
            }
            servers_reach_it(member)?;
            let left_alone = agents::ask(member, &["services"])?.concat();
            let record = record_name(member);
            ensure!(left_alone.contains(&record), "{record} is not listed:\n{left_alone}");
            tell(format!("{}: {VIP} and {own_ip} answer", member.name));
        }
        Ok(())
    }

    /// Waits until every server of both clusters has answered at the VIP.
    fn all_answer(&self, client: &Client<'_>, protocol: &str, vip: SocketAddr) -> Result {
        let port = if protocol == "tcp" { ports::TCP } else { ports::UDP };
        let mut missing = BTreeSet::new();
        for member in self.members {
            let all = member.backends()?.into_iter();
            missing.extend(all.filter(|backend| backend.port() == port && backend.is_ipv4()));
        }
        wait::within(PATIENCE, &format!("every server at {vip}/{protocol} for {client}"), || {
            for answer in client.ask_often(protocol, &vip.to_string(), TIMES)? {
                ensure!(answer.shown == vip, "{} is shown", answer.shown);
                missing.remove(&answer.by);
            }
            ensure!(missing.is_empty(), "{missing:?} did not answer");
            Ok(())
        })
    }
}

/// A server asks at the VIP, and kube-proxy may choose that server itself.
fn servers_reach_it(member: &Member) -> Result {
    let deployment = format!("deployment/{SERVER}");
    let times = TIMES.to_string();
    for (protocol, port) in [("tcp", TCP), ("udp", UDP)] {
        let vip = SocketAddr::new(VIP.into(), port).to_string();
        let words = ["exec", &deployment, "--", "/traffic", "ask", protocol, &vip, &times];
        let answers = member.run(&words)?;
        ensure!(answers.lines().count() == TIMES as usize, "{answers}");
    }
    Ok(())
}

/// A route from every node of a cluster to the ClusterIPs of another one, by a node of that.
fn route(from: &Member, to: &Member) -> Result {
    let elsewhere = || skip("nodes are elsewhere: Submariner's gateway has to lead to ClusterIPs");
    let (from, to) = (from.node.ok_or_else(elsewhere)?, to.node.ok_or_else(elsewhere)?);
    for node in cluster::nodes(from.cluster) {
        let [range, _] = to.cluster.services();
        let [via, _] = to.addresses();
        let words = ["route", "replace", &range.to_string(), "via", &via.to_string()];
        process::run(node.command("ip").args(words), "")?;
    }
    Ok(())
}

/// The exported Service, and its ClusterIP. Submariner gives ClusterSet VIPs to Services of one family.
fn create_service(member: &Member) -> Result<Ipv4Addr> {
    let families = json!({ "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"] });
    match member.service_of(NAME, families)?[..] {
        [IpAddr::V4(ip)] => Ok(ip),
        ref ips => bail!("the ClusterIPs are {ips:?}"),
    }
}

fn ports() -> Value {
    json!([
        { "name": "tcp", "port": TCP, "protocol": "TCP" },
        { "name": "udp", "port": UDP, "protocol": "UDP" },
    ])
}

/// The import, as every cluster gets it from the broker.
fn import() -> Value {
    json!({
        "apiVersion": "multicluster.x-k8s.io/v1beta1",
        "kind": "ServiceImport",
        "metadata": {
            "namespace": NAMESPACE,
            "name": NAME,
            "annotations": {
                "lighthouse.submariner.io/use-clusterset-ip": "true",
                "lighthouse.submariner.io/clusterset-ip-allocated-by": "c1",
            },
        },
        "spec": { "type": "ClusterSetIP", "ips": [VIP], "ports": ports() },
    })
}

fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}

/// What the broker keeps of the exported Services of all clusters, with the same VIP.
fn aggregate() -> Value {
    let mut aggregate = import();
    let metadata = &mut aggregate["metadata"];
    metadata["namespace"] = BROKER.into();
    metadata["name"] = format!("{NAME}-{NAMESPACE}").into();
    let annotations = &mut metadata["annotations"];
    annotations["multicluster.kubernetes.io/service-name"] = NAME.into();
    annotations["lighthouse.submariner.io/sourceNamespace"] = NAMESPACE.into();
    aggregate
}

fn record_name(member: &Member) -> String {
    format!("{NAME}-{NAMESPACE}-{}", member.name)
}

/// What the exporting cluster remembers of its own Service.
fn record(member: &Member, cluster_ip: Ipv4Addr) -> Value {
    json!({
        "apiVersion": "multicluster.x-k8s.io/v1beta1",
        "kind": "ServiceImport",
        "metadata": {
            "namespace": OPERATOR,
            "name": record_name(member),
            "labels": labels(member),
        },
        "spec": { "type": "ClusterSetIP", "ips": [cluster_ip], "ports": ports() },
    })
}

/// The slice of a cluster: one endpoint, the ClusterIP of its Service, and the ports of the import.
fn slice(exporter: &Member, cluster_ip: Ipv4Addr) -> Value {
    let mut labels = labels(exporter);
    labels["endpointslice.kubernetes.io/managed-by"] = "lighthouse-agent.submariner.io".into();
    labels["lighthouse.submariner.io/is-headless"] = "false".into();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": NAMESPACE,
            "name": format!("{NAME}-{NAMESPACE}-{}-ipv4", exporter.name),
            "labels": labels,
        },
        "addressType": "IPv4",
        "endpoints": [{
            "addresses": [IpAddr::from(cluster_ip)],
            "conditions": { "ready": true },
        }],
        "ports": ports(),
    })
}

fn labels(exporter: &Member) -> Value {
    json!({
        "multicluster.kubernetes.io/service-name": NAME,
        "multicluster.kubernetes.io/source-cluster": exporter.name,
        "lighthouse.submariner.io/sourceNamespace": NAMESPACE,
    })
}
