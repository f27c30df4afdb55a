//! Plans the writes for one service.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use mcs_kube::VipRangeList;

use super::State;
use crate::core::{
    clusterset::{
        Actual, ClusterId, Export, Importer, Known, KnownExport, LostVip, ServiceName, SourceRules,
        Stamp, Wanted, WantedImport, export_conditions, export_state, is_exportable, of_audience,
        of_derived, resolve, while_unread,
    },
    mailbox::Outgoing,
    plan::{Write, plan},
};

/// What this cluster has of one service, and what it should have.
pub(crate) struct Planned {
    pub(crate) name: ServiceName,
    pub(crate) actual: Actual,
    pub(crate) wanted: Wanted,
    /// The export of this cluster, whether peers get it or not.
    pub(crate) export: Option<Export>,
    pub(crate) lost: Vec<LostVip>,
    /// The VIPs of the import as last planned.
    pub(crate) former_vips: Option<Vec<IpAddr>>,
}

impl State {
    /// Plans the writes for one service. Changes nothing.
    pub(crate) fn plan(&self, name: &ServiceName, actual: Actual, lost: Vec<LostVip>) -> Planned {
        let outgoing = self.outgoing(name);
        let mut wanted = self.wanted(name, outgoing.as_ref(), &actual, &lost);
        let export = self.own.export(name, &self.cluster);
        if let Some(export) = &export {
            let publication = self.publication(name, outgoing.as_ref());
            let rules = &self.exports;
            let mut conditions = match self.held_back.get(name) {
                Some(conditions) => conditions.clone(),
                None => export_conditions(export, rules, &publication, &wanted.conflicts),
            };
            if wanted.has_unread {
                let former = actual.export_conditions.as_deref();
                conditions = while_unread(conditions, former.unwrap_or_default());
            }
            if outgoing.is_some() {
                conditions.extend(self.not_imported(export, &actual));
            }
            let object = self.own.export_object(name);
            let misnamed = object.map(|export| &*export.misnamed_audience);
            let mut conditions = of_audience(conditions, misnamed.unwrap_or_default());
            if self.own.is_derived(name) {
                conditions = of_derived(conditions);
            }
            let generation = object.and_then(|export| export.generation);
            for condition in &mut conditions {
                condition.generation = generation.filter(|_| !self.lacks_generation);
            }
            wanted.export_conditions = Some(conditions);
        }
        if let (false, WantedImport::Present(_, status)) =
            (self.has_slice_objects != Some(false), &mut wanted.import)
        {
            status.endpoint_slice_objects = None;
        }
        let former_vips = self.planned_vips.get(name).cloned();
        Planned { name: name.clone(), actual, wanted, export, lost, former_vips }
    }

    /// Records a plan in the state. Returns the writes.
    pub(crate) fn note_planned(&mut self, planned: &Planned) -> Vec<Write> {
        let Planned { name, actual, wanted, .. } = planned;
        let mut writes = plan(name, actual, wanted);
        if self.kept_derived.contains_key(name) {
            writes.retain(|write| !matches!(write, Write::DeleteDerivedService(_)));
        }
        self.import_states.note(name, wanted.state());
        self.export_states.note(name, wanted.export_conditions.as_deref().map(export_state));
        // The condition of the peer is about endpoints of imports that are there.
        let is_present = matches!(wanted.import, WantedImport::Present(..));
        if is_present && self.own.import_object(name).is_some() && !wanted.rejected.is_empty() {
            self.rejected.insert(name.clone(), wanted.rejected.clone());
        } else {
            self.rejected.remove(name);
        }
        if wanted.lacks_vips() {
            self.without_vip.insert(name.clone());
        } else {
            self.without_vip.remove(name);
        }
        if wanted.vips().is_empty() {
            self.planned_vips.remove(name);
        } else {
            self.planned_vips.insert(name.clone(), wanted.vips().to_vec());
        }
        self.note_vips(name);
        writes
    }

