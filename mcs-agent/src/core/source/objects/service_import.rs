//! ServiceImport of the CRD of sigs.k8s.io/mcs-api. v1alpha1 and v1beta1 have the same schema.

use std::{collections::BTreeMap, sync::Arc};

use mcs_kube::{
    SELECTOR_RESULTS,
    objects::{self, ClusterStatus, ObjectMeta, ServicePort, SessionAffinityConfig},
    record_of, wish,
};
use serde_json::Value;

use super::DERIVED_SERVICE_ANNOTATION;
use crate::core::model::{self, ClusterAffinity, ImportPort, Kind, ObjectKey, Tiers, Timestamp};

/// On a ServiceImport: whether endpoints of this cluster or of the others are preferred. Cilium takes it from the exports.
const AFFINITY_ANNOTATION: &str = "service.cilium.io/affinity";
/// How a controller hands an import with a derived Service to the agent. Cilium's operator removes the annotation from a
/// ServiceImport, and heeds it neither on a Service nor as metadata of a ServiceExport.
pub(crate) const PUBLISH: &str = "to hand it to the agent, let its controller publish \
    the EndpointSlices of every cluster here (Cilium: \
    service.cilium.io/global-sync-endpoint-slices=true in spec.exportedAnnotations of the ServiceExports; the oldest \
    export decides)";

/// An import, with its labels and with the annotations for which the agent itself has no use.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LabelledImport {
    pub(crate) import: model::ServiceImport,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
}

/// Converts to the domain type, with the key that the source uses for the object.
pub(in crate::core::source) fn convert(
    import: objects::ServiceImport,
    key: ObjectKey,
) -> LabelledImport {
    let objects::ServiceImport { metadata, spec, status } = import;
    let ObjectMeta { labels, mut annotations, creation_timestamp, .. } = metadata;
    let derived_service = annotations.remove(DERIVED_SERVICE_ANNOTATION);
    let cluster_affinity = annotations
        .remove(AFFINITY_ANNOTATION)
        .map(|value| ClusterAffinity { annotation: AFFINITY_ANNOTATION, value });
    let noted_tiers = annotations.remove(SELECTOR_RESULTS);
    let settings = wish::ALL.into_iter();
    let settings = settings.filter_map(|key| Some((key, annotations.remove(key)?.into())));
    let settings = settings.collect();
    let status = status.unwrap_or_default();
    let objects = status.endpoint_slice_objects;
    let has_counted_clusters = derived_service.is_some() && objects.is_none();
    let import = model::ServiceImport {
        kind: Kind::ServiceImport,
        remedy: PUBLISH.into(),
        pod_remedy: None,
        record_of: record_of(&key.name, &labels, &annotations).map(Into::into),
        key,
        created: creation_timestamp.map(|time| Timestamp(time.seconds)),
        derived_service,
        service_type: spec.service_type,
        ips: spec.ips,
        ports: spec.ports.into_iter().map(port).collect(),
        session_affinity: spec.session_affinity,
        affinity_timeout_seconds: spec
            .session_affinity_config
            .and_then(SessionAffinityConfig::timeout_seconds),
        internal_traffic_policy: spec.internal_traffic_policy,
        traffic_distribution: spec.traffic_distribution.map(Into::into),
        cluster_affinity: cluster_affinity.map(Box::new),
        tiers: tiers(status.cluster_selector_results, noted_tiers.as_deref()).map(Box::new),
        settings,
        endpoint_slice_objects: objects,
        clusters: names(if has_counted_clusters { status.clusters } else { Vec::new() }),
    };
    LabelledImport { import, labels, annotations }
}

/// An entry of `spec.ports` of a ServiceImport, or of a Service that stands for one.
pub(crate) fn port(port: ServicePort) -> ImportPort {
    let ServicePort { name, protocol, port, .. } = port;
    ImportPort { name, protocol: Some(protocol).filter(|one| !one.is_empty()), port }
}

