//! Which Services rules export.

use serde_json::{Value, json};

use super::*;
use crate::core::{
    apply::{ApplyError, Sent},
    clusterset::{Actual, fixture::name},
    control::{
        Update,
        state::tests::{object, state},
    },
    feature::Features,
    own_cluster::OwnEvent,
};

#[test]
fn services_are_exported_as_rules_say() {
    let (mut state, mut exporter) = (state(), Exporter::new());
    let name = ServiceName::new("shop", "web").unwrap();
    let metadata = |labels| json!({"namespace": "shop", "name": "web", "labels": labels});
    let plan = |state: &mut State, exporter: &mut Exporter| {
        let (plan, mut writes) = (state.plan(&name, Actual::default(), vec![]), vec![]);
        exporter.note_planned(&plan, &mut writes, state);
        writes
    };
    let service =
        json!({"metadata": metadata(json!({"app": "web"})), "spec": {"clusterIP": "10.96.0.1"}});
    state.update(Update::Own(OwnEvent::Services(ResourceEvent::Changed(object(service)))));
    while state.imports.next().is_some() {}
    let rule = json!({"metadata": {"namespace": "shop", "name": "r"}, "spec": {
        "serviceSelector": {"matchLabels": {"app": "web"}},
    }});
    let rules = || ResourceEvent::Listed {
        version: "v1alpha1".to_owned(),
        objects: vec![object(rule.clone())],
    };
    exporter.take(rules(), &mut state);
    assert_eq!(state.imports.next().as_ref(), Some(&name));
    assert_eq!(plan(&mut state, &mut exporter), [Write::CreateExport(name.clone())]);
    let by_us = metadata(json!({"app.kubernetes.io/managed-by": "mcs-controller"}));
    let export = json!({"metadata": by_us});
    state.update(Update::Own(OwnEvent::Exports(ResourceEvent::Changed(object(export)))));
    assert_eq!(plan(&mut state, &mut exporter), []);
    let other = json!({"metadata": metadata(json!({"app": "cart"})), "spec": {}});
    exporter.take(ResourceEvent::NotServed { last_heard: None }, &mut state);
    state.update(Update::Own(OwnEvent::Services(ResourceEvent::Changed(object(other)))));
    assert_eq!(plan(&mut state, &mut exporter), [], "the rules cannot be read");
    exporter.take(rules(), &mut state);
    exporter.forget(&mut state, Instant::now() + std::time::Duration::from_mins(1));
    assert_eq!(plan(&mut state, &mut exporter), [Write::DeleteExport(name.clone())]);
}

#[test]
fn a_rule_exports_no_service_that_stands_for_an_import() {
    let (mut state, mut exporter) = (state(), Exporter::new());
    let metadata = |name: &str| json!({"namespace": "shop", "name": name});
    let everything = object(json!({"metadata": metadata("everything")}));
    let version = "v1".to_owned();
    exporter.take(ResourceEvent::Listed { version, objects: vec![everything] }, &mut state);
    let mut selection = |service: &str, more: &Value| {
        let mut metadata = metadata(service);
        for (field, value) in more.as_object().unwrap() {
            metadata[field] = value.clone();
        }
        let spec = json!({"clusterIP": "10.96.0.1"});
        let service_object = object(json!({"metadata": metadata, "spec": spec}));
        state.update(Update::Own(OwnEvent::Services(ResourceEvent::Changed(service_object))));
        exporter.selection(&ServiceName::new("shop", service).unwrap(), &state.own)
    };
    let owner = |kind: &str| json!({"ownerReferences": [{"apiVersion": "g/v1", "kind": kind, "name": "web", "uid": "u"}]});
    let cilium = json!({"labels": {"multicluster.kubernetes.io/service-name": "web"}});
    let karmada = json!({"labels": {"karmada.io/managed": "true"}});
    let antrea = json!({"annotations": {"multicluster.antrea.io/imported-service": "true"}});
    assert_eq!(selection("web", &json!({})), Selection::Selected);
    assert_eq!(selection("web-2", &owner("Deployment")), Selection::Selected);
    assert_eq!(selection("web-3", &cilium), Selection::Selected, "a label alone is a user's");
    assert_eq!(selection("imported-2c3k1m9q0a", &owner("ServiceImport")), Selection::NotSelected);
    assert_eq!(selection("derived-bsqa4s8pq5", &cilium), Selection::NotSelected);
    assert_eq!(
        selection("web-4", &karmada),
        Selection::Selected,
        "Karmada brings Services of users"
    );
    assert_eq!(selection("derived-web", &karmada), Selection::NotSelected);
    assert_eq!(selection("antrea-mc-web", &antrea), Selection::NotSelected);
}

#[test]
fn only_exports_that_rules_made_go_with_them() {
    let name = name("shop/web");
    let plan = |is_made, selection| plan_export(&name, is_made, selection);
    assert_eq!(plan(None, Selection::Selected), Some(Write::CreateExport(name.clone())));
    assert_eq!(plan(Some(true), Selection::NotSelected), Some(Write::DeleteExport(name.clone())));
    for (is_made, selection) in [
        (None, Selection::NotSelected),
        (None, Selection::Unknown),
        (Some(true), Selection::Selected),
        (Some(true), Selection::Unknown),
        (Some(false), Selection::NotSelected),
    ] {
        assert_eq!(plan(is_made, selection), None, "{is_made:?} {selection:?}");
    }
}

#[test]
fn an_export_that_stays_refused_is_no_news() {
    let mut state = state();
    let name = ServiceName::new("shop", "web").unwrap();
    let service = json!({
        "metadata": {"namespace": "shop", "name": "web", "labels": {"app": "web"}},
        "spec": {"clusterIP": "10.96.0.1"},
    });
    state.update(Update::Own(OwnEvent::Services(ResourceEvent::Changed(object(service)))));
    let rule = json!({"metadata": {"namespace": "shop", "name": "r"}, "spec": {
        "serviceSelector": {"matchLabels": {"app": "web"}},
    }});
    let mut exporter = Exporter::new();
    let objects = vec![object(rule)];
    let version = "v1alpha1".to_owned();
    exporter.take(ResourceEvent::Listed { version, objects }, &mut state);
    let mut features = Features::of(exporter);
    let mut refuse = || {
        while state.imports.next().is_some() {}
        let status = kube::core::Status { code: 403, ..Default::default() };
        let error = ApplyError::Refused(kube::Error::Api(Box::new(status)));
        let writes = features.plan(&name, &mut state);
        assert_eq!(writes, [Write::CreateExport(name.clone())]);
        let refused = writes.into_iter().map(|write| (write, error.to_string())).collect();
        let sent = Sent { failure: Some(error), made: vec![], refused, unsent: vec![] };
        state.note_sent(&name, &sent);
        state.imports.waiting()
    };
    assert_eq!(refuse(), 1, "the status of its export tells of it");
    assert_eq!(refuse(), 0, "it is tried again later alone");
}
