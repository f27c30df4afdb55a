//! The first link: the ready pods that a Service selects, and its slices.

use std::{collections::BTreeSet, net::IpAddr};

use mcs_kube::{ObjectKey, reasons::ClusterCheck};
use serde_json::Value;

use super::{
    Compared, Difference,
    facts::{Ends, View},
};
use crate::{agent_pod, cluster::containers_of, status::text};

/// Compares the slices of a Service with the pods that it selects. `service`: its spec.
pub(super) fn compare(
    view: &View<'_>,
    key: &ObjectKey,
    service: &Value,
    ends: &Ends,
    compared: &mut Compared,
) {
    let selector = service["selector"].as_object().filter(|selector| !selector.is_empty());
    // Without selector somebody else writes the slices.
    let Some(selector) = selector else { return };
    let Some(pods) = compared.known(view, ClusterCheck::Endpoints, &view.pods) else { return };
    let is_selected = |pod: &Value| {
        selector.iter().all(|(name, value)| pod["metadata"]["labels"][name] == *value)
    };
    let selected =
        pods.iter().filter(|(other, pod)| other.namespace == key.namespace && is_selected(pod));
    let selected: Vec<_> = selected.map(|(_, pod)| *pod).collect();
    let is_leaving = |pod: &&&Value| !pod["metadata"]["deletionTimestamp"].is_null();
    let ready = selected.iter().filter(|pod| agent_pod::is_ready(pod) && !is_leaving(pod));
    let ready: Vec<_> = ready.copied().collect();
    let new = |what| Difference::new(view, ClusterCheck::Endpoints, key, what);

    let known: BTreeSet<_> = selected.iter().flat_map(|pod| ips(pod)).collect();
    let stray: Vec<_> = ends.any_port.iter().filter(|(ip, _)| !known.contains(ip)).collect();
    if let Some((ip, _)) = stray.first() {
        let count = stray.len();
        let what = format!(
            "{count} ready endpoints in its slices are of no pod that it selects, such as {ip}"
        );
        // Others can write slices of the Service too.
        return compared.add(new(what).doubt());
    }
    for port in service["ports"].as_array().into_iter().flatten() {
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        let there = ends.of_port(&(text(&port["name"]), protocol.to_owned()));
        let there: BTreeSet<_> = there.iter().map(|(ip, _)| *ip).collect();
        let lacking = ready.iter().filter(|pod| !ips(pod).iter().any(|ip| there.contains(ip)));
        let lacking: Vec<_> = lacking.copied().collect();
        if lacking.is_empty() {
            continue;
        }
        let name = match port["name"].as_str() {
            Some(name) => name.to_owned(),
            None => format!("{}/{protocol}", port["port"]),
        };
        let target = port["targetPort"].as_str().filter(|name| name.parse::<u16>().is_err());
        let nameless = |target: &&str| lacking.iter().all(|pod| !has_port(pod, target, protocol));
        let refusal = target.filter(nameless).map(|target| {
            format!("targetPort is {target}, and no port of these pods has that name")
        });
        let what = format!(
            "port {name}: {} of {} ready pods have no endpoint in its slices, such as {}",
            lacking.len(),
            ready.len(),
            text(&lacking[0]["metadata"]["name"])
        );
        // During a roll-out some pods have the port, and others do not.
        let is_doubt = refusal.is_some() && lacking.len() < ready.len();
        let one = new(what).told(refusal.or_else(|| view.event(key)));
        compared.add(Difference { port: Some(name), is_doubt, ..one });
    }
}

fn ips(pod: &Value) -> Vec<IpAddr> {
    let all = pod["status"]["podIPs"].as_array().into_iter().flatten();
    all.filter_map(|one| one["ip"].as_str()?.parse().ok()).collect()
}

fn has_port(pod: &Value, name: &str, protocol: &str) -> bool {
    let spec = &pod["spec"];
    // Sidecars are among these.
    let first = spec["initContainers"].as_array().into_iter().flatten();
    let mut ports =
        containers_of(spec).chain(first).filter_map(|one| one["ports"].as_array()).flatten();
    ports.any(|port| port["name"] == name && port["protocol"].as_str().unwrap_or("TCP") == protocol)
}