/// The results of the field, else those of the annotation. No results mean no selectors.
fn tiers(field: Option<Value>, annotation: Option<&str>) -> Option<Result<Tiers, String>> {
    let field = field.map(Tiers::read);
    let tiers = field.or_else(|| annotation.map(Tiers::parse))?;
    (tiers != Ok(Tiers::default())).then_some(tiers)
}

/// Sorted, since a controller can list them in any order.
fn names(clusters: Vec<ClusterStatus>) -> Box<[Arc<str>]> {
    let mut names: Vec<Arc<str>> =
        clusters.into_iter().map(|status| status.cluster.into()).collect();
    names.sort_unstable();
    names.dedup();
    names.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::core::model::ServiceType;

    #[expect(clippy::needless_pass_by_value, reason = "made in place")]
    fn decode(object: serde_json::Value) -> Result<model::ServiceImport, String> {
        Ok(convert(objects::read(&object)?, ObjectKey::new("shop", "web")).import)
    }

    #[test]
    fn every_field_arrives() {
        let import = decode(json!({
            "apiVersion": "multicluster.x-k8s.io/v1beta1",
            "kind": "ServiceImport",
            "metadata": {
                "name": "web",
                "creationTimestamp": "1970-01-01T00:01:00Z",
                "annotations": {
                    "multicluster.kubernetes.io/derived-service": "derived-abc",
                    "service.cilium.io/affinity": "local",
                    "traffic.clusterset.mcs-agent.io/spill": "70%",
                    "traffic.clusterset.mcs-agent.io/failback-delay": "2m",
                    "traffic.clusterset.mcs-agent.io/passive-health": "on",
                    "traffic.clusterset.mcs-agent.io/cluster-selectors-fallback": "none",
                },
            },
            "spec": {
                "type": "ClusterSetIP",
                "ips": ["10.0.0.1", "fd00::1"],
                "ipFamilies": ["IPv4", "IPv6"],
                "ports": [
                    {"name": "http", "protocol": "TCP", "appProtocol": "http", "port": 80},
                    {"port": 53},
                ],
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
                "internalTrafficPolicy": "Local",
                "trafficDistribution": "PreferClose",
            },
            "status": {
                "clusters": [{"cluster": "a"}],
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "Ready", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
                "endpointSliceObjects": "Present",
                "clusterSelectorResults": [{"clusters": ["a"]}],
            },
        }));
        assert_eq!(
            import,
            Ok(model::ServiceImport {
                kind: Kind::ServiceImport,
                remedy: PUBLISH.into(),
                pod_remedy: None,
                key: ObjectKey::new("shop", "web"),
                created: Some(Timestamp(60)),
                derived_service: Some("derived-abc".to_owned()),
                record_of: None,
                service_type: ServiceType::ClusterSetIp,
                ips: vec!["10.0.0.1".to_owned(), "fd00::1".to_owned()],
                ports: vec![
                    ImportPort {
                        name: "http".to_owned(),
                        protocol: Some("TCP".to_owned()),
                        port: 80,
                    },
                    ImportPort { name: String::new(), protocol: None, port: 53 },
                ],
                session_affinity: Some("ClientIP".to_owned()),
                affinity_timeout_seconds: Some(60),
                internal_traffic_policy: Some("Local".to_owned()),
                traffic_distribution: Some("PreferClose".into()),
                cluster_affinity: Some(Box::new(ClusterAffinity {
                    annotation: "service.cilium.io/affinity",
                    value: "local".to_owned(),
                })),
                tiers: Some(Box::new(Tiers::parse(r#"[{"clusters":["a"]}]"#))),
                settings: wish::ALL
                    .into_iter()
                    .zip(["70%", "2m", "on", "none"].map(Into::into))
                    .collect(),
                endpoint_slice_objects: Some("Present".to_owned()),
                clusters: [].into(),
            })
        );
    }

    #[test]
    fn optional_fields_may_be_absent_or_null() {
        let expected = Ok(model::ServiceImport {
            service_type: ServiceType::Headless,
            remedy: PUBLISH.into(),
            ..model::ServiceImport::new(Kind::ServiceImport, ObjectKey::new("shop", "web"))
        });
        let absent = json!({"metadata": {}, "spec": {"type": "Headless", "ports": []}});
        let null = json!({
            "metadata": {"creationTimestamp": null, "annotations": null},
            "spec": {
                "type": "Headless", "ports": [], "ips": null, "ipFamilies": null,
                "sessionAffinity": null, "sessionAffinityConfig": null,
                "internalTrafficPolicy": null, "trafficDistribution": null,
            },
            "status": null,
        });
        assert_eq!(decode(absent), expected);
        assert_eq!(decode(null), expected);
    }

    #[test]
    fn clusters_are_kept_where_slices_are_compared_with_them() {
        let clusters = |annotations: serde_json::Value, objects: serde_json::Value| {
            let spec = json!({"type": "ClusterSetIP", "ports": []});
            let clusters = json!([{"cluster": "west"}, {"cluster": "east"}, {"cluster": "west"}]);
            let status = json!({"clusters": clusters, "endpointSliceObjects": objects});
            let metadata = json!({"annotations": annotations});
            decode(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap().clusters
        };
        let derived = || json!({"multicluster.kubernetes.io/derived-service": "derived-abc"});
        assert_eq!(clusters(derived(), json!(null)), ["east", "west"].map(Arc::from).into());
        assert_eq!(clusters(derived(), json!("Present")), [].into());
        assert_eq!(clusters(json!({}), json!(null)), [].into());
    }

    #[test]
    fn tiers_are_in_the_status_or_else_in_an_annotation() {
        let read = |field: serde_json::Value, annotation: Option<&str>| {
            let annotations = json!({SELECTOR_RESULTS: annotation.unwrap_or("[]")});
            let spec = json!({"type": "ClusterSetIP", "ports": []});
            let status = json!({"clusterSelectorResults": field});
            let metadata = json!({"annotations": annotations});
            let import = json!({"metadata": metadata, "spec": spec, "status": status});
            let tiers = decode(import).unwrap().tiers?;
            Some(tiers.map_or_else(|_| "unreadable".to_owned(), |tiers| tiers.to_string()))
        };
        let noted = Some(r#"[{"clusters":["a"]},{"clusters":["b"]}]"#);
        for (field, annotation, expected) in [
            (json!(null), None, None),
            (json!(null), noted, Some("1 a; 2 b")),
            (json!([{"clusters": ["c"]}]), noted, Some("1 c")),
            (json!([{}]), None, Some("1 none")),
            (json!("c"), noted, Some("unreadable")),
            (json!(null), Some("c"), Some("unreadable")),
        ] {
            assert_eq!(
                read(field.clone(), annotation).as_deref(),
                expected,
                "{field} {annotation:?}"
            );
        }
    }

    #[test]
    fn errors_name_the_field() {
        for (spec, expected) in [
            (json!({"type": "ClusterSetIP"}), "spec: missing field `ports`"),
            (json!({"ports": []}), "spec: missing field `type`"),
            (
                json!({"type": "ClusterSetIP", "ports": "http"}),
                "spec.ports: invalid type: string \"http\", expected a sequence",
            ),
            (
                json!({"type": "ClusterSetIP", "ports": [{"port": 80}, {"port": "80"}]}),
                "spec.ports[1].port: invalid type: string \"80\", expected i32",
            ),
            (
                json!({"type": "External", "ports": []}),
                "spec.type: unknown variant `External`, expected `ClusterSetIP` or `Headless`",
            ),
        ] {
            assert_eq!(
                decode(json!({"metadata": {}, "spec": spec})),
                Err(expected.to_owned()),
                "{spec}"
            );
        }
    }
}
