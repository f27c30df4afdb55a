use std::{collections::BTreeMap, net::IpAddr};

use super::{allotment::Holding, claim::Claim, refusal::Refusal, service::Service, slice::Offers};
use crate::{
    model::{NodeContext, ObjectKey, Rejection, ServiceImport},
    store::Snapshot,
};

/// How an import stands that claims something, before its endpoints are looked at.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) claim: Claim,
    pub(super) holding: Holding,
    /// What was turned down of its claim.
    pub(super) refusals: Vec<Refusal>,
}

impl Standing {
    /// Gives it the backends that its slices offer. Tells what is turned down of the slices.
    pub(super) fn serve<'a>(
        &self,
        import: &'a ServiceImport,
        snapshot: &Snapshot,
        vips: &BTreeMap<IpAddr, ObjectKey>,
        node: &NodeContext,
    ) -> (Service<'a>, Vec<Rejection>) {
        let (offers, rejections) = Offers::read(snapshot.slices(&import.key), vips);
        (Service::new(import, self, &offers, node), rejections)
    }
}
