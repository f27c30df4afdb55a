//! Which VIPs imports have, keep and lose.

use super::*;

#[test]
fn a_vip_that_is_planned_is_not_given_away_before_its_import_is_read() {
    let mut state = state();
    // Two addresses.
    state.settings.vip_ranges = vec!["241.0.0.0/30".parse().unwrap()];
    let export = |state: &mut State, name: &str| {
        let metadata = json!({"namespace": "shop", "name": name});
        let export = object(json!({"metadata": metadata}));
        let service = object(json!({"metadata": metadata, "spec": {"clusterIP": "10.96.0.1"}}));
        state.update(Update::Own(OwnEvent::Exports(ResourceEvent::Changed(export))));
        state.update(Update::Own(OwnEvent::Services(ResourceEvent::Changed(service))));
    };
    let vips = |state: &mut State, name: &str| {
        let writes = state.plan_and_note(&ServiceName::new("shop", name).unwrap());
        let import = writes.into_iter().find_map(|write| match write {
            Write::ApplyImport(import) => Some(import),
            _ => None,
        });
        import.unwrap().ips
    };
    let namespace = object(json!({"metadata": {"name": "shop"}}));
    state.update(Update::Own(OwnEvent::Namespaces(ResourceEvent::Changed(namespace))));
    export(&mut state, "web");
    let planned = vips(&mut state, "web");
    assert_eq!(planned.len(), 1);
    let slice = object(json!({
        "metadata": {"namespace": "shop", "name": "web-east-x", "labels": {
            "endpointslice.kubernetes.io/managed-by": "mcs-controller",
            "multicluster.kubernetes.io/service-name": "web",
            "multicluster.kubernetes.io/source-cluster": "east",
        }},
        "addressType": "IPv4", "endpoints": [], "ports": [],
    }));
    state.update(Update::Own(OwnEvent::ImportedSlices(ResourceEvent::Changed(slice))));
    for other in ["cart", "pay"] {
        export(&mut state, other);
        assert_ne!(vips(&mut state, other), planned, "{other}");
    }
    let gone = object(json!({"metadata": {"namespace": "shop", "name": "web"}}));
    state.update(Update::Own(OwnEvent::Exports(ResourceEvent::Deleted(gone))));
    state.plan_and_note(&ServiceName::new("shop", "web").unwrap());
    assert_eq!(vips(&mut state, "pay"), planned, "nobody wants it any more");
}

#[test]
fn imports_that_share_a_vip_say_so_until_one_has_another() {
    let mut state = state();
    let namespace = object(json!({"metadata": {"name": "shop"}}));
    state.update(Update::Own(OwnEvent::Namespaces(ResourceEvent::Changed(namespace))));
    let mut import = |name: &str, vip: &str| {
        let metadata = json!({"namespace": "shop", "name": name});
        for event in [
            OwnEvent::Exports(ResourceEvent::Changed(object(json!({"metadata": metadata})))),
            OwnEvent::Services(ResourceEvent::Changed(object(
                json!({"metadata": metadata, "spec": {"clusterIP": "10.96.0.1"}}),
            ))),
            OwnEvent::Imports(ResourceEvent::Changed(object(json!({
                "metadata": {"namespace": "shop", "name": name, "labels": {
                    "app.kubernetes.io/managed-by": "mcs-controller",
                }},
                "spec": {"type": "ClusterSetIP", "ips": [vip], "ports": []},
            })))),
        ] {
            state.update(Update::Own(event));
        }
        // Every service that waits, with its reason.
        let mut reasons = BTreeMap::new();
        while let Some(name) = state.imports.next() {
            let writes = state.plan_and_note(&name);
            let status = writes.iter().find_map(|write| match write {
                Write::SetImportStatus(_, status) => Some(status),
                _ => None,
            });
            let reason = status.unwrap().conditions[0].reason.clone();
            reasons.insert(name.name().to_owned(), reason);
        }
        reasons.into_iter().map(|(name, reason)| format!("{name}={reason}")).collect::<Vec<_>>()
    };
    assert_eq!(import("cart", "241.0.0.1"), ["cart=Ready"]);
    assert_eq!(import("web", "241.0.0.1"), ["cart=AddressShared", "web=AddressShared"]);
    assert_eq!(import("web", "241.0.0.2"), ["cart=Ready", "web=Ready"]);
}
