//! Short ways to write desired states, for unit tests.

use std::net::IpAddr;

use super::{Planned, Pruning, Realized, apply, plan, testing::MemoryMaps};
use crate::core::model::{
    Backend, Capacity, DesiredState, Frontend, FrontendId, ObjectKey, Protocol,
};

/// A TCP frontend.
pub(crate) fn id(ip: &str, port: u16) -> FrontendId {
    FrontendId { ip: address(ip), port, protocol: Protocol::Tcp }
}

/// A frontend of `demo/<import>`, with backends by address and cluster.
pub(crate) fn frontend(import: &str, backends: &[(&str, &str)]) -> Frontend {
    let backend = |(address, cluster): &(&str, &str)| Backend {
        address: address.parse().expect("an address and port"),
        cluster: (*cluster).into(),
    };
    Frontend::plain(ObjectKey::new("demo", import), backends.iter().map(backend).collect())
}

/// These frontends and their VIPs.
pub(crate) fn desired<const N: usize>(frontends: [(FrontendId, Frontend); N]) -> DesiredState {
    let vips = frontends.iter().map(|(id, _)| id.ip).collect();
    DesiredState { vips, frontends: frontends.into(), ..DesiredState::default() }
}

/// One frontend of `demo/<import>` on 10.0.0.1:80.
pub(crate) fn web(import: &str, backends: &[(&str, &str)]) -> DesiredState {
    desired([(id("10.0.0.1", 80), frontend(import, backends))])
}

/// `count` backends of no cluster, from 10.1.<network>.0 on.
pub(crate) fn pods(network: u8, count: u8) -> Vec<Backend> {
    let pod = |n| Backend { address: ([10, 1, network, n], 80).into(), cluster: "".into() };
    (0..count).map(pod).collect()
}

pub(crate) fn address(ip: &str) -> IpAddr {
    ip.parse().expect("an address")
}

/// New maps and their realized state, after each of these desired states in turn.
pub(crate) fn maps(capacity: Capacity, wanted: &[&DesiredState]) -> (MemoryMaps, Realized) {
    let mut maps = MemoryMaps::new(capacity);
    let mut realized = Realized::empty(capacity);
    for desired in wanted {
        go(desired, &mut maps, &mut realized);
    }
    (maps, realized)
}

/// Writes the desired state. Returns the steps, with their maps.
pub(crate) fn go(
    desired: &DesiredState,
    maps: &mut MemoryMaps,
    realized: &mut Realized,
) -> Vec<String> {
    let plan = plan(desired, realized, Pruning::On);
    assert_eq!(plan.deferred, []);
    let steps = plan.steps.clone();
    apply(Planned::after(plan.steps, realized), maps, realized).expect("no fault");
    steps.iter().map(|step| format!("{}: {step}", step.map().unwrap_or("all"))).collect()
}
