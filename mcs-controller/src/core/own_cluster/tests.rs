//! What the events of this cluster change.

use std::time::Instant;

use mcs_kube::Decoder;
use serde_json::{Value, from_value, json};

use super::*;
use crate::core::clusterset::VipRanges;

fn changed<D: Decoder>(object: Value) -> ResourceEvent<D> {
    ResourceEvent::Changed(from_value(object).unwrap())
}

fn metadata(name: &str) -> Value {
    json!({"namespace": "shop", "name": name})
}

#[test]
fn families_stay_without_service_cidrs() {
    let mut own = OwnCluster::new(vec![]);
    let service = |name: &str, families: &[&str], ip: &str| {
        let spec = json!({"clusterIP": ip, "ipFamilies": families});
        OwnEvent::Services(changed(json!({"metadata": metadata(name), "spec": spec})))
    };
    own.apply(service("a", &["IPv4"], "10.96.0.1"));
    own.apply(service("b", &["IPv4", "IPv6"], "None"));
    assert_eq!(own.families(), [IpFamily::V4], "b is headless");
    assert!(own.apply(service("c", &["IPv6"], "fd00::1")).all, "imports get VIPs of it");
    assert!(!own.apply(service("e", &["IPv6"], "fd00::2")).all, "once");
    assert_eq!(own.families(), [IpFamily::V4, IpFamily::V6]);
    own.apply(service("c", &["IPv4"], "10.96.0.2"));
    let mut metadata = metadata("d");
    metadata["labels"] = json!({well_known::MANAGED_BY: well_known::CONTROLLER});
    let spec = json!({"type": "ClusterSetIP", "ips": ["241.0.0.1", "fd00::2"], "ports": []});
    own.apply(OwnEvent::Imports(changed(json!({"metadata": metadata, "spec": spec}))));
    assert_eq!(own.families(), [IpFamily::V4, IpFamily::V6], "an import has both");
}

#[test]
fn families_cost_the_same_with_many_services() {
    let mut own = OwnCluster::new(vec![]);
    for number in 0..20_000 {
        let spec = json!({"clusterIP": "10.96.0.1", "ipFamilies": ["IPv4"]});
        let service = json!({"metadata": metadata(&format!("s{number}")), "spec": spec});
        own.apply(OwnEvent::Services(changed(service)));
    }
    let begin = Instant::now();
    // One for each plan.
    for _ in 0..40_000 {
        assert_eq!(own.families(), [IpFamily::V4]);
    }
    let took = begin.elapsed();
    assert!(took < std::time::Duration::from_secs(5), "{took:?}");
}

#[test]
fn each_resource_has_a_state_of_its_own() {
    assert!(OwnResource::ALL.iter().enumerate().all(|(place, one)| *one as usize == place));
}

#[test]
fn ranges_of_services_that_are_given_replace_those_of_the_cluster() {
    let given: Vec<IpNet> = vec!["10.96.0.0/16".parse().unwrap()];
    let mut own = OwnCluster::new(given.clone());
    assert!(own.feed(OwnResource::Ranges).synced, "nobody reads ServiceCIDRs");
    assert_eq!(own.service_ranges().collect::<Vec<_>>(), given);
    let spec = json!({"clusterIP": "fd00::1", "ipFamilies": ["IPv6"]});
    let changes =
        own.apply(OwnEvent::Services(changed(json!({"metadata": metadata("a"), "spec": spec}))));
    assert!(!changes.all);
    assert_eq!(own.families(), [IpFamily::V4], "they say what families Services have");
}

#[test]
fn a_slice_that_goes_to_another_service_leaves_the_former() {
    let mut own = OwnCluster::new(vec![]);
    let slice = |service: &str| {
        let mut metadata = metadata("x");
        metadata["labels"] = json!({"kubernetes.io/service-name": service});
        json!({"metadata": metadata, "addressType": "IPv4", "endpoints": [], "ports": []})
    };
    let name = |name: &str| ServiceName::new("shop", name).unwrap();
    for service in ["a", "b"] {
        own.apply(OwnEvent::Exports(changed(json!({"metadata": metadata(service)}))));
    }
    own.apply(OwnEvent::Slices(changed(slice("a"))));
    let changes = own.apply(OwnEvent::Slices(changed(slice("b"))));
    assert_eq!(changes.services, [name("a"), name("b")].into());
    assert!(own.slices(&name("a")).is_none());
    assert_eq!(own.slices(&name("b")).unwrap().len(), 1);
    let gone = ResourceEvent::Deleted(from_value(slice("b")).unwrap());
    own.apply(OwnEvent::Slices(gone));
    assert!(own.slices(&name("b")).is_none() && own.local_owners.is_empty());
}

#[test]
fn the_addresses_of_the_api_server_are_known() {
    let mut own = OwnCluster::new(vec![]);
    let labels = json!({"kubernetes.io/service-name": "kubernetes"});
    let slice = json!({
        "metadata": {"namespace": "default", "name": "kubernetes", "labels": labels},
        "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.1"]}], "ports": [],
    });
    assert!(own.apply(OwnEvent::Slices(changed(slice))).all);
    let expected: IpAddr = "192.0.2.1".parse().unwrap();
    assert_eq!(own.api_servers().collect::<Vec<_>>(), [expected]);
}

