//! Whether pods of a cluster reach pods of its peers: TCP connections to a few endpoints that were imported.

pub(super) mod by_name;
mod pod;
pub(super) mod sample;
pub(crate) mod source;

use clap::{Args, ValueEnum};
use mcs_kube::{
    reach::{Found, Outcome, Target, Targets},
    reasons::ClusterCheck,
};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::RwLock;

pub(crate) use self::pod::run_pod;
use self::{by_name::Service, sample::Endpoint, source::Controller};
use super::Finding;
use crate::{
    cluster::{Cluster, PEERS, SLICES, of_type},
    status::condition,
};
use mcs_controller::{core::clusterset::well_known, features::peer_reach};

/// The slices of a peer that are read.
const SLICES_OF_PEER: u32 = 50;
/// The endpoints of a peer that are probed.
const ENDPOINTS_OF_PEER: usize = 4;
/// The endpoints that are probed in one cluster. The kubelet passes on 4,096 bytes of a pod's results.
const ENDPOINTS_OF_CLUSTER: usize = 170;

/// The services that a pod tries by name.
const SERVICES: usize = 2;

/// Where endpoints are probed from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum From {
    /// A pod in each cluster that lives for seconds
    Pod,
    /// Where `check` runs
    Here,
    /// Nothing is probed
    Off,
}

/// How pods of peers are probed.
#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// Connect by TCP to a few endpoints that each peer has published [default: pod, or here if `check` runs in a pod
    /// without kubeconfig]
    #[arg(long = "probe", env = "MCS_PROBE", value_name = "WHERE")]
    from: Option<From>,

    /// The namespace of the controllers. The pod runs there
    #[arg(long, env = "MCS_NAMESPACE", value_name = "NAMESPACE", default_value = "mcs-controller")]
    pub(super) namespace: String,

    /// The image of the pod [default: that of the Deployment mcs-controller]
    #[arg(long, env = "MCS_PROBE_IMAGE", value_name = "IMAGE")]
    probe_image: Option<String>,
}

impl ProbeArgs {
    /// Whether nothing is probed.
    pub(super) fn is_off(&self) -> bool {
        self.from == Some(From::Off)
    }

    /// The pod runs in this namespace, with the image of the controller there.
    pub(crate) fn in_namespace(namespace: &str) -> Self {
        Self { from: None, namespace: namespace.to_owned(), probe_image: None }
    }
}

/// Read while a cluster has a probing pod: whoever gets the right to write knows that there is none.
pub(super) type Probing = RwLock<()>;

/// An endpoint of a peer, and the outcome of the connection to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Probe {
    #[serde(flatten)]
    endpoint: Endpoint,
    outcome: Outcome,
}

/// A peer, and its endpoints to probe.
struct PodTarget {
    name: String,
    /// The pod ranges in its ClusterPeer.
    ranges: String,
    /// The overlap of its pod ranges.
    overlap: Option<String>,
    endpoints: Vec<Endpoint>,
}

