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

/// An adopted import `shop/web` with the VIP 10.96.0.9, and the derived Service that has it too.
fn adopted() -> (State, ServiceName) {
    let mut state = state();
    state.own = OwnCluster::new(vec!["10.96.0.0/16".parse().unwrap()]);
    state.settings.adopt = true;
    let metadata = json!({"namespace": "shop", "name": "web", "uid": "u"});
    let service = json!({"metadata": metadata, "spec": {"clusterIP": "10.96.0.1"}});
    let spec = json!({"type": "ClusterSetIP", "ips": ["10.96.0.9"], "ports": []});
    for event in [
        OwnEvent::Namespaces(ResourceEvent::Changed(object(json!({"metadata": {"name": "shop"}})))),
        OwnEvent::Exports(ResourceEvent::Changed(object(json!({"metadata": metadata})))),
        OwnEvent::Services(ResourceEvent::Changed(object(service))),
        OwnEvent::Imports(ResourceEvent::Changed(object(json!({
            "metadata": metadata, "spec": spec,
        })))),
    ] {
        state.update(Update::Own(event));
    }
    derived_changes(&mut state, ResourceEvent::Changed);
    (state, ServiceName::new("shop", "web").unwrap())
}

fn derived_changes(
    state: &mut State,
    event: fn(
        WatchedObject<crate::objects::ServiceDecoder>,
    ) -> ResourceEvent<crate::objects::ServiceDecoder>,
) {
    let labels = json!({"multicluster.kubernetes.io/service-name": "web"});
    let metadata = json!({"namespace": "shop", "name": "derived-x", "labels": labels});
    let spec = json!({"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"]});
    let service = object(json!({"metadata": metadata, "spec": spec}));
    state.update(Update::Own(OwnEvent::Services(event(service))));
}

/// The VIP of the import as it is planned, its reason, and the reasons of the events.
fn planned(state: &mut State, name: &ServiceName) -> (String, String, Vec<String>) {
    while state.imports.next().is_some() {}
    let writes = state.plan_and_note(name);
    let import = writes.iter().find_map(|write| match write {
        Write::ApplyImport(import) => Some(import.ips[0].to_string()),
        _ => None,
    });
    let reason = writes.iter().find_map(|write| match write {
        Write::SetImportStatus(_, status) => Some(status.conditions[0].reason.clone()),
        _ => None,
    });
    let told = state.take_notices().into_iter().map(|notice| notice.reason);
    let mut told: Vec<_> =
        told.filter(|reason| [LostVip::REASON, "AddressChanged"].contains(&&**reason)).collect();
    // The condition `Accepted` says the same.
    told.dedup();
    (import.unwrap(), reason.unwrap(), told)
}

#[test]
fn a_vip_of_the_service_range_stays_while_a_service_has_it() {
    let (mut state, name) = adopted();
    let ready = ("10.96.0.9".to_owned(), "Ready".to_owned(), vec![]);
    assert_eq!(planned(&mut state, &name), ready);
    derived_changes(&mut state, ResourceEvent::Deleted);
    assert_eq!(state.imports.next().as_ref(), Some(&name), "its condition says so");
    let (vip, reason, told) = planned(&mut state, &name);
    assert_eq!((&*vip, &*reason), ("10.96.0.9", LostVip::REASON));
    assert_eq!(told, [LostVip::REASON]);
    derived_changes(&mut state, ResourceEvent::Changed);
    assert_eq!(state.imports.next().as_ref(), Some(&name));
    assert_eq!(planned(&mut state, &name), ready, "it was made again");
    derived_changes(&mut state, ResourceEvent::Deleted);
    planned(&mut state, &name);
    let now = Instant::now();
    state.forget(now);
    assert_eq!(planned(&mut state, &name).0, "10.96.0.9");
    state.forget(now + LostVip::GRACE);
    assert_eq!(state.imports.next().as_ref(), Some(&name));
    let (vip, reason, told) = planned(&mut state, &name);
    assert!(vip.starts_with("241."), "{vip}");
    assert_eq!((&*reason, &*told), ("Ready", &["AddressChanged".to_owned()][..]));
    assert_eq!(planned(&mut state, &name).2, [""; 0], "once");
}

#[test]
fn an_import_that_is_not_taken_over_loses_no_vip() {
    let (mut state, name) = adopted();
    let export = object(json!({"metadata": {"namespace": "shop", "name": "web"}}));
    state.update(Update::Own(OwnEvent::Exports(ResourceEvent::Deleted(export))));
    derived_changes(&mut state, ResourceEvent::Deleted);
    state.plan_and_note(&name);
    let told = state.take_notices();
    assert!(told.iter().all(|notice| notice.reason == "NoPorts"), "nobody exports it: {told:?}");
}

#[test]
fn a_vip_that_a_stranger_has_is_given_up_at_once() {
    for (namespace, waits) in [("bank", false), ("shop", true)] {
        let (mut state, name) = adopted();
        derived_changes(&mut state, ResourceEvent::Deleted);
        if waits {
            planned(&mut state, &name);
        }
        let metadata = json!({"namespace": namespace, "name": "pay"});
        let pay = object(json!({"metadata": metadata, "spec": {"clusterIP": "10.96.0.9"}}));
        while state.imports.next().is_some() {}
        state.update(Update::Own(OwnEvent::Services(ResourceEvent::Changed(pay))));
        assert_eq!(state.imports.next().as_ref(), Some(&name));
        let (vip, _, told) = planned(&mut state, &name);
        assert!(vip.starts_with("241."), "{namespace}: {vip}");
        assert_eq!(told.last().map(String::as_str), Some("AddressChanged"));
    }
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
