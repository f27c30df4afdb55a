//! EndpointSlices: those of exported Services, their copies in a mailbox, and the imported ones.

mod read;

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use mcs_kube::{Decoder, ObjectKey, objects::EndpointSlice};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use self::read::{forget_invalid_time, forget_nodes, into_source, source_generation, stamp};
use crate::core::clusterset::{
    ActualSlice, ClusterId, Endpoint, EndpointConditions, EndpointRules, ImportedSlice, IpFamily,
    ServiceName, SlicePort, SourceSlice, Stamp, derived_name, is_object_name, well_known,
};

/// The longest name of an object.
const LONGEST_NAME: usize = 253;
/// Annotation of an imported slice whose endpoints have hints with their own zones. Endpoints without a zone do not show
/// it.
const ZONE_HINTS: &str = "clusterset.mcs-agent.io/zone-hints";

/// A slice of this cluster, and the Service that it belongs to.
#[derive(Clone, PartialEq, Debug)]
pub struct LocalSlice {
    /// `metadata.name` of the Service.
    pub service: Arc<str>,
    /// The slice.
    pub slice: Arc<SourceSlice>,
}

/// A copy of a slice in a mailbox.
#[derive(Clone, PartialEq, Debug)]
pub struct MailboxSlice {
    /// The cluster that has published it, if it is labelled.
    pub cluster: Option<ClusterId>,
    /// The exported service that it belongs to.
    pub service: ServiceName,
    /// The slice as it is in its source cluster.
    pub slice: Arc<SourceSlice>,
}

/// A slice of an import.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportedObject {
    /// The import that it belongs to.
    pub service: ServiceName,
    /// Who wrote it.
    pub slice: WrittenSlice,
}

/// The part of an imported slice that the controller remembers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WrittenSlice {
    /// This controller imported it.
    Ours(ActualSlice),
    /// Somebody else wrote it, for this cluster if it names one.
    Others(Option<ClusterId>),
}

/// Decodes the slices of this cluster's Services. `None`: a slice without Service, or with names instead of addresses.
#[derive(Clone, PartialEq, Debug)]
pub struct LocalSliceDecoder;

impl Decoder for LocalSliceDecoder {
    type Object = EndpointSlice;
    type Value = Option<LocalSlice>;

    fn convert(key: &ObjectKey, mut slice: EndpointSlice) -> Result<Self::Value, String> {
        let Some(service) = slice.metadata.label(well_known::SLICE_SERVICE).map(Into::into) else {
            return Ok(None);
        };
        forget_invalid_time(&mut slice);
        let (name, generation) = (Arc::clone(&key.name), slice.metadata.generation);
        let slice = into_source(&slice, name, generation, Stamp::NONE);
        Ok(slice.map(|slice| LocalSlice { service, slice: Arc::new(slice) }))
    }
}

/// Decodes the copies in a mailbox. `None`: another slice.
#[derive(Clone, PartialEq, Debug)]
pub struct MailboxSliceDecoder;

impl Decoder for MailboxSliceDecoder {
    type Object = EndpointSlice;
    type Value = Option<MailboxSlice>;

    fn convert(_: &ObjectKey, mut slice: EndpointSlice) -> Result<Self::Value, String> {
        forget_nodes(&mut slice);
        forget_invalid_time(&mut slice);
        let metadata = &slice.metadata;
        let (Some(namespace), Some(service), Some(name)) = (
            metadata.label(well_known::MAILBOX_NAMESPACE),
            metadata.label(well_known::MAILBOX_SERVICE),
            metadata.annotation(well_known::SOURCE_SLICE),
        ) else {
            return Ok(None);
        };
        let service = ServiceName::new(namespace, service).map_err(|error| error.to_string())?;
        if !is_object_name(name) {
            return Err(format!("annotation {} is no name of a slice", well_known::SOURCE_SLICE));
        }
        let cluster = metadata.label(well_known::MAILBOX_CLUSTER).and_then(|id| id.parse().ok());
        let slice = into_source(&slice, name.into(), source_generation(&slice), stamp(&slice));
        Ok(slice.map(|slice| MailboxSlice { cluster, service, slice: Arc::new(slice) }))
    }