#[test]
fn nodes_that_stay_change_nothing() {
    let mut own = OwnCluster::new(vec![]);
    let node = |address: &str| {
        let addresses = json!([
            {"type": "InternalIP", "address": address}, {"type": "Hostname", "address": "node-1"},
        ]);
        let status = json!({"addresses": addresses});
        let spec = json!({"podCIDRs": ["10.1.0.0/24"]});
        json!({"metadata": {"name": "node-1"}, "spec": spec, "status": status})
    };
    let mut apply = |event| own.apply(OwnEvent::Nodes(event)).addresses;
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    assert_eq!(apply(changed(node("192.0.2.1"))), [ip("192.0.2.1")].into());
    assert!(apply(changed(node("192.0.2.1"))).is_empty());
    let both = [ip("192.0.2.1"), ip("192.0.2.2")].into();
    assert_eq!(apply(changed(node("192.0.2.2"))), both);
    let nodes: Vec<_> = own.node_addresses().iter().map(|(ip, node)| (*ip, &**node)).collect();
    assert_eq!(nodes, [(ip("192.0.2.2"), "node-1")]);
    let vips = VipRanges::for_clusterset("test");
    assert_eq!(own.pod_ranges(&vips).len(), 1);
    let gone = ResourceEvent::Deleted(from_value(node("192.0.2.2")).unwrap());
    own.apply(OwnEvent::Nodes(gone));
    assert!(own.pod_ranges(&vips).is_empty() && own.node_addresses().is_empty());
}

#[test]
fn no_node_reserves_a_whole_vip_range() {
    let mut own = OwnCluster::new(vec![]);
    let vips = VipRanges::for_clusterset("test");
    // Each is narrow enough for a node.
    for (name, ranges) in [
        ("n1", ["10.1.0.0/24".to_owned(), format!("{}/64", vips.v6.network())]),
        ("n2", ["241.0.0.0/12".to_owned(), "fd01::/64".to_owned()]),
    ] {
        let node = json!({"metadata": {"name": name}, "spec": {"podCIDRs": ranges}});
        own.apply(OwnEvent::Nodes(changed(node)));
    }
    let count = own.pod_ranges(&vips).len();
    assert_eq!(count, 3, "{:?}", own.pod_ranges(&vips));
    let over: Vec<_> = own.nodes_over(&vips).map(|(node, _)| &**node).collect();
    assert_eq!(over, ["n1"]);
}

#[test]
fn an_import_that_is_gone_takes_no_memory() {
    let mut own = OwnCluster::new(vec![]);
    let import = json!({"metadata": metadata("a"), "spec": {"type": "Headless", "ports": []}});
    own.apply(OwnEvent::Imports(changed(import.clone())));
    assert_eq!(own.imported().count(), 1);
    own.apply(OwnEvent::Imports(ResourceEvent::Deleted(from_value(import).unwrap())));
    assert_eq!(own.imported().count(), 0);
}

#[test]
fn a_namespace_changes_its_own_services() {
    let mut own = OwnCluster::new(vec![]);
    let namespace = json!({"metadata": {"name": "shop"}});
    let changes = own.apply(OwnEvent::Namespaces(changed(namespace.clone())));
    assert_eq!((changes.namespaces, changes.all), (["shop".into()].into(), false));
    let changes = own.apply(OwnEvent::Namespaces(changed(namespace)));
    assert!(changes.namespaces.is_empty(), "it was there");
}

#[test]
fn an_export_with_a_name_that_no_service_can_have_waits_for_its_condition() {
    let mut own = OwnCluster::new(vec![]);
    let export = |name: &str, conditions: Value| {
        changed::<ExportDecoder>(
            json!({"metadata": metadata(name), "status": {"conditions": conditions}}),
        )
    };
    let long = "x".repeat(64);
    for name in ["web", "web.shop", &long] {
        own.apply(OwnEvent::Exports(export(name, json!([]))));
    }
    let expected = [&*long, "web.shop"].map(|name| ObjectKey::new("shop", name));
    assert_eq!(*own.misnamed(), expected.clone().into());
    let valid = json!([{"type": "Valid", "status": "False", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    own.apply(OwnEvent::Exports(export("web.shop", valid)));
    assert_eq!(*own.misnamed(), expected[..1].iter().cloned().collect());
    let gone = from_value(json!({"metadata": metadata(&long)})).unwrap();
    own.apply(OwnEvent::Exports(ResourceEvent::Deleted(gone)));
    assert!(own.misnamed().is_empty());
}

#[test]
fn what_this_controller_writes_is_no_change_of_a_tenant() {
    let mut own = OwnCluster::new(vec![]);
    let condition = json!({
        "type": "Valid", "status": "True", "reason": "Valid", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    });
    let export = |annotation: &str, conditions: Value| {
        let spec = json!({"exportedAnnotations": {"text": annotation}});
        let status = json!({"conditions": conditions});
        let export = json!({"metadata": metadata("web"), "spec": spec, "status": status});
        OwnEvent::Exports(changed(export))
    };
    for (event, expected) in [
        (export("a", json!([])), true),
        (export("a", json!([condition])), false),
        (export("b", json!([condition])), true),
        (OwnEvent::Imports(ResourceEvent::Recovered), false),
        (OwnEvent::Slices(ResourceEvent::Recovered), true),
    ] {
        assert_eq!(own.is_changed_by_tenant(&event), expected, "{event:?}");
        own.apply(event);
    }
}
