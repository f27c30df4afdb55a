//! EndpointSlice of Kubernetes, as a multi-cluster controller imports it (KEP-1645).

use std::{collections::BTreeMap, fmt, sync::Arc, time::SystemTime};

use jiff::Timestamp;
use mcs_kube::message;
use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};

use super::{SERVICE_NAME_LABEL, SOURCE_CLUSTER_LABEL, TRIGGER_ANNOTATION};
use crate::model::{
    Endpoint, EndpointAddress, EndpointSlice, Location, ObjectKey, SlicePort, TopologyHints,
};

/// What the agent uses of an EndpointSlice. It borrows from the JSON or the message, because slices can have a thousand
/// endpoints with many texts, most of which the agent does not keep.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
pub(in crate::source) struct ReadSlice<'a> {
    #[serde(borrow)]
    metadata: Option<Metadata<'a>>,
    #[serde(borrow)]
    address_type: Option<&'a str>,
    #[serde(borrow)]
    endpoints: Option<Vec<ReadEndpoint<'a>>>,
    #[serde(borrow)]
    ports: Option<Vec<ReadPort<'a>>>,
}

#[derive(Deserialize, Debug)]
struct Metadata<'a> {
    #[serde(borrow)]
    labels: Option<BTreeMap<&'a str, &'a str>>,
    #[serde(borrow)]
    annotations: Option<BTreeMap<&'a str, &'a str>>,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
struct ReadEndpoint<'a> {
    #[serde(borrow)]
    addresses: Option<First<'a>>,
    conditions: Option<message::EndpointConditions>,
    #[serde(borrow)]
    node_name: Option<&'a str>,
    #[serde(borrow)]
    zone: Option<&'a str>,
    #[serde(borrow)]
    hints: Option<ReadHints<'a>>,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
struct ReadHints<'a> {
    #[serde(borrow)]
    for_nodes: Option<Vec<Named<'a>>>,
    #[serde(borrow)]
    for_zones: Option<Vec<Named<'a>>>,
}

#[derive(Deserialize, Debug)]
struct Named<'a> {
    #[serde(borrow)]
    name: Option<&'a str>,
}

#[derive(Deserialize, Debug)]
struct ReadPort<'a> {
    #[serde(borrow)]
    name: Option<&'a str>,
    #[serde(borrow)]
    protocol: Option<&'a str>,
    port: Option<i32>,
}

impl<'a> From<&'a message::EndpointSlice> for ReadSlice<'a> {
    fn from(slice: &'a message::EndpointSlice) -> Self {
        let message::EndpointSlice { metadata, endpoints, ports, address_type } = slice;
        let texts = |map: &'a BTreeMap<String, String>| {
            Some(map.iter().map(|(key, value)| (&**key, &**value)).collect())
        };
        let metadata = metadata.as_ref().map(|metadata| Metadata {
            labels: texts(&metadata.labels),
            annotations: texts(&metadata.annotations),
        });
        Self {
            metadata,
            address_type: Some(address_type),
            endpoints: Some(endpoints.iter().map(ReadEndpoint::from).collect()),
            ports: Some(ports.iter().map(ReadPort::from).collect()),
        }
    }
}

impl<'a> From<&'a message::Endpoint> for ReadEndpoint<'a> {
    fn from(endpoint: &'a message::Endpoint) -> Self {
        let named = |list: &'a [message::Named]| {
            Some(list.iter().map(|named| Named { name: Some(&named.name) }).collect())
        };
        let hints = endpoint.hints.as_ref().map(|hints| ReadHints {
            for_nodes: named(&hints.for_nodes),
            for_zones: named(&hints.for_zones),
        });
        Self {
            addresses: Some(First(endpoint.addresses.first().map(String::as_str))),
            conditions: endpoint.conditions,
            node_name: endpoint.node_name.as_deref(),
            zone: endpoint.zone.as_deref(),
            hints,
        }
    }
}

impl<'a> From<&'a message::EndpointPort> for ReadPort<'a> {
    fn from(port: &'a message::EndpointPort) -> Self {
        Self { name: port.name.as_deref(), protocol: port.protocol.as_deref(), port: port.port }
    }
}