    fn weight(copy: &Self::Value) -> usize {
        copy.as_ref().map_or(0, |copy| copy.slice.weight())
    }

    /// The namespace that exports.
    fn account(name: &str) -> &str {
        name.split_once('.').map_or("", |(namespace, _)| namespace)
    }
}

/// Decodes the slices of imports. `None`: a slice without an import, or one of this controller without a cluster.
#[derive(Clone, PartialEq, Debug)]
pub struct ImportedSliceDecoder;

impl Decoder for ImportedSliceDecoder {
    type Object = EndpointSlice;
    type Value = Option<ImportedObject>;

    fn convert(key: &ObjectKey, slice: EndpointSlice) -> Result<Self::Value, String> {
        let Some(service) = slice.metadata.label(well_known::SERVICE_NAME) else { return Ok(None) };
        let service =
            ServiceName::new(&key.namespace, service).map_err(|error| error.to_string())?;
        let cluster = slice.metadata.label(well_known::SOURCE_CLUSTER);
        let cluster = cluster.and_then(|id| id.parse::<ClusterId>().ok());
        if slice.metadata.label(well_known::SLICE_MANAGED_BY) != Some(well_known::CONTROLLER) {
            return Ok(Some(ImportedObject { service, slice: WrittenSlice::Others(cluster) }));
        }
        let Some(cluster) = cluster else { return Ok(None) };
        let source_name =
            slice.metadata.annotation(well_known::SOURCE_SLICE).unwrap_or_default().into();
        let has_zone_hints = slice.metadata.annotation(ZONE_HINTS).is_some();
        let derived = slice.metadata.label(well_known::SLICE_SERVICE);
        let has_derived_service = derived.is_some_and(|derived| *derived == derived_name(&service));
        let stamp = stamp(&slice);
        let source = into_source(&slice, source_name, source_generation(&slice), stamp);
        let Some(slice) = source else { return Ok(None) };
        let imported = ImportedSlice {
            service,
            name: Arc::clone(&key.name),
            cluster,
            source_name: slice.name,
            source_generation: slice.generation,
            family: slice.family,
            ports: slice.ports,
            endpoints: slice.endpoints,
            has_zone_hints,
            has_derived_service,
            trigger_time: slice.trigger_time,
            stamp,
        };
        let slice = WrittenSlice::Ours(imported.actual());
        Ok(Some(ImportedObject { service: imported.service, slice }))
    }
}

