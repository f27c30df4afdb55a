//! What becomes of a VIP that no import asks for any more.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{full_round::Evaluation, vip};
use crate::{
    model::{Departure, DesiredState, FrontendId, Kind, NodeContext, ObjectRef, Protocol},
    store::Snapshot,
};

/// The VIPs in force that the latest round does not serve.
///
/// An address is refused only if nobody else can have it. `former`: the round before, which knows the derived
/// Services of imports that were deleted.
pub(super) fn departures(
    former: &Evaluation,
    latest: &Evaluation,
    snapshot: &Snapshot,
    node: &NodeContext,
    in_force: &DesiredState,
) -> BTreeMap<IpAddr, Departure> {
    let gone: Vec<IpAddr> = in_force.vips.difference(&latest.desired.vips).copied().collect();
    if gone.is_empty() {
        return BTreeMap::new();
    }
    let derived: BTreeSet<IpAddr> = former
        .claims
        .values()
        .filter(|claim| claim.has_derived_service)
        .flat_map(|claim| &claim.claim.vips)
        .copied()
        .collect();
    let listed = listed(snapshot);
    let endpoints = endpoints(&latest.desired);
    let is_taken = |ip| {
        derived.contains(&ip)
            || listed.contains(&ip)
            || endpoints.contains(&ip)
            || may_be_taken(ip, node)
            || is_unreadable(ip, snapshot, in_force)
    };
    let departure = |ip| if is_taken(ip) { Departure::HandedBack } else { Departure::Gone };
    gone.into_iter().map(|ip| (ip, departure(ip))).collect()
}

/// The addresses that imports list, also those that are left alone or rejected.
pub(super) fn listed(snapshot: &Snapshot) -> BTreeSet<IpAddr> {
    let ips = snapshot.imports().flat_map(|import| &import.ips);
    ips.filter_map(|ip| ip.parse().ok()).collect()
}

/// The addresses of backends: pods have them.
pub(super) fn endpoints(desired: &DesiredState) -> BTreeSet<IpAddr> {
    let backends = desired.frontends.values().flat_map(|frontend| &frontend.backends);
    backends.map(|backend| backend.address.ip()).collect()
}

/// Whether something other than an import can have the address.
pub(super) fn may_be_taken(ip: IpAddr, node: &NodeContext) -> bool {
    node.may_be_service(ip) || !vip::is_allowed(ip, node)
}

/// Whether an import that served the address cannot be read any more.
fn is_unreadable(ip: IpAddr, snapshot: &Snapshot, in_force: &DesiredState) -> bool {
    let first = FrontendId { ip, port: 0, protocol: Protocol::Tcp };
    let frontends = in_force.frontends.range(first..).take_while(|(id, _)| id.ip == ip);
    frontends.map(|(_, frontend)| &frontend.import).any(|import| {
        let object = ObjectRef { kind: Kind::ServiceImport, key: import.clone() };
        snapshot.problem(&object).is_some()
    })
}