/// The first of a list of texts, if there is one.
#[derive(Debug)]
struct First<'a>(Option<&'a str>);

impl<'de: 'a, 'a> Deserialize<'de> for First<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;

        impl<'de> Visitor<'de> for Texts {
            type Value = First<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of texts")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut texts: A) -> Result<First<'de>, A::Error> {
                let first = texts.next_element()?;
                while texts.next_element::<&str>()?.is_some() {}
                Ok(First(first))
            }
        }

        deserializer.deserialize_seq(Texts)
    }
}

impl<'a> ReadSlice<'a> {
    /// A label that is not empty.
    pub(in crate::source) fn label(&self, name: &str) -> Option<&'a str> {
        let labels = self.metadata.as_ref()?.labels.as_ref()?;
        labels.get(name).copied().filter(|value| !value.is_empty())
    }

    /// An annotation.
    pub(in crate::source) fn annotation(&self, name: &str) -> Option<&'a str> {
        self.metadata.as_ref()?.annotations.as_ref()?.get(name).copied()
    }

    /// The domain type of a slice that belongs to `service`.
    pub(in crate::source) fn into_domain(
        self,
        key: ObjectKey,
        service: &str,
        source_cluster: &str,
    ) -> EndpointSlice {
        let trigger = self.annotation(TRIGGER_ANNOTATION);
        let trigger = trigger.and_then(|text| text.parse::<Timestamp>().ok());
        EndpointSlice {
            key,
            service: service.into(),
            source_cluster: source_cluster.into(),
            address_type: self.address_type.unwrap_or_default().to_owned(),
            endpoints: self.endpoints.unwrap_or_default().into_iter().map(endpoint).collect(),
            ports: self.ports.iter().flatten().map(port).collect(),
            trigger_time: trigger.map(SystemTime::from),
        }
    }
}

/// Converts to the domain type, with the key that the source uses for the object. Returns `None` for a
/// slice that is not imported: its service name label is absent or empty.
pub(super) fn convert(slice: ReadSlice<'_>, key: ObjectKey) -> Option<EndpointSlice> {
    let service = slice.label(SERVICE_NAME_LABEL)?;
    let cluster = slice.label(SOURCE_CLUSTER_LABEL).unwrap_or_default();
    Some(slice.into_domain(key, service, cluster))
}

fn endpoint(endpoint: ReadEndpoint<'_>) -> Endpoint {
    let conditions = endpoint.conditions.unwrap_or_default();
    let address = endpoint.addresses.and_then(|addresses| addresses.0);
    Endpoint {
        address: address.map_or(EndpointAddress::Absent, Into::into),
        ready: conditions.ready,
        serving: conditions.serving,
        terminating: conditions.terminating,
        location: location(endpoint.node_name, endpoint.zone),
        hints: endpoint
            .hints
            .map(hints)
            .filter(|hints| *hints != TopologyHints::default())
            .map(Arc::new),
    }
}

fn location(node_name: Option<&str>, zone: Option<&str>) -> Option<Arc<Location>> {
    let is_known = node_name.is_some() || zone.is_some();
    let location = || Location { node_name: node_name.map(Into::into), zone: zone.map(Into::into) };
    is_known.then(|| Arc::new(location()))
}

fn hints(hints: ReadHints<'_>) -> TopologyHints {
    let names = |list: Option<Vec<Named<'_>>>| {
        let names = list.unwrap_or_default().into_iter();
        names.map(|named| named.name.unwrap_or_default().to_owned()).collect()
    };
    TopologyHints { nodes: names(hints.for_nodes), zones: names(hints.for_zones) }
}

fn port(port: &ReadPort<'_>) -> SlicePort {
    SlicePort {
        name: port.name.unwrap_or_default().to_owned(),
        protocol: port.protocol.map(str::to_owned),
        port: port.port,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn decode(object: &serde_json::Value) -> Option<EndpointSlice> {
        convert(ReadSlice::deserialize(object).unwrap(), ObjectKey::new("shop", "web-a"))
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