/// The name of the copy of a slice in a mailbox, which holds the slices of all namespaces.
pub fn mailbox_slice_name(namespace: &str, slice: &str) -> String {
    // A namespace has no dot, so two slices never share a name.
    let name = format!("{namespace}.{slice}");
    if name.len() <= LONGEST_NAME {
        return name;
    }
    let hash = Sha256::digest(name.as_bytes());
    let mut name = format!("{namespace}.");
    for byte in hash.iter().take(20) {
        // Writing to a String cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// The copy of a slice in a mailbox, as the controller applies it. It lacks the standard label of a Service's slices, so
/// CoreDNS and kube-proxy of the cluster with the mailbox ignore it.
pub fn mailbox_slice(
    mailbox: &str,
    cluster: &ClusterId,
    service: &ServiceName,
    slice: &SourceSlice,
    stamp: Stamp,
) -> Value {
    let labels = json!({
        well_known::MAILBOX_CLUSTER: cluster,
        well_known::MAILBOX_NAMESPACE: service.namespace(),
        well_known::MAILBOX_SERVICE: service.name(),
        well_known::SLICE_MANAGED_BY: well_known::CONTROLLER,
        well_known::HEADLESS: "",
    });
    let metadata = json!({
        "namespace": mailbox,
        "name": mailbox_slice_name(service.namespace(), &slice.name),
        "labels": labels,
        "annotations": annotations(
            &slice.name, slice.generation, slice.trigger_time.as_deref(), stamp,
        ),
    });
    let endpoints: Vec<_> = slice.endpoints.iter().map(Endpoint::without_node).collect();
    object(&metadata, slice.family, &slice.ports, &endpoints, false)
}

/// An imported slice, as the controller applies it.
pub fn imported_slice(slice: &ImportedSlice) -> Value {
    let mut labels = json!({
        well_known::SERVICE_NAME: slice.service.name(),
        well_known::SOURCE_CLUSTER: slice.cluster,
        well_known::SLICE_MANAGED_BY: well_known::CONTROLLER,
        well_known::HEADLESS: "",
    });
    if slice.has_derived_service {
        labels[well_known::SLICE_SERVICE] = json!(derived_name(&slice.service));
    }
    let trigger_time = slice.trigger_time.as_deref();
    let mut annotations =
        annotations(&slice.source_name, slice.source_generation, trigger_time, slice.stamp);
    if slice.has_zone_hints {
        annotations.insert(ZONE_HINTS, "true".to_owned());
    }
    let metadata = json!({
        "namespace": slice.service.namespace(),
        "name": slice.name,
        "labels": labels,
        "annotations": annotations,
    });
    object(&metadata, slice.family, &slice.ports, &slice.endpoints, slice.has_zone_hints)
}

/// Removes the endpoints that the rules reject from an imported slice. Returns whether there were any.
pub fn restrict(slice: &mut Value, rules: &EndpointRules) -> bool {
    let Some(endpoints) = slice["endpoints"].as_array_mut() else { return false };
    let before = endpoints.len();
    endpoints.retain(|endpoint| {
        let address = endpoint["addresses"][0].as_str().and_then(|text| text.parse().ok());
        address.is_none_or(|address| rules.rejection(address).is_none())
    });
    endpoints.len() < before
}

fn annotations(
    source: &str,
    generation: i64,
    trigger_time: Option<&str>,
    stamp: Stamp,
) -> BTreeMap<&'static str, String> {
    let mut annotations = BTreeMap::from([
        (well_known::SOURCE_SLICE, source.to_owned()),
        (well_known::SOURCE_GENERATION, generation.to_string()),
    ]);
    if let Some(time) = trigger_time {
        annotations.insert(well_known::TRIGGER_TIME, time.to_owned());
    }
    if !stamp.is_none() {
        annotations.insert(well_known::WRITTEN, stamp.to_string());
    }
    annotations
}

fn object(
    metadata: &Value,
    family: IpFamily,
    ports: &[SlicePort],
    endpoints: &[Endpoint],
    has_zone_hints: bool,
) -> Value {
    let ports: Vec<_> = ports.iter().map(port_object).collect();
    let endpoints: Vec<_> =
        endpoints.iter().map(|endpoint| endpoint_object(endpoint, has_zone_hints)).collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata,
        "addressType": family,
        "ports": ports,
        "endpoints": endpoints,
    })
}

fn port_object(port: &SlicePort) -> Value {
    let mut object = json!({"name": port.name, "protocol": port.protocol});
    if let Some(number) = port.port {
        object["port"] = json!(number);
    }
    if let Some(protocol) = &port.app_protocol {
        object["appProtocol"] = json!(protocol);
    }
    object
}

