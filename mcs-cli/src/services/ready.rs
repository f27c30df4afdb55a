//! Counts the ready endpoints of each source cluster.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use mcs_controller::clusterset::well_known;

/// The endpoints of one source cluster. A pod with addresses of two families counts once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize)]
pub(super) struct Ready {
    pub(super) total: usize,
    pub(super) ready: usize,
}

/// The endpoints of each service, by namespace and name, then by source cluster.
pub(super) fn by_cluster(slices: &[Value]) -> BTreeMap<(String, String), BTreeMap<String, Ready>> {
    let mut families = BTreeMap::<_, Ready>::new();
    for slice in slices {
        let metadata = &slice["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let label = |name: &str| text(&metadata["labels"][name]);
        let service = (text(&metadata["namespace"]), label(well_known::SERVICE_NAME));
        let cluster = label(well_known::SOURCE_CLUSTER);
        let counted = families.entry((service, cluster, text(&slice["addressType"]))).or_default();
        let endpoints = slice["endpoints"].as_array().map(Vec::as_slice).unwrap_or_default();
        counted.total += endpoints.len();
        // An absent condition means ready.
        counted.ready += endpoints.iter().filter(|one| one["conditions"]["ready"] != false).count();
    }
    let mut all = BTreeMap::<_, BTreeMap<String, Ready>>::new();
    for ((service, cluster, _), counted) in families {
        let most = all.entry(service).or_default().entry(cluster).or_default();
        *most = counted.max(*most);
    }
    all
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
            })
        };
        let [yes, no, unknown] = [json!(true), json!(false), Value::Null];
        let found = by_cluster(&[
            slice("east", "IPv4", &[yes.clone(), no.clone()]),
            slice("east", "IPv4", &[unknown]),
            slice("east", "IPv6", std::slice::from_ref(&yes)),
            slice("west", "IPv4", &[no]),
        ]);
        let found = &found[&("shop".to_owned(), "cart".to_owned())];
        assert_eq!(found["east"], Ready { total: 3, ready: 2 });
        assert_eq!(found["west"], Ready { total: 1, ready: 0 });
    }
}