/// One finding for each peer, one for each service that is probed by name, and one for each cluster that says which source
/// address it sees.
pub(super) async fn checks(
    cluster: &Cluster,
    args: &ProbeArgs,
    probing: &Probing,
    controllers: &[Controller],
    services: &[Service],
) -> anyhow::Result<Vec<Finding>> {
    let default = if cluster.is_own { From::Here } else { From::Pod };
    let from = args.from.unwrap_or(default);
    if args.is_off() {
        let told = Ok("pods, names and source addresses were not tried: --probe=off".to_owned());
        return Ok(vec![Finding {
            skipped: true,
            ..Finding::new(cluster.id.as_str(), ClusterCheck::Pods, told)
        }]);
    }
    let targets = targets(cluster).await?;
    let endpoints = targets.iter().flat_map(|target| &target.endpoints);
    let addresses = endpoints.map(|endpoint| Target::Address(endpoint.address));
    // This machine does not use the DNS server of pods.
    let services = if from == From::Pod { services } else { &[] };
    let services = services.get(..SERVICES).unwrap_or(services);
    let asked = source::to_ask(&cluster.id, controllers);
    // Beside a cluster, this machine has none of its pods' addresses.
    let is_asked = from == From::Pod || cluster.is_own;
    let ask = asked.iter().filter(|_| is_asked).map(|(_, address)| *address).collect();
    let names = services.iter().map(|service| service.target.clone());
    let wanted = Targets::new(addresses.chain(names).collect(), ask);
    let found = if from == From::Pod && !wanted.is_empty() {
        let _pod = probing.read().await;
        run_pod(cluster, args, &wanted, None).await?
    } else {
        Ok((wanted.probe().await, None))
    };
    let finding = |target: &PodTarget, node: Option<&String>, message: anyhow::Result<String>| {
        let message = named(target.name.clone(), node, message);
        Finding {
            peer: Some(target.name.clone()),
            node: node.cloned(),
            ..Finding::new(cluster.id.as_str(), ClusterCheck::Pods, message)
        }
    };
    let (Found { outcomes, sources, large, .. }, node) = match found {
        Ok(found) => found,
        Err(reason) => {
            let names = services.iter().map(|service| (ClusterCheck::ByName, service.name.clone()));
            let others =
                source::clusters(&asked).map(|by| (ClusterCheck::SourceAddress, by.to_string()));
            let untried = names.chain(others).map(|(check, what)| {
                let told = Ok(format!("{what}: {reason}"));
                Finding { skipped: true, ..Finding::new(cluster.id.as_str(), check, told) }
            });
            let skipped =
                |target| Finding { skipped: true, ..finding(target, None, Ok(reason.clone())) };
            return Ok(targets.iter().map(skipped).chain(untried).collect());
        }
    };
    let node = node.as_ref();
    let mut outcomes = outcomes.into_iter();
    let mut findings: Vec<_> = targets
        .iter()
        .map(|target| {
            let probes = target.endpoints.iter().cloned().zip(outcomes.by_ref());
            let probes: Vec<_> =
                probes.map(|(endpoint, outcome)| Probe { endpoint, outcome }).collect();
            let skipped = probes.is_empty();
            let judged = judge(target, &probes);
            let node = node.filter(|_| !skipped);
            Finding { skipped, probes, ..finding(target, node, judged) }
        })
        .collect();
    findings.extend(services.iter().zip(outcomes).map(|(service, outcome)| {
        let judged = named(service.name.clone(), node, by_name::judge(&service.target, outcome));
        Finding {
            node: node.cloned(),
            ..Finding::new(cluster.id.as_str(), ClusterCheck::ByName, judged)
        }
    }));
    let asked = asked.get(..sources.len()).unwrap_or_default();
    findings.extend(source::seen(asked, &sources).into_iter().map(|seen| Finding {
        skipped: seen.is_unknown,
        peer: Some(seen.by.to_string()),
        ..Finding::new(cluster.id.as_str(), ClusterCheck::SourceAddress, Ok(seen.text))
    }));
    findings.extend(source::large(asked, &large).into_iter().map(|(by, arrives)| {
        let judged = named(by.to_string(), node, judge_large(arrives));
        Finding {
            peer: Some(by.to_string()),
            node: node.cloned(),
            ..Finding::new(cluster.id.as_str(), ClusterCheck::LargeAnswers, judged)
        }
    }));
    Ok(findings)
}

pub(super) fn judge_large(arrives: bool) -> anyhow::Result<String> {
    anyhow::ensure!(
        arrives,
        "a small answer arrives, and one of 64 KiB or a full packet does not: full packets are lost. Give the path between the clusters \
         the MTU that pods have, or pods that of the path; let routers send, and firewalls pass, ICMP \"fragmentation needed\" and \
         \"packet too big\""
    );
    Ok("an answer of 64 KiB arrives".to_owned())
}

/// A message about a peer or a service, with the node from which it was tried: another node can have other routes.
fn named(
    who: String,
    node: Option<&String>,
    message: anyhow::Result<String>,
) -> anyhow::Result<String> {
    let from = node.map(|node| format!(" from node {node}")).unwrap_or_default();
    let who = who + &from;
    match message {
        Ok(message) => Ok(format!("{who}: {message}")),
        Err(error) => Err(error.context(who)),
    }
}

/// The peers of a cluster, with endpoints that the cluster has imported from each.
async fn targets(cluster: &Cluster) -> anyhow::Result<Vec<PodTarget>> {
    let peers = cluster.list(PEERS).await?;
    let share = (ENDPOINTS_OF_CLUSTER / peers.len().max(1)).min(ENDPOINTS_OF_PEER);
    let mut targets = Vec::new();
    for peer in peers {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (source, manager) = (well_known::SOURCE_CLUSTER, well_known::SLICE_MANAGED_BY);
        let id = text(&peer["spec"]["clusterId"]);
        let selector = format!("{source}={id},{manager}={}", well_known::CONTROLLER);
        let slices = of_type(&cluster.list_some(SLICES, &selector, SLICES_OF_PEER).await?);
        let ranges = peer["spec"]["podCIDRs"].as_array().into_iter().flatten().map(text);
        let disjoint = condition(&peer, "CIDRsDisjoint").filter(|one| one["status"] == "False");
        targets.push(PodTarget {
            name: text(&peer["metadata"]["name"]),
            ranges: ranges.collect::<Vec<_>>().join(", "),
            overlap: disjoint.map(|one| text(&one["message"])),
            endpoints: sample::endpoints(&slices, share),
        });
    }
    Ok(targets)
}