fn endpoint_object(endpoint: &Endpoint, has_zone_hints: bool) -> Value {
    let EndpointConditions { ready, serving, terminating } = endpoint.conditions;
    let conditions = [("ready", ready), ("serving", serving), ("terminating", terminating)];
    let conditions: BTreeMap<_, _> =
        conditions.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let mut object = json!({"addresses": [endpoint.address], "conditions": conditions});
    let texts =
        [("hostname", &endpoint.hostname), ("zone", &endpoint.zone), ("nodeName", &endpoint.node)];
    for (name, text) in texts {
        if let Some(text) = text {
            object[name] = json!(text);
        }
    }
    if let Some(zone) = endpoint.zone.as_ref().filter(|_| has_zone_hints) {
        object["hints"] = json!({"forZones": [{"name": zone}]});
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{
        clusterset::{ServiceSpec, SliceCopier, fixture, merge},
        objects::decoded,
    };

    fn slice() -> SourceSlice {
        SourceSlice {
            name: "web-x".into(),
            generation: 7,
            family: IpFamily::V4,
            ports: vec![
                SlicePort {
                    name: "http".into(),
                    protocol: crate::core::clusterset::Protocol::Tcp,
                    port: Some(8080),
                    app_protocol: Some("kubernetes.io/h2c".into()),
                },
                SlicePort {
                    name: "".into(),
                    protocol: crate::core::clusterset::Protocol::Sctp,
                    port: None,
                    app_protocol: None,
                },
            ],
            endpoints: vec![
                Endpoint {
                    address: "10.1.0.1".parse().unwrap(),
                    conditions: EndpointConditions {
                        ready: Some(false),
                        serving: Some(true),
                        terminating: None,
                    },
                    hostname: Some("web-0".into()),
                    zone: Some("a".into()),
                    node: Some("n1".into()),
                },
                Endpoint {
                    address: "10.1.0.2".parse().unwrap(),
                    conditions: EndpointConditions::default(),
                    hostname: None,
                    zone: None,
                    node: None,
                },
            ],
            trigger_time: Some("2026-01-02T03:04:05Z".into()),
            stamp: Stamp { mailbox: 0, epoch: 2, sequence: 3 },
            memo: crate::core::clusterset::Memo::default(),
        }
    }

    #[test]
    fn a_copy_in_a_mailbox_is_read_as_the_slice_that_it_is_of() {
        let service = ServiceName::new("shop", "web").unwrap();
        let east: ClusterId = "east".parse().unwrap();
        let object = mailbox_slice("mcs-mailbox", &east, &service, &slice(), slice().stamp);
        assert!(object["metadata"]["labels"].get(well_known::SLICE_SERVICE).is_none());
        let mut copy = slice();
        copy.endpoints[0].node = None;
        assert!(slice().is_copied_by(&copy));
        let mut changed = slice();
        changed.endpoints[0].conditions.ready = Some(true);
        assert!(!changed.is_copied_by(&copy));
        let expected = MailboxSlice { cluster: Some(east), service, slice: Arc::new(copy) };
        assert_eq!(decoded::<MailboxSliceDecoder>(&object).unwrap(), Some(expected));
    }

    #[test]
    fn a_copy_leaves_out_what_the_api_takes_for_granted() {
        let slice = json!({
            "metadata": { "name": "web-x", "labels": { well_known::SLICE_SERVICE: "web" } },
            "addressType": "IPv4",
            "endpoints": [
                {
                    "addresses": ["10.1.0.1"],
                    "conditions": { "ready": true, "serving": true, "terminating": false },
                },
                {
                    "addresses": ["10.1.0.2"],
                    "conditions": { "ready": false, "serving": true, "terminating": true },
                },
                {
                    "addresses": ["10.1.0.3"],
                    "conditions": { "ready": true, "serving": false, "terminating": true },
                },
            ],
        });
        let local = decoded::<LocalSliceDecoder>(&slice).unwrap();
        let service = ServiceName::new("shop", "web").unwrap();
        let east = "east".parse().unwrap();
        let copy = mailbox_slice("box", &east, &service, &local.unwrap().slice, Stamp::NONE);
        assert_eq!(copy["endpoints"][0]["conditions"], json!({ "ready": true }));
        for number in [1, 2] {
            let [copy, slice] = [&copy, &slice].map(|slice| &slice["endpoints"][number]);
            assert_eq!(copy["conditions"], slice["conditions"]);
        }
    }

    #[test]
    fn an_imported_slice_is_read_as_it_was_written() {
        for has_zone_hints in [false, true] {
            let SourceSlice {
                name, generation, family, ports, endpoints, trigger_time, stamp, ..
            } = slice();
            let slice = ImportedSlice {
                service: ServiceName::new("shop", "web").unwrap(),
                name: "web-east-0".into(),
                cluster: "east".parse().unwrap(),
                source_name: name,
                source_generation: generation,
                family,
                ports,
                endpoints,
                has_zone_hints,
                has_derived_service: has_zone_hints,
                trigger_time,
                stamp,
            };
            let object = imported_slice(&slice);
            let zone = &object["endpoints"][0]["hints"]["forZones"][0]["name"];
            assert_eq!(zone.as_str(), has_zone_hints.then_some("a"));
            let expected = ImportedObject {
                service: slice.service.clone(),
                slice: WrittenSlice::Ours(slice.actual()),
            };
            assert_eq!(decoded::<ImportedSliceDecoder>(&object).unwrap(), Some(expected));
        }
    }

    /// Whoever writes a mailbox can write any label there.
    #[test]
    fn an_imported_slice_has_no_label_of_the_mailbox() {
        let (east, service) = ("east".parse().unwrap(), ServiceName::new("shop", "web").unwrap());
        let mut object = mailbox_slice("m", &east, &service, &slice(), slice().stamp);
        for (label, value) in [
            (well_known::SLICE_MANAGED_BY, "endpointslice-controller.k8s.io"),
            (well_known::MANAGED_BY, "other-controller"),
            (well_known::SOURCE_CLUSTER, "west"),
            (well_known::SERVICE_NAME, "pay"),
            (well_known::SLICE_SERVICE, "pay"),
            ("team", "bank"),
        ] {
            object["metadata"]["labels"][label] = json!(value);
            object["metadata"]["annotations"][label] = json!(value);
        }
        object["metadata"]["ownerReferences"] =
            json!([{ "apiVersion": "v1", "kind": "Service", "name": "pay", "uid": "u" }]);
        let copy = decoded::<MailboxSliceDecoder>(&object).unwrap().unwrap();
        assert_eq!((copy.cluster.as_ref(), &copy.service), (Some(&east), &service));
        let spec = ServiceSpec {
            ports: vec![fixture::port("http", 80)],
            labels: fixture::map(&[(well_known::MANAGED_BY, "other-controller"), ("team", "shop")]),
            ..fixture::spec()
        };
        let merged = merge(&[fixture::export("east", 1, spec)], None, &[]).unwrap();
        let copier = SliceCopier {
            name: &service,
            source: &east,
            importer: &"north".parse().unwrap(),
            merged: &merged,
            rules: &Arc::default(),
            has_derived_service: false,
            mailbox: 0,
        };
        let (imported, _) = copier.copy(&copy.slice);
        let metadata = &imported_slice(&imported)["metadata"];
        let labels = json!({
            well_known::SERVICE_NAME: "web",
            well_known::SOURCE_CLUSTER: "east",
            well_known::SLICE_MANAGED_BY: well_known::CONTROLLER,
            well_known::HEADLESS: "",
        });
        assert_eq!((&metadata["namespace"], &metadata["labels"]), (&json!("shop"), &labels));
        assert_eq!(metadata["ownerReferences"], json!(null));
        let annotations = metadata["annotations"].as_object().unwrap();
        let is_own = |key: &String| key.starts_with(well_known::GROUP);
        let others: Vec<_> = annotations.keys().filter(|key| !is_own(key)).collect();
        assert_eq!(others, [well_known::TRIGGER_TIME]);
    }

    /// What a reader makes of a copy with this annotation.
    fn annotated(name: &str, value: &str) -> Result<Option<MailboxSlice>, String> {
        let (east, service) = ("east".parse().unwrap(), ServiceName::new("shop", "web").unwrap());
        let mut object = mailbox_slice("m", &east, &service, &slice(), Stamp::NONE);
        object["metadata"]["annotations"][name] = json!(value);
        decoded::<MailboxSliceDecoder>(&object)
    }

    #[test]
    fn annotations_of_a_foreign_slice_are_what_they_should_be() {
        let long = "x".repeat(300);
        for text in ["junk", "", "2026-01-02", "2026-01-02T03:04:05+00:00[Europe/Paris]", &long] {
            let slice = annotated(well_known::TRIGGER_TIME, text).unwrap().unwrap().slice;
            assert_eq!(slice.trigger_time, None, "{text:?}");
        }
        let time = "2026-01-02T03:04:05.123456789+01:00";
        let slice = annotated(well_known::TRIGGER_TIME, time).unwrap().unwrap().slice;
        assert_eq!(slice.trigger_time.as_deref(), Some(time));
        for name in ["", "Web", "a b", "a\nb", "-a", &long] {
            let error = annotated(well_known::SOURCE_SLICE, name);
            assert!(error.is_err_and(|error| error.len() < 200), "{name:?}");
        }
        assert!(annotated(well_known::SOURCE_SLICE, "web-x.y").is_ok());
    }

    #[test]
    fn names_in_a_mailbox_are_short_enough() {
        assert_eq!(mailbox_slice_name("shop", "web-x"), "shop.web-x");
        let long = mailbox_slice_name("shop", &"x".repeat(253));
        assert!(long.len() <= LONGEST_NAME && long.starts_with("shop."), "{long}");
    }
}
