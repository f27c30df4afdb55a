//! Which ranges of ClusterSetIPs agents are told.

use mcs_kube::ResourceEvent;
use serde_json::json;

use super::*;
use crate::core::{
    clusterset::VipRanges,
    control::{
        Update,
        state::tests::{object, property, state},
    },
    own_cluster::OwnEvent,
};

const PROPERTY: &str = "vip-ranges.clusterset.mcs-agent.io";

fn ranges(state: &State) -> String {
    let VipRanges { v4, v6 } = state.vip_ranges();
    format!("{v4},{v6}")
}

/// Who writes an import.
const US: &str = "mcs-controller";
const OTHERS: &str = "another-controller";

/// The cluster has this import, and no other of the name.
fn import(state: &mut State, name: &str, manager: &str, vip: &str) {
    let metadata = json!({"namespace": "shop", "name": name, "labels": {
        "app.kubernetes.io/managed-by": manager,
    }});
    let spec = json!({"type": "ClusterSetIP", "ips": [vip], "ports": []});
    let import = object(json!({"metadata": metadata, "spec": spec}));
    state.update(Update::Own(OwnEvent::Imports(ResourceEvent::Changed(import))));
}

fn deleted(state: &mut State, name: &str) {
    let import = object(json!({"metadata": {"namespace": "shop", "name": name}, "spec": {}}));
    state.update(Update::Own(OwnEvent::Imports(ResourceEvent::Deleted(import))));
}

/// What agents are told next, and are told from then on; nothing if that is what they were told.
fn told(state: &mut State) -> String {
    let Some(ranges) = wanted(state, true).unwrap() else { return String::new() };
    property(state, PROPERTY, &ranges.to_value());
    assert_eq!(wanted(state, true), Ok(None));
    ranges.to_value()
}

#[test]
fn a_range_stays_as_long_as_an_import_has_an_address_of_it() {
    let mut state = state();
    let default = ranges(&state);
    assert_eq!(told(&mut state), default);
    import(&mut state, "web", US, "241.0.0.9");
    assert_eq!(told(&mut state), "", "of the ranges");
    state.settings.vip_ranges = vec!["242.0.0.0/8".parse().unwrap()];
    let v6 = state.vip_ranges().v6;
    assert_eq!(told(&mut state), format!("241.0.0.0/8,242.0.0.0/8,{v6}"));
    import(&mut state, "web", US, "242.0.0.9");
    assert_eq!(told(&mut state), ranges(&state));
    property(&mut state, PROPERTY, "nonsense");
    assert_eq!(told(&mut state), ranges(&state), "whoever wrote that");
}

#[test]
fn addresses_of_another_controller_outside_hold_the_first_ranges_back_and_no_others() {
    let mut state = state();
    import(&mut state, "web", OTHERS, "10.96.0.9");
    let why = wanted(&state, true).unwrap_err();
    assert!(why.contains("ServiceImport shop/web of another controller has 10.96.0.9"), "{why}");
    deleted(&mut state, "web");
    assert_eq!(told(&mut state), ranges(&state));
    import(&mut state, "web", OTHERS, "10.96.0.9");
    assert_eq!(told(&mut state), "", "nobody gets an address of his own choice");
    import(&mut state, "web", US, "10.96.0.9");
    assert_eq!(told(&mut state), "", "its label alone says so");
    state.settings.adopt = true;
    let default = ranges(&state);
    assert_eq!(told(&mut state), format!("10.96.0.9/32,{default}"), "it was adopted");
    deleted(&mut state, "web");
    assert_eq!(told(&mut state), default);
}

#[test]
fn imports_of_others_are_judged_again_when_the_ranges_change() {
    let mut state = state();
    let web = ServiceName::new("shop", "web").unwrap();
    import(&mut state, "web", OTHERS, "10.96.0.9");
    while state.imports.next().is_some() {}
    for (value, is_judged) in [("241.0.0.0/8", true), ("241.0.0.0/8", false), ("10.0.0.0/8", true)]
    {
        property(&mut state, PROPERTY, value);
        let judged = state.imports.next();
        assert_eq!(judged, is_judged.then(|| web.clone()), "{value}");
    }
}

#[test]
fn a_controller_that_tells_no_ranges_lifts_those_of_an_earlier_one() {
    let mut state = state();
    assert_eq!(wanted(&state, false), Ok(None));
    property(&mut state, PROPERTY, "241.0.0.0/8");
    assert_eq!(wanted(&state, false).unwrap().unwrap().to_value(), "0.0.0.0/0,::/0");
}