/// The finding about a peer, by the outcomes. An error is advice.
fn judge(target: &PodTarget, probes: &[Probe]) -> anyhow::Result<String> {
    if probes.is_empty() {
        return Ok("no ready endpoint with a TCP port was imported from it, so nothing is probed"
            .to_owned());
    }
    let (reached, lost): (Vec<_>, Vec<_>) =
        probes.iter().partition(|probe| probe.outcome.is_reached());
    if lost.is_empty() {
        let refused = reached.iter().filter(|probe| probe.outcome == Outcome::Refused).count();
        let refused = match refused {
            0 => String::new(),
            count => format!(" ({count} of them refuse the connection, which also proves the way)"),
        };
        return Ok(format!("{} of {0} pods that were probed are reached{refused}", probes.len()));
    }
    let each: Vec<_> = lost.iter().map(|probe| probe.text()).collect();
    anyhow::bail!(
        "{} of {} pods are not reached: {}. {}",
        lost.len(),
        probes.len(),
        each.join("; "),
        advice(target, &lost)
    )
}

/// The advice about unreachable endpoints.
fn advice(target: &PodTarget, lost: &[&Probe]) -> String {
    let ranges = &target.ranges;
    if let Some(overlap) = &target.overlap {
        return format!("{overlap}. Give every cluster pod ranges of its own");
    }
    if lost.iter().all(|probe| probe.outcome == Outcome::Failed) {
        return "This machine has no such network: let the probe run in a pod (--probe=pod)"
            .to_owned();
    }
    let outcomes: Vec<_> = lost.iter().map(|probe| probe.outcome).collect();
    peer_reach::advice(ranges, &outcomes)
}

impl Probe {
    fn text(&self) -> String {
        let Endpoint { address, zone } = &self.endpoint;
        let zone = zone.as_ref().map(|zone| format!(" in zone {zone}")).unwrap_or_default();
        format!("{address}{zone} {}", self.outcome.text())
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn judged(outcomes: &[Outcome], overlap: Option<&str>) -> anyhow::Result<String> {
        let probes: Vec<_> = outcomes
            .iter()
            .zip(1u8..)
            .map(|(&outcome, number)| {
                let address = SocketAddr::from(([10, 2, 0, number], 80));
                Probe { endpoint: Endpoint { address, zone: Some("b".to_owned()) }, outcome }
            })
            .collect();
        let target = PodTarget {
            name: "west".to_owned(),
            ranges: "10.2.0.0/16".to_owned(),
            overlap: overlap.map(str::to_owned),
            endpoints: vec![],
        };
        judge(&target, &probes)
    }

    #[test]
    fn a_refusal_proves_the_way() {
        let message = judged(&[Outcome::Answered, Outcome::Refused], None).unwrap();
        assert!(
            message.starts_with("2 of 2 pods that were probed are reached (1 of them"),
            "{message}"
        );
        assert!(judged(&[], None).unwrap().contains("nothing is probed"));
    }

    #[test]
    fn full_packets_that_are_lost_are_told() {
        let (west, south) = ("west".parse().unwrap(), "south".parse().unwrap());
        let at = |ip: &str| format!("{ip}:1").parse().unwrap();
        let asked = [(&west, at("10.2.0.1")), (&west, at("[fd02::1]")), (&south, at("10.3.0.1"))];
        let found = source::large(&asked, &[Some(true), Some(false), None]);
        assert_eq!(found, [(&west, false)], "one family loses them, and of south nothing is known");
        let told = judge_large(false).unwrap_err().to_string();
        assert!(told.contains("does not: full packets are lost"), "{told}");
        assert!(judge_large(true).is_ok());
        assert_eq!(ClusterCheck::LargeAnswers.to_string(), "large answers");
    }

    #[test]
    fn a_row_names_the_node_that_has_tried() {
        let node = "n1".to_owned();
        let message = named("west".to_owned(), Some(&node), judged(&[Outcome::Answered], None));
        assert!(message.unwrap().starts_with("west from node n1: 1 of 1 pods"));
        let error = named("west".to_owned(), Some(&node), judged(&[Outcome::Timeout], None));
        let error = mcs_kube::told(&error.unwrap_err());
        assert!(error.starts_with("west from node n1: 1 of 1 pods are not reached"), "{error}");
        let here = named("west".to_owned(), None, judged(&[], None)).unwrap();
        assert!(here.starts_with("west: no ready endpoint"), "{here}");
    }

    #[test]
    fn each_failure_says_what_to_do() {
        for (outcomes, overlap, expected) in [
            (
                &[Outcome::Answered, Outcome::Timeout][..],
                None,
                "1 of 2 pods are not reached: 10.2.0.2:80 in zone b does not answer. Packets are lost: let the nodes of each cluster route",
            ),
            (&[Outcome::Unreachable], None, "route 10.2.0.0/16 to the nodes"),
            (&[Outcome::Failed], None, "--probe=pod"),
            (&[Outcome::Timeout], Some("10.2.0.0/16 overlaps"), "pod ranges of its own"),
        ] {
            let error = judged(outcomes, overlap).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
