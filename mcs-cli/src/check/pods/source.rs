//! Which source address pods of other clusters see. The network may masquerade addresses on the way: connections work then, and
//! backends, policies and logs see a node. Controllers answer with the address that they see.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use mcs_controller::core::clusterset::{ClusterId, well_known};
use mcs_kube::reach::source::Source;
use serde_json::Value;

use crate::cluster::{Cluster, DEPLOYMENTS, PODS, containers};

/// The addresses of controllers that are asked from one cluster.
pub(crate) const ASKED: usize = 12;

/// A controller of a cluster.
pub(crate) struct Controller {
    cluster: ClusterId,
    /// Where it serves health, in each IP family.
    addresses: Vec<SocketAddr>,
}

impl Controller {
    /// The first one that is ready. A caller without the right to see pods knows none.
    pub(crate) async fn of(cluster: &Cluster, namespace: &str) -> Self {
        let addresses = addresses(cluster, namespace).await.unwrap_or_default();
        Self { cluster: cluster.id.clone(), addresses }
    }
}

async fn addresses(cluster: &Cluster, namespace: &str) -> anyhow::Result<Vec<SocketAddr>> {
    let deployment = cluster.get(DEPLOYMENTS, Some(namespace), well_known::CONTROLLER).await?;
    let Some(deployment) = deployment else { return Ok(vec![]) };
    let labels = deployment["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
    let selector = labels.collect::<Vec<_>>().join(",");
    let pods = cluster.list_in(PODS, Some(namespace), &selector).await?;
    Ok(serving(&deployment, &pods))
}

/// Where the first ready one of these pods serves health.
fn serving(deployment: &Value, pods: &[Value]) -> Vec<SocketAddr> {
    let ports = containers(deployment).filter_map(|one| one["ports"].as_array()).flatten();
    let port = ports.filter(|port| port["name"] == "health").find_map(|port| {
        port["containerPort"].as_u64().and_then(|number| u16::try_from(number).ok())
    });
    let is_ready = |pod: &&Value| {
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    let ready = pods.iter().find(is_ready);
    let ips = ready.and_then(|pod| pod["status"]["podIPs"].as_array()).into_iter().flatten();
    let ips = ips.filter_map(|ip| ip["ip"].as_str()?.parse().ok());
    port.map(|port| ips.map(|ip| SocketAddr::new(ip, port)).collect()).unwrap_or_default()
}

/// The controllers of other clusters to ask from this one: the cluster of each, and an address.
pub(crate) fn to_ask<'a>(
    from: &ClusterId,
    controllers: &'a [Controller],
) -> Vec<(&'a ClusterId, SocketAddr)> {
    let others = controllers.iter().filter(|one| one.cluster != *from);
    let each = others.flat_map(|one| one.addresses.iter().map(move |at| (&one.cluster, *at)));
    each.take(ASKED).collect()
}

/// What one cluster sees of the pods of another.
pub(crate) struct Seen {
    /// The cluster that sees.
    pub(crate) by: ClusterId,
    /// A sentence.
    pub(crate) text: String,
    /// Whether nobody there has said anything.
    pub(crate) is_unknown: bool,
}

/// The clusters that are asked.
pub(crate) fn clusters<'a>(
    asked: &[(&'a ClusterId, SocketAddr)],
) -> impl Iterator<Item = &'a ClusterId> + use<'a> {
    let clusters: BTreeSet<_> = asked.iter().map(|(cluster, _)| *cluster).collect();
    clusters.into_iter()
}

/// What each of the asked clusters sees.
pub(crate) fn seen(asked: &[(&ClusterId, SocketAddr)], answers: &[Option<Source>]) -> Vec<Seen> {
    let of = |by: &ClusterId| {
        let answers = asked.iter().zip(answers).filter(|((one, _), _)| *one == by);
        let sources: BTreeSet<_> = answers.filter_map(|(_, answer)| *answer).collect();
        Seen { by: by.clone(), text: text(by, &sources), is_unknown: sources.is_empty() }
    };
    clusters(asked).map(of).collect()
}

/// Whether large answers arrive from each of the asked clusters, in every family; without those of which it is not known.
pub(super) fn large<'a>(
    asked: &[(&'a ClusterId, SocketAddr)],
    arrive: &[Option<bool>],
) -> Vec<(&'a ClusterId, bool)> {
    let mut known = BTreeMap::new();
    for ((by, _), arrives) in asked.iter().zip(arrive) {
        if let Some(arrives) = arrives {
            *known.entry(*by).or_insert(true) &= *arrives;
        }
    }
    known.into_iter().collect()
}

fn text(by: &ClusterId, sources: &BTreeSet<Source>) -> String {
    let masqueraded: Vec<_> = sources
        .iter()
        .filter(|source| source.is_masqueraded())
        .map(|source| format!("{} instead of {}", source.seen, source.own))
        .collect();
    if sources.is_empty() {
        return format!(
            "the controller of {by} does not say which source address it sees: packets are lost, or its port of health is closed to pods \
             of this cluster"
        );
    }
    if masqueraded.is_empty() {
        return format!("pods of {by} see the addresses of this cluster's pods");
    }
    format!(
        "addresses are masqueraded on the way: pods of {by} see {}. Connections work; network policies and logs there see that address",
        masqueraded.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn id(text: &str) -> ClusterId {
        text.parse().unwrap()
    }

    #[test]
    fn a_cluster_that_sees_another_address_says_which() {
        let (east, west) = (id("east"), id("west"));
        let asked = [
            (&west, "10.2.0.7:16460".parse().unwrap()),
            (&east, "10.1.0.7:16460".parse().unwrap()),
        ];
        let source = |own: &str, seen: &str| {
            Some(Source { own: own.parse().unwrap(), seen: seen.parse().unwrap() })
        };
        let answers = [source("10.211.1.0", "10.210.0.11"), source("10.211.1.0", "10.211.1.0")];
        let all = seen(&asked, &answers);
        let told: Vec<_> = all.iter().map(|one| (one.by.as_str(), &*one.text)).collect();
        assert_eq!(told[0], ("east", "pods of east see the addresses of this cluster's pods"));
        assert_eq!(told[1].0, "west");
        let expected = "addresses are masqueraded on the way: pods of west see 10.210.0.11 instead of 10.211.1.0. ";
        assert!(told[1].1.starts_with(expected), "{}", told[1].1);
        let unknown = &seen(&asked[..1], &[None])[0];
        assert!(unknown.is_unknown && unknown.text.contains("does not say"), "{}", unknown.text);
    }

    #[test]
    fn controllers_of_others_that_are_ready_are_asked() {
        let deployment = json!({"spec": {"template": {"spec": {"containers": [
            {"name": "sidecar"},
            {"ports": [{"name": "metrics", "containerPort": 1}, {"name": "health", "containerPort": 16460}]},
        ]}}}});
        let pod = |status: &str, ips: &[&str]| {
            let ips: Vec<_> = ips.iter().map(|ip| json!({"ip": ip})).collect();
            json!({"status": {"podIPs": ips, "conditions": [{"type": "Ready", "status": status}]}})
        };
        let pods = [pod("False", &["10.2.0.6"]), pod("True", &["10.2.0.7", "fd02::7"])];
        let addresses = serving(&deployment, &pods);
        let texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["10.2.0.7:16460", "[fd02::7]:16460"]);
        assert!(
            serving(&deployment, &pods[..1]).is_empty() && serving(&json!({}), &pods).is_empty()
        );
        let all = [
            Controller { cluster: id("west"), addresses },
            Controller { cluster: id("east"), addresses: vec![] },
        ];
        assert_eq!(to_ask(&id("east"), &all).len(), 2);
        assert!(to_ask(&id("west"), &all).is_empty());
    }
}
