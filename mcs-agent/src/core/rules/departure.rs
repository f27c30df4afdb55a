//! What becomes of a VIP that no import asks for any more.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{full_round::Evaluation, vip};
use crate::core::{
    model::{Departure, DesiredState, Kind, NodeContext, ObjectRef},
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
        .flat_map(|claim| &claim.vips)
        .copied()
        .collect();
    let others = Others::new(snapshot, &latest.desired, node);
    let is_taken =
        |ip| derived.contains(&ip) || others.may_have(ip) || is_unreadable(ip, snapshot, in_force);
    let departure = |ip| if is_taken(ip) { Departure::HandedBack } else { Departure::Gone };
    gone.into_iter().map(|ip| (ip, departure(ip))).collect()
}

/// The addresses that somebody else than the agent can have.
pub(super) struct Others<'a> {
    /// The addresses of all imports, also of imports that are left alone or rejected.
    listed: BTreeSet<IpAddr>,
    /// The addresses of backends: pods have them.
    endpoints: BTreeSet<IpAddr>,
    node: &'a NodeContext,
}

impl<'a> Others<'a> {
    pub(super) fn new(snapshot: &Snapshot, desired: &DesiredState, node: &'a NodeContext) -> Self {
        let ips = snapshot.imports().flat_map(|import| &import.ips);
        let backends = desired.frontends.values().flat_map(|frontend| &frontend.backends);
        Self {
            listed: ips.filter_map(|ip| ip.parse().ok()).collect(),
            endpoints: backends.map(|backend| backend.address.ip()).collect(),
            node,
        }
    }

    /// Whether anything but a served import can have the address.
    pub(super) fn may_have(&self, ip: IpAddr) -> bool {
        self.listed.contains(&ip)
            || self.endpoints.contains(&ip)
            || self.node.may_be_service(ip)
            || !vip::is_allowed(ip, self.node)
    }
}

/// Whether an import that served the address cannot be read any more.
fn is_unreadable(ip: IpAddr, snapshot: &Snapshot, in_force: &DesiredState) -> bool {
    in_force.frontends_of(ip).map(|frontend| &frontend.import).any(|import| {
        let object = ObjectRef { kind: Kind::ServiceImport, key: import.clone() };
        snapshot.problem(&object).is_some()
    })
}
