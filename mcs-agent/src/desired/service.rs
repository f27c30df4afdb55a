use std::collections::{BTreeMap, BTreeSet};

use super::{endpoint::Family, refusal::Refusal, selection, slice::Offers, standing::Standing};
use crate::model::{Backend, Frontend, FrontendId, NodeContext, ServiceImport};

/// An import with what it has been given.
#[derive(Debug)]
pub(super) struct Service<'a> {
    pub(super) import: &'a ServiceImport,
    pub(super) frontends: Vec<(FrontendId, Frontend)>,
    /// As in [`super::allotment::Holding`].
    pub(super) has_vip: bool,
    pub(super) has_slices: bool,
    /// What is turned down of the import itself, not of its slices.
    pub(super) refusals: Vec<Refusal>,
}

impl<'a> Service<'a> {
    /// Gives the frontends that an import holds their backends.
    pub(super) fn new(
        import: &'a ServiceImport,
        standing: &Standing,
        offers: &Offers<'_>,
        node: &NodeContext,
    ) -> Self {
        let Standing { claim, holding, refusals } = standing;
        // VIPs of one family share the backends of a port.
        let mut backends: BTreeMap<(usize, Family), Vec<Backend>> = BTreeMap::new();
        let frontends = holding
            .frontends
            .iter()
            .map(|&(id, index)| {
                let (port, family) = (&claim.ports[index], Family::of(id.ip));
                let backends = backends.entry((index, family)).or_insert_with(|| {
                    selection::backends(offers.candidates(port, family), claim.policy, node)
                });
                let frontend = Frontend {
                    import: import.key.clone(),
                    port_name: port.name.clone(),
                    affinity_seconds: claim.affinity_seconds,
                    backends: backends.clone(),
                };
                (id, frontend)
            })
            .collect();
        Self {
            import,
            frontends,
            has_vip: holding.has_vip,
            has_slices: offers.has_slices,
            refusals: refusals.clone(),
        }
    }

    /// The source cluster of every backend; some more than once.
    pub(super) fn clusters(&self) -> impl Iterator<Item = &str> {
        self.frontends
            .iter()
            .flat_map(|(_, frontend)| frontend.clusters())
            .map(|(cluster, _)| &**cluster)
    }

    /// Takes away the backends of these source clusters.
    pub(super) fn drop_clusters(&mut self, clusters: &BTreeSet<String>) {
        for (_, frontend) in &mut self.frontends {
            frontend.backends.retain(|backend| !clusters.contains(&*backend.cluster));
        }
    }
}
