//! Counts the ready endpoints of each source cluster.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use mcs_controller::clusterset::well_known;

use super::{Key, key_of};
use crate::status::text;

/// The endpoints of one source cluster. A pod with addresses of two families counts once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize)]
pub(crate) struct Ready {
    pub(crate) total: usize,
    pub(crate) ready: usize,
}

/// The endpoints of each service, by source cluster.
pub(crate) type ByService = BTreeMap<Key, BTreeMap<String, Ready>>;

/// The endpoints of each service, by namespace and name, then by source cluster. An endpoint without any port of the import is
/// not ready for it.
pub(crate) fn by_cluster<'a>(
    slices: &[Value],
    imports: impl IntoIterator<Item = &'a Value>,
) -> ByService {
    let mut families = BTreeMap::<_, Ready>::new();
    let wanted = imports.into_iter().map(|import| (key_of(import), ports_of_import(import)));
    let wanted: BTreeMap<_, _> = wanted.collect();
    for slice in slices {
        let metadata = &slice["metadata"];
        let label = |name: &str| text(&metadata["labels"][name]);
        let service = (text(&metadata["namespace"]), label(well_known::SERVICE_NAME));
        let wanted = wanted.get(&service).filter(|wanted| !wanted.is_empty());
        let is_reached = wanted.is_none_or(|wanted| !wanted.is_disjoint(&ports(&slice["ports"])));
        let cluster = label(well_known::SOURCE_CLUSTER);
        let counted = families.entry((service, cluster, text(&slice["addressType"]))).or_default();
        let endpoints = slice["endpoints"].as_array().map(Vec::as_slice).unwrap_or_default();
        counted.total += endpoints.len();
        // An absent condition means ready.
        let is_ready = |one: &&Value| is_reached && one["conditions"]["ready"] != false;
        counted.ready += endpoints.iter().filter(is_ready).count();
    }
    let mut all = ByService::new();
    for ((service, cluster, _), counted) in families {
        let most = all.entry(service).or_default().entry(cluster).or_default();
        *most = counted.max(*most);
    }
    all
}

/// The ports by which clients of the ClusterSetIP reach endpoints. Clients of a headless service reach pods at any.
fn ports_of_import(import: &Value) -> BTreeSet<(&str, &str)> {
    let spec = &import["spec"];
    if spec["type"] == "ClusterSetIP" { ports(&spec["ports"]) } else { BTreeSet::new() }
}

/// Name and protocol of each port.
fn ports(list: &Value) -> BTreeSet<(&str, &str)> {
    let list = list.as_array().into_iter().flatten();
    list.map(|port| {
        let name = port["name"].as_str().unwrap_or_default();
        (name, port["protocol"].as_str().unwrap_or("TCP"))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn endpoints_are_counted_once_for_each_cluster() {
        let slice = |cluster: &str, family: &str, ready: &[Value]| {
            let endpoints: Vec<_> =
                ready.iter().map(|ready| json!({"conditions": {"ready": ready}})).collect();
            json!({
                "metadata": {"namespace": "shop", "labels": {
                    well_known::SERVICE_NAME: "cart", well_known::SOURCE_CLUSTER: cluster,
                }},
                "addressType": family,
                "endpoints": endpoints,
                "ports": [{"name": "http"}],
            })
        };
        let [yes, no, unknown] = [json!(true), json!(false), Value::Null];
        let mut slices = [
            slice("east", "IPv4", &[yes.clone(), no.clone()]),
            slice("east", "IPv4", &[unknown]),
            slice("east", "IPv6", std::slice::from_ref(&yes)),
            slice("west", "IPv4", &[no]),
        ];
        let key = ("shop".to_owned(), "cart".to_owned());
        let found = &by_cluster(&slices, [])[&key];
        assert_eq!(found["east"], Ready { total: 3, ready: 2 });
        assert_eq!(found["west"], Ready { total: 1, ready: 0 });

        let import = |kind: &str, protocol: &str| {
            let ports = json!([{"name": "http", "port": 80, "protocol": protocol}]);
            let metadata = json!({"namespace": "shop", "name": "cart"});
            json!({"metadata": metadata, "spec": {"type": kind, "ports": ports}})
        };
        slices[1]["ports"] = json!([]);
        let of = |import| by_cluster(&slices, [&import])[&key]["east"].ready;
        assert_eq!(of(import("ClusterSetIP", "TCP")), 1, "the port is not there by that name");
        assert_eq!(of(import("ClusterSetIP", "UDP")), 0);
        assert_eq!(of(import("Headless", "TCP")), 2);
    }
}
