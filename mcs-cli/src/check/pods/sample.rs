//! Chooses a few endpoints of many, of different zones and nodes if known.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, SocketAddr},
};

use ipnet::IpNet;
use mcs_controller::core::clusterset::{ClusterId, well_known};
use mcs_kube::objects::{self, EndpointSlice};
use serde::Serialize;
use serde_json::Value;

use crate::cluster::of_type;

/// An endpoint to connect to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Endpoint {
    pub(super) address: SocketAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) zone: Option<String>,
}

/// Ready endpoints of these slices with a TCP port, `count` at most. Imported slices do not name the nodes of other
/// clusters. Pods of one node often share a /24 or a /64.
pub(super) fn endpoints(slices: &[EndpointSlice], count: usize) -> Vec<Endpoint> {
    let mut groups: BTreeMap<(Option<String>, Option<IpNet>), VecDeque<Endpoint>> = BTreeMap::new();
    for endpoint in slices.iter().flat_map(of_slice) {
        let address = endpoint.address.ip();
        let length = if address.is_ipv4() { 24 } else { 64 };
        let network = IpNet::new(address, length).ok().map(|network| network.trunc());
        let group = groups.entry((endpoint.zone.clone(), network)).or_default();
        if !group.iter().any(|other| other.address.ip() == address) {
            group.push_back(endpoint);
        }
    }
    let mut taken = Vec::new();
    while taken.len() < count && !groups.is_empty() {
        let round = groups.values_mut().filter_map(VecDeque::pop_front);
        let left = count - taken.len();
        taken.extend(round.take(left));
        groups.retain(|_, group| !group.is_empty());
    }
    taken
}

/// The same of what a cluster has imported from each other cluster, `count` in all.
pub(in crate::check) fn of_each_source(
    slices: &[Value],
    own: &ClusterId,
    count: usize,
) -> Vec<(ClusterId, SocketAddr)> {
    let mut sources = BTreeMap::<ClusterId, Vec<EndpointSlice>>::new();
    for slice in of_type::<EndpointSlice>(slices) {
        let label = |name: &str| slice.metadata.labels.get(name);
        let source = label(well_known::SERVICE_NAME).and(label(well_known::SOURCE_CLUSTER));
        if let Some(source) = source.and_then(|id| id.parse().ok()).filter(|id| id != own) {
            sources.entry(source).or_default().push(slice);
        }
    }
    let share = (count / sources.len().max(1)).max(1);
    let of = |(source, slices): (ClusterId, Vec<EndpointSlice>)| {
        let endpoints = endpoints(&slices, share).into_iter();
        endpoints.map(move |one| (source.clone(), one.address))
    };
    sources.into_iter().flat_map(of).take(count).collect()
}

fn of_slice(slice: &EndpointSlice) -> Vec<Endpoint> {
    let mut tcp = slice.ports.iter().filter(|port| port.key().1 == "TCP");
    let Some(port) = tcp.find_map(|port| u16::try_from(port.port?).ok()) else { return vec![] };
    let endpoint = |endpoint: &objects::Endpoint| {
        let ip: IpAddr = endpoint.address()?.parse().ok()?;
        Some(Endpoint { address: SocketAddr::new(ip, port), zone: endpoint.zone.clone() })
    };
    slice.endpoints.iter().filter(|endpoint| endpoint.is_ready()).filter_map(endpoint).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    fn addresses(slices: &[Value], count: usize) -> Vec<String> {
        let read = |slice: &Value| {
            let mut slice = slice.clone();
            slice["metadata"] = json!({});
            from_value(slice).unwrap()
        };
        let slices: Vec<_> = slices.iter().map(read).collect();
        endpoints(&slices, count).iter().map(|one| one.address.to_string()).collect()
    }

    #[test]
    fn zones_and_networks_take_turns() {
        let one = |address: &str, zone: &str| json!({"addresses": [address], "zone": zone});
        let slice = json!({
            "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 80}],
            "endpoints": [
                one("10.2.1.1", "a"), one("10.2.1.2", "a"), one("10.2.2.1", "a"), one("10.2.3.1", "b"),
                one("fd02::1", "b"),
                {"addresses": ["10.2.4.1"], "zone": "c", "conditions": {"ready": false}},
            ],
        });
        let expected = ["10.2.1.1:80", "10.2.2.1:80", "10.2.3.1:80", "[fd02::1]:80", "10.2.1.2:80"];
        assert_eq!(addresses(std::slice::from_ref(&slice), 9), expected);
        assert_eq!(addresses(&[slice.clone(), slice], 3), expected[..3]);
    }

    #[test]
    fn each_source_has_its_share() {
        let slice = |source: &str, host: u8| {
            let labels = json!({
                well_known::SERVICE_NAME: "web", well_known::SOURCE_CLUSTER: source,
            });
            json!({
                "metadata": {"namespace": "shop", "name": "web", "labels": labels},
                "ports": [{"port": 80}],
                "endpoints": [
                    {"addresses": [format!("10.{host}.1.1")]}, {"addresses": [format!("10.{host}.2.1")]},
                ],
            })
        };
        let mut all = vec![slice("own", 1), slice("west", 2), slice("south", 3)];
        let of = |all: &[Value], count| {
            let all = of_each_source(all, &"own".parse().unwrap(), count);
            all.into_iter().map(|(id, at)| format!("{id} {at}")).collect::<Vec<_>>()
        };
        assert_eq!(of(&all, 2), ["south 10.3.1.1:80", "west 10.2.1.1:80"]);
        assert_eq!(of(&all, 9).len(), 4);
        all[1]["metadata"]["labels"] = json!({});
        assert_eq!(of(&all, 1), ["south 10.3.1.1:80"]);
    }

    #[test]
    fn what_has_no_tcp_port_is_not_probed() {
        let endpoints = json!([{"addresses": ["10.2.1.1"]}]);
        let of = |ports: Value| addresses(&[json!({"ports": ports, "endpoints": endpoints})], 4);
        assert_eq!(of(json!([{"protocol": "UDP", "port": 53}])), [""; 0]);
        assert_eq!(of(json!([{"protocol": "TCP"}])), [""; 0]);
        assert_eq!(of(Value::Null), [""; 0]);
        assert_eq!(of(json!([{"port": 53}])), ["10.2.1.1:53"]);
    }
}
