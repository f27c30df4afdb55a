use std::{collections::BTreeMap, net::IpAddr};

use super::{claim::Claim, refusal::Refusal};
use crate::model::{FrontendId, ObjectKey, RejectionReason, ServiceImport};

/// An import that claims something of this node.
#[derive(Clone, Debug)]
pub(super) struct Claimant<'a> {
    pub(super) import: &'a ServiceImport,
    pub(super) claim: Claim,
    pub(super) refusals: Vec<Refusal>,
}

impl Claimant<'_> {
    /// Every frontend it claims, with the index of its port; in the import's order.
    pub(super) fn frontends(&self) -> impl Iterator<Item = (FrontendId, usize)> {
        self.claim.vips.iter().flat_map(|ip| self.frontends_of(*ip))
    }

    /// Every frontend it claims of one of its VIPs, with the index of its port.
    pub(super) fn frontends_of(&self, ip: IpAddr) -> impl Iterator<Item = (FrontendId, usize)> {
        self.claim.ports.iter().enumerate().map(move |(index, port)| {
            (FrontendId { ip, port: port.number, protocol: port.protocol }, index)
        })
    }
}

/// Puts first who has precedence: the older import, then namespace and name. One that does not
/// tell its age comes last.
pub(super) fn sort(claimants: &mut [Claimant<'_>]) {
    claimants.sort_by_key(|Claimant { import, .. }| {
        (import.created.is_none(), import.created, &import.key)
    });
}

/// Who holds each frontend that is claimed: the index of the first claimant.
pub(super) fn holders(claimants: &[Claimant<'_>]) -> BTreeMap<FrontendId, usize> {
    let mut holders = BTreeMap::new();
    for (index, claimant) in claimants.iter().enumerate() {
        for (frontend, _) in claimant.frontends() {
            holders.entry(frontend).or_insert(index);
        }
    }
    holders
}

/// The refusal of a frontend to all who claim it but its holder.
pub(super) fn taken(frontend: FrontendId, holder: &ObjectKey) -> Refusal {
    Refusal::new(
        RejectionReason::FrontendTaken,
        format!(
            "{frontend} is held by ServiceImport {holder}, which is older or comes first by name; \
             give one of them another ClusterSetIP or port"
        ),
    )
}
