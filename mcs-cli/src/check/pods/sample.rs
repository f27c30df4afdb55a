//! Chooses a few endpoints of many, of different zones and nodes if known.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, SocketAddr},
};

use ipnet::IpNet;
use mcs_kube::objects::{self, EndpointSlice};
use serde::Serialize;

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
    use serde_json::{Value, from_value, json};

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
    fn what_has_no_tcp_port_is_not_probed() {
        let endpoints = json!([{"addresses": ["10.2.1.1"]}]);
        let of = |ports: Value| addresses(&[json!({"ports": ports, "endpoints": endpoints})], 4);
        assert_eq!(of(json!([{"protocol": "UDP", "port": 53}])), [""; 0]);
        assert_eq!(of(json!([{"protocol": "TCP"}])), [""; 0]);
        assert_eq!(of(Value::Null), [""; 0]);
        assert_eq!(of(json!([{"port": 53}])), ["10.2.1.1:53"]);
    }
}