    #[cfg(test)]
    pub(crate) fn plan_and_note(&mut self, name: &ServiceName) -> Vec<Write> {
        let planned = self.plan(name, self.own.actual(name), vec![]);
        let writes = self.note_planned(&planned);
        self.note_planned_objects(name, &writes);
        writes
    }

    fn wanted(
        &self,
        name: &ServiceName,
        outgoing: Option<&Outgoing>,
        actual: &Actual,
        lost: &[LostVip],
    ) -> Wanted {
        let own_rules = SourceRules { namespaces: self.exports.clone(), ..SourceRules::default() };
        let own = outgoing.map(|outgoing| KnownExport {
            export: &outgoing.export,
            slices: &outgoing.slices,
            rules: &own_rules,
            stamp: Stamp::NONE,
        });
        let peers = self.peers.by_cluster(&self.cluster);
        let mut exports: Vec<_> = own.into_iter().collect();
        let mut incomplete = BTreeSet::new();
        for peer in &peers {
            let believed = peer.view.believed().get(name);
            exports.extend(believed.map(|believed| KnownExport {
                export: &believed.export,
                slices: &believed.slices,
                rules: &peer.rules,
                stamp: believed.stamp.of(peer.mailbox),
            }));
            let is_allowed = peer.rules.namespaces.allows(name.namespace());
            if is_allowed && !peer.view.allows_removal(name) {
                incomplete.insert(peer.object.cluster.clone());
            }
        }
        let unread = self.peers.unread();
        let mut is_unread = |cluster: &ClusterId| {
            let is_named = unread.others || unread.clusters.contains(cluster);
            let is_peer = || peers.iter().any(|peer| peer.object.cluster == *cluster);
            if is_named && *cluster != self.cluster && !is_peer() {
                incomplete.insert(cluster.clone());
            }
        };
        unread.clusters.iter().for_each(&mut is_unread);
        actual.slices.values().for_each(|slice| is_unread(&slice.cluster));
        let import = actual.import.iter();
        import.flat_map(|import| &import.status.clusters).for_each(is_unread);
        let known = Known {
            name,
            has_namespace: self.own.has_namespace(name.namespace()),
            exports: &exports,
            incomplete: &incomplete,
            silent: &self.silent,
            lost,
            refused: self.refusals.of(name),
        };
        let wanted = resolve(&self.importer(), &known, actual, &self.in_use);
        let rules = peers.iter().filter_map(|peer| {
            let (cluster, rules) = (&peer.object.cluster, &peer.rules.endpoints);
            let has_slices = actual.slices.values().any(|slice| slice.cluster == *cluster);
            has_slices.then(|| (cluster.clone(), Arc::clone(rules)))
        });
        Wanted { rules: rules.collect(), ..wanted }
    }

    pub(super) fn importer(&self) -> Importer {
        let told = self.own.present_vip_ranges().map_or(&[][..], VipRangeList::ranges);
        Importer {
            cluster: self.cluster.clone(),
            families: self.own.families(),
            vip_ranges: self.vip_ranges(),
            told_ranges: told.to_vec(),
            reserved: self.own.service_ranges().chain(self.pod_ranges().iter().copied()).collect(),
            adopts: self.settings.adopt,
            creates_namespaces: self.settings.create_namespaces,
            // Without that status, dataplanes leave the import to the derived Service.
            derives_services: self.settings.derived_services
                && self.has_slice_objects == Some(true),
        }
    }

    /// The export of this cluster, if peers get it.
    pub(super) fn outgoing(&self, name: &ServiceName) -> Option<Outgoing> {
        let mut export = self.own.export(name, &self.cluster)?;
        if !is_exportable(&export, &self.exports) || self.held_back.contains_key(name) {
            return None;
        }
        export.vips = self.vips.get(name).cloned().unwrap_or_default();
        let export = export.publishable();
        let slices = self.own.slices(name).cloned().unwrap_or_default();
        Some(Outgoing { export, slices })
    }
}
