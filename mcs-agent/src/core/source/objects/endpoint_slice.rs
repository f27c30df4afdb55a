//! EndpointSlice of Kubernetes, as a multi-cluster controller imports it (KEP-1645).

use std::{sync::Arc, time::SystemTime};

use jiff::Timestamp;
use mcs_kube::objects::{self, EndpointHints, EndpointPort, Named};

use super::{SERVICE_NAME_LABEL, SOURCE_CLUSTER_LABEL, TRIGGER_ANNOTATION};
use crate::core::model::{
    Endpoint, EndpointAddress, EndpointSlice, Location, ObjectKey, SlicePort, TopologyHints,
};

/// The domain type of a slice that belongs to `service`.
pub(crate) fn into_domain(
    slice: objects::EndpointSlice,
    key: ObjectKey,
    service: Arc<str>,
    source_cluster: Arc<str>,
) -> EndpointSlice {
    let trigger = slice.metadata.annotation(TRIGGER_ANNOTATION);
    let trigger = trigger.and_then(|text| text.parse::<Timestamp>().ok());
    EndpointSlice {
        key,
        service,
        source_cluster,
        address_type: slice.address_type,
        endpoints: slice.endpoints.into_iter().map(endpoint).collect(),
        ports: slice.ports.into_iter().map(port).collect(),
        trigger_time: trigger.map(SystemTime::from),
    }
}

/// Converts to the domain type, with the key that the source uses for the object. Returns `None` for a
/// slice that is not imported: its service name label is absent or empty.
pub(in crate::core::source) fn convert(
    slice: objects::EndpointSlice,
    key: ObjectKey,
) -> Option<EndpointSlice> {
    let service = slice.metadata.label(SERVICE_NAME_LABEL)?.into();
    let cluster = slice.metadata.label(SOURCE_CLUSTER_LABEL).unwrap_or_default().into();
    Some(into_domain(slice, key, service, cluster))
}

fn endpoint(endpoint: objects::Endpoint) -> Endpoint {
    let conditions = endpoint.conditions.unwrap_or_default();
    let address = endpoint.address().map_or(EndpointAddress::Absent, Into::into);
    let hints = endpoint.hints.map(hints);
    Endpoint {
        address,
        ready: conditions.ready,
        serving: conditions.serving,
        terminating: conditions.terminating,
        location: location(endpoint.node_name, endpoint.zone),
        hints: hints.filter(|hints| *hints != TopologyHints::default()).map(Arc::new),
    }
}

fn location(node_name: Option<String>, zone: Option<String>) -> Option<Arc<Location>> {
    let is_known = node_name.is_some() || zone.is_some();
    let location = || Location { node_name: node_name.map(Into::into), zone: zone.map(Into::into) };
    is_known.then(|| Arc::new(location()))
}

fn hints(hints: EndpointHints) -> TopologyHints {
    let names = |named: Vec<Named>| named.into_iter().map(|one| one.name).collect();
    TopologyHints { nodes: names(hints.for_nodes), zones: names(hints.for_zones) }
}

fn port(port: EndpointPort) -> SlicePort {
    let EndpointPort { name, protocol, port, .. } = port;
    SlicePort { name: name.unwrap_or_default(), protocol, port }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn decode(object: &serde_json::Value) -> Option<EndpointSlice> {
        convert(objects::read(object).unwrap(), ObjectKey::new("shop", "web-a"))
    }

    #[test]
    fn every_field_arrives() {
        let slice = decode(&json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "web-a", "labels": {
                "multicluster.kubernetes.io/service-name": "web",
                "multicluster.kubernetes.io/source-cluster": "a",
            }},
            "addressType": "IPv4",
            "endpoints": [
                {
                    "addresses": ["10.1.0.1", "10.1.0.2"],
                    "conditions": {"ready": false, "serving": true, "terminating": true},
                    "nodeName": "node-1",
                    "zone": "z1",
                    "hints": {
                        "forZones": [{"name": "z1"}, {"name": "z2"}],
                        "forNodes": [{"name": "node-1"}],
                    },
                },
                {"addresses": ["pod-3"], "hints": {}},
                {"addresses": []},
            ],
            "ports": [{"name": "http", "protocol": "TCP", "port": 8080}, {}],
        }));
        assert_eq!(
            slice,
            Some(EndpointSlice {
                key: ObjectKey::new("shop", "web-a"),
                service: "web".into(),
                source_cluster: "a".into(),
                address_type: "IPv4".to_owned(),
                endpoints: [
                    Endpoint {
                        address: "10.1.0.1".into(),
                        ready: Some(false),
                        serving: Some(true),
                        terminating: Some(true),
                        location: Some(Arc::new(Location {
                            node_name: Some("node-1".into()),
                            zone: Some("z1".into()),
                        })),
                        hints: Some(Arc::new(TopologyHints {
                            nodes: vec!["node-1".to_owned()],
                            zones: vec!["z1".to_owned(), "z2".to_owned()],
                        })),
                    },
                    Endpoint { address: "pod-3".into(), ..Endpoint::default() },
                    Endpoint::default(),
                ]
                .into(),
                ports: vec![
                    SlicePort {
                        name: "http".to_owned(),
                        protocol: Some("TCP".to_owned()),
                        port: Some(8080),
                    },
                    SlicePort { name: String::new(), protocol: None, port: None },
                ],
                trigger_time: None,
            })
        );
    }

    #[test]
    fn a_slice_without_service_name_is_not_imported() {
        for labels in [
            json!(null),
            json!({}),
            json!({"kubernetes.io/service-name": "web"}),
            json!({"multicluster.kubernetes.io/service-name": ""}),
        ] {
            let object = json!({"metadata": {"labels": labels}, "addressType": "IPv4"});
            assert_eq!(decode(&object), None, "{labels}");
        }
    }

    #[test]
    fn a_trigger_time_is_a_moment_or_nothing() {
        let with = |trigger: &str| {
            decode(&json!({
                "metadata": {
                    "labels": {"multicluster.kubernetes.io/service-name": "web"},
                    "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": trigger},
                },
                "addressType": "IPv4",
            }))
            .unwrap()
        };
        let moment = |seconds, nanos| SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos);
        let slice = with("2026-01-02T03:04:05.25Z");
        assert_eq!(slice.trigger_time, Some(moment(1_767_323_045, 250_000_000)));
        assert_eq!(with("2026-01-02T04:04:05+01:00").trigger_time, Some(moment(1_767_323_045, 0)));
        assert_eq!(with("yesterday").trigger_time, None);
        assert_ne!(with("yesterday"), slice);
        assert!(with("yesterday").has_same_content(&slice));
    }
}
