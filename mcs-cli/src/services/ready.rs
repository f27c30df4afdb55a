//! Counts the ready endpoints of each source cluster.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use mcs_controller::core::clusterset::well_known;
use mcs_kube::{
    ObjectKey,
    objects::{self, Endpoint, EndpointSlice, ServiceImport, ServicePort, ServiceType},
};

/// The endpoints of one source cluster. A pod with addresses of two families counts once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize)]
pub(crate) struct Ready {
    pub(crate) total: usize,
    pub(crate) ready: usize,
}

/// The endpoints of each service, by source cluster.
pub(crate) type ByService = BTreeMap<ObjectKey, BTreeMap<String, Ready>>;

/// The endpoints of each service, by namespace and name, then by source cluster. An endpoint without any port of the import is
/// not ready for it.
pub(crate) fn by_cluster<'a>(
    slices: &[EndpointSlice],
    imports: impl IntoIterator<Item = &'a Value>,
) -> ByService {
    let mut families = BTreeMap::<_, Ready>::new();
    let imports = imports.into_iter().filter_map(|import| objects::read(import).ok());
    let imports: Vec<ServiceImport> = imports.collect();
    // Clients of a headless service reach pods at any port.
    let of_vips = imports.iter().filter(|one| one.spec.service_type == ServiceType::ClusterSetIp);
    let wanted = of_vips.map(|import| {
        let ports: BTreeSet<_> = import.spec.ports.iter().map(ServicePort::key).collect();
        (ObjectKey::new(&*import.metadata.namespace, &*import.metadata.name), ports)
    });
    let wanted: BTreeMap<_, _> = wanted.filter(|(_, ports)| !ports.is_empty()).collect();
    for slice in slices {
        let label = |name: &str| slice.metadata.label(name).unwrap_or_default();
        let service = ObjectKey::new(&*slice.metadata.namespace, label(well_known::SERVICE_NAME));
        let is_reached = wanted
            .get(&service)
            .is_none_or(|wanted| slice.ports.iter().any(|port| wanted.contains(&port.key())));
        let cluster = label(well_known::SOURCE_CLUSTER);
        let counted = families.entry((service, cluster, &slice.address_type)).or_default();
        counted.total += slice.endpoints.len();
        let is_ready = |one: &&Endpoint| is_reached && one.is_ready();
        counted.ready += slice.endpoints.iter().filter(is_ready).count();
    }
    let mut all = ByService::new();
    for ((service, cluster, _), counted) in families {
        let most = all.entry(service).or_default().entry(cluster.to_owned()).or_default();
        *most = counted.max(*most);
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

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
        let mut slices: [EndpointSlice; 4] = [
            slice("east", "IPv4", &[yes.clone(), no.clone()]),
            slice("east", "IPv4", &[unknown]),
            slice("east", "IPv6", std::slice::from_ref(&yes)),
            slice("west", "IPv4", &[no]),
        ]
        .map(|slice| from_value(slice).unwrap());
        let key = ObjectKey::new("shop", "cart");
        let found = &by_cluster(&slices, [])[&key];
        assert_eq!(found["east"], Ready { total: 3, ready: 2 });
        assert_eq!(found["west"], Ready { total: 1, ready: 0 });

        let import = |kind: &str, protocol: &str| {
            let ports = json!([{"name": "http", "port": 80, "protocol": protocol}]);
            let metadata = json!({"namespace": "shop", "name": "cart"});
            json!({"metadata": metadata, "spec": {"type": kind, "ports": ports}})
        };
        slices[1].ports.clear();
        let of = |import| by_cluster(&slices, [&import])[&key]["east"].ready;
        assert_eq!(of(import("ClusterSetIP", "TCP")), 1, "the port is not there by that name");
        assert_eq!(of(import("ClusterSetIP", "UDP")), 0);
        assert_eq!(of(import("Headless", "TCP")), 2);
    }
}
