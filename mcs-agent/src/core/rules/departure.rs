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
    let gone: BTreeSet<IpAddr> = &in_force.vips - &latest.desired.vips;
    if gone.is_empty() {
        return BTreeMap::new();
    }
    let derived = former.claims.values().filter(|claim| claim.has_derived_service);
    let derived = derived.flat_map(|claim| &claim.vips).copied();
    let unreadable = gone.iter().filter(|ip| is_unreadable(**ip, snapshot, in_force)).copied();
    let taken = derived.chain(unreadable).collect();
    of_gone(&gone, &taken, snapshot, &latest.desired, node)
}

/// What becomes of VIPs that nobody has in `desired`. `taken`: somebody else is known to have these.
pub(super) fn of_gone(
    gone: &BTreeSet<IpAddr>,
    taken: &BTreeSet<IpAddr>,
    snapshot: &Snapshot,
    desired: &DesiredState,
    node: &NodeContext,
) -> BTreeMap<IpAddr, Departure> {
    if gone.is_empty() {
        return BTreeMap::new();
    }
    let others = Others::new(gone, snapshot, desired, node);
    let is_taken = |ip| taken.contains(&ip) || others.may_have(ip);
    let departure = |ip| if is_taken(ip) { Departure::HandedBack } else { Departure::Gone };
    gone.iter().map(|ip| (*ip, departure(*ip))).collect()
}

/// Which of some addresses somebody else than the agent can have.
pub(super) struct Others<'a> {
    /// Imports list them, also imports that are left alone or rejected; or backends have them: those are of pods.
    in_use: BTreeSet<IpAddr>,
    node: &'a NodeContext,
}

impl<'a> Others<'a> {
    pub(super) fn new(
        ips: &BTreeSet<IpAddr>,
        snapshot: &Snapshot,
        desired: &DesiredState,
        node: &'a NodeContext,
    ) -> Self {
        let listed = snapshot.imports().flat_map(|import| &import.ips);
        let listed = listed.filter_map(|ip| ip.parse().ok());
        let mut in_use: BTreeSet<IpAddr> = listed.filter(|ip| ips.contains(ip)).collect();
        if ips.iter().any(|ip| snapshot.can_be_endpoint(*ip)) {
            let backends = desired.frontends.values().flat_map(|frontend| &frontend.backends);
            let backends = backends.map(|backend| backend.address.ip());
            in_use.extend(backends.filter(|ip| ips.contains(ip)));
        }
        Self { in_use, node }
    }

    /// Whether anything but a served import can have the address.
    pub(super) fn may_have(&self, ip: IpAddr) -> bool {
        self.in_use.contains(&ip) || self.node.may_be_service(ip) || !vip::is_allowed(ip, self.node)
    }
}

/// Whether an import that served the address cannot be read any more.
fn is_unreadable(ip: IpAddr, snapshot: &Snapshot, in_force: &DesiredState) -> bool {
    in_force.frontends_of(ip).map(|frontend| &frontend.import).any(|import| {
        let object = ObjectRef { kind: Kind::ServiceImport, key: import.clone() };
        snapshot.problem(&object).is_some()
    })
}
