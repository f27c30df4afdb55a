//! Decides which objects of one service this cluster should have.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use mcs_kube::reasons::Rejection;

use super::{
    Actual, ActualDerived, ActualImport, ActualSlice, ClusterId, Condition, ConditionStatus,
    ConditionType, Conflict, CopyRules, EndpointCount, EndpointRules, EndpointSliceObjects, Export,
    Import, ImportStatus, ImportedSlice, IpFamily, LostVip, Merged, NamespaceRules, Owner, Refused,
    ServiceName, ServiceSpec, ServiceType, SliceCopier, SourceSlice, Stamp, VipRanges, VipsInUse,
    acceptance,
    endpoints::Endpoints,
    export_status::{import_conflict, in_import},
    memo::Copied,
    merge,
    readiness::{of_silent, readiness, with_endpoints},
    vips::VipSources,
};

/// The cluster that imports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Importer {
    /// Its id.
    pub cluster: ClusterId,
    /// The IP families of its Services.
    pub families: Vec<IpFamily>,
    /// Where new VIPs come from.
    pub vip_ranges: VipRanges,
    /// The VIP ranges that agents were told; empty: none, so they accept any address.
    pub told_ranges: Vec<IpNet>,
    /// Addresses that no new VIP can have: the ranges of the cluster's Services, and the known ranges of its pods.
    pub reserved: Vec<IpNet>,
    /// Whether ServiceImports of others become this controller's. They keep their VIPs.
    pub adopts: bool,
    /// Whether namespaces are created for services of peers.
    pub creates_namespaces: bool,
    /// Whether imports get derived Services.
    pub derives_services: bool,
}

/// What this cluster accepts from a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceRules {
    /// The namespaces that it can export.
    pub namespaces: NamespaceRules,
    /// The addresses of its endpoints.
    pub endpoints: Arc<EndpointRules>,
}

/// The export of one cluster, with what is known of its slices.
#[derive(Clone, Copy, Debug)]
pub struct KnownExport<'a> {
    /// The export.
    pub export: &'a Export,
    /// The slices of its Service, by their names.
    pub slices: &'a BTreeMap<Arc<str>, Arc<SourceSlice>>,
    /// What this cluster accepts from the exporting one.
    pub rules: &'a SourceRules,
    /// When the export was written to the mailbox.
    pub stamp: Stamp,
}

/// What is known of one service.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The service.
    pub name: &'a ServiceName,
    /// Whether this cluster has the namespace.
    pub has_namespace: bool,
    /// All exports, one for each cluster, whether they reach this cluster or not.
    pub exports: &'a [KnownExport<'a>],
    /// Incomplete clusters: they may export more than is known, because a list or their publication is incomplete. Former
    /// peers are not among them.
    pub incomplete: &'a BTreeSet<ClusterId>,
    /// Clusters that give no sign of life: what they contribute is old.
    pub silent: &'a BTreeSet<ClusterId>,
    /// VIPs that the import loses.
    pub lost: &'a [LostVip],
    /// What the API server of this cluster refuses.
    pub refused: &'a Refused,
}

/// What this cluster should have of one service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The ServiceImport.
    pub import: WantedImport,
    /// The slices, by `metadata.name`.
    pub slices: BTreeMap<Arc<str>, WantedSlice>,
    /// When the export of each cluster was written. Slices that are newer than their export stay: the export is from a
    /// backup.
    pub stamps: BTreeMap<ClusterId, Stamp>,
    /// Clusters whose slices stay although they are not in `slices`, because the clusters are incomplete.
    pub keep: BTreeSet<ClusterId>,
    /// The rules for endpoints of peers. They apply to slices that stay, too. The caller sets them for peers with slices.
    pub rules: BTreeMap<ClusterId, Arc<EndpointRules>>,
    /// The endpoints of each cluster that was read.
    pub endpoints: BTreeMap<ClusterId, EndpointCount>,
    /// What the clusters disagree about.
    pub conflicts: Vec<Conflict>,
    /// Whether a cluster that contributes is unread: it may disagree about more.
    pub has_unread: bool,
    /// The number of rejected endpoints by cluster and reason.
    pub rejected: BTreeMap<(ClusterId, Rejection), usize>,
    /// Whether peers export the service to this cluster, which lacks the namespace.
    pub lacks_namespace: bool,
    /// Whether the controller has to create the namespace first.
    pub needs_namespace: bool,
    /// `status.conditions` of the ServiceExport, if this cluster has one. The caller sets it.
    pub export_conditions: Option<Vec<Condition>>,
    /// The condition `Accepted`, if another controller writes the ServiceImport.
    pub accepted: Option<Condition>,
    /// What the API server of this cluster refuses: the plan does not wait for it.
    pub refused: Refused,
}

/// A slice that a cluster should have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WantedSlice {
    /// [`ImportedSlice::fingerprint`].
    pub fingerprint: u64,
    /// When the original was written to the mailbox.
    pub stamp: Stamp,
    /// The slice; `None`: the cluster has it.
    pub copy: Option<Box<ImportedSlice>>,
}

/// The ServiceImport that a cluster should have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WantedImport {
    /// No export reaches the cluster, or it lacks the namespace.
    Absent,
    /// The present one: another controller writes it. Present copies of slices stay up to date until clients do without
    /// them, and no copy is added.
    LeftAlone,
    /// This one.
    Present(Box<Import>, ImportStatus),
}

impl Wanted {
    fn with_import(import: WantedImport, known: &Known<'_>) -> Self {
        Self {
            import,
            slices: BTreeMap::new(),
            stamps: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            keep: known.incomplete.clone(),
            rules: BTreeMap::new(),
            conflicts: vec![],
            has_unread: false,
            rejected: BTreeMap::new(),
            lacks_namespace: false,
            needs_namespace: false,
            export_conditions: None,
            accepted: None,
            refused: known.refused.clone(),
        }
    }

    /// The VIPs of the ServiceImport. The caller adds them to [`VipsInUse`], and publishes them with the
    /// cluster's own export.
    pub fn vips(&self) -> &[IpAddr] {
        match &self.import {
            WantedImport::Present(import, _) => &import.ips,
            WantedImport::Absent | WantedImport::LeftAlone => &[],
        }
    }

    /// The import, if it has a derived Service.
    pub fn derived(&self) -> Option<&Import> {
        match &self.import {
            WantedImport::Present(import, _) if import.has_derived_service => Some(import),
            _ => None,
        }
    }

    /// Whether a conflict keeps endpoints from the import.
    pub(super) fn loses_endpoints(&self) -> bool {
        self.conflicts.iter().flat_map(|conflict| &conflict.losses).any(|loss| loss.endpoints > 0)
    }

    /// Whether a VIP of the import has to become free first.
    pub fn lacks_vips(&self) -> bool {
        let WantedImport::Present(import, _) = &self.import else { return false };
        let needs_vips = import.spec.service_type == ServiceType::ClusterSetIp;
        needs_vips && import.ips.len() < import.spec.ip_families.len()
    }
}

/// The order in which services get their VIPs, so that two services with one hash get the same VIPs in every cluster. None
/// if nothing is exported.
pub fn vip_order<'a>(exports: &[KnownExport<'a>]) -> Option<impl Ord + use<'a>> {
    exports.iter().map(|known| (known.export.precedence(), &known.export.name)).min()
}

/// Decides about one service. Equal exports give equal imports in every cluster, up to its IP families.
pub fn resolve(
    importer: &Importer,
    known: &Known<'_>,
    actual: &Actual,
    in_use: &VipsInUse,
) -> Wanted {
    let mut wanted = decide(importer, known, actual, in_use);
    // No agent serves a record.
    let is_of_another =
        |current: &&ActualImport| current.owner == Owner::Other && !current.is_record;
    let of_another = actual.import.as_ref().filter(is_of_another);
    if let Some(current) =
        of_another.filter(|_| !matches!(wanted.import, WantedImport::Present(..)))
    {
        let told = &importer.told_ranges;
        wanted.accepted = acceptance::of_another(&current.import, in_use, told);
    }
    wanted
}

fn decide(importer: &Importer, known: &Known<'_>, actual: &Actual, in_use: &VipsInUse) -> Wanted {
    let current = actual.import.as_ref();
    if !known.has_namespace {
        let wanted = Wanted::with_import(WantedImport::Absent, known);
        let lacks_namespace = is_of_peers(importer, known);
        let needs_namespace = lacks_namespace && importer.creates_namespaces;
        return Wanted { lacks_namespace, needs_namespace, ..wanted };
    }
    let accepted = accepted(importer, known);
    let exports = accepted.iter().map(|known| known.export);
    let record = record(importer, known, actual);
    let ours = current.filter(|current| importer.may_write(current));
    let living = ours.map_or(&[][..], |current| &current.import.spec.ip_families);
    let Some(mut merged) = merge(exports, record.spec, living) else {
        return Wanted::with_import(WantedImport::Absent, known);
    };
    let stamps = accepted.iter().map(|known| (known.export.cluster.clone(), known.stamp)).collect();
    let supported = own_families(&mut merged.spec, importer);
    // A Service of that name by another writer stays.
    let is_free = actual.derived.as_ref().is_none_or(ActualDerived::is_ours);
    let derives = importer.derives_services && is_free;
    let (slices, rejected, endpoints) =
        copies(importer, known, &merged, &accepted, derives, &actual.slices);
    endpoints.weigh(&mut merged.conflicts);
    let conflicts = std::mem::take(&mut merged.conflicts);
    if current.is_some_and(|current| !importer.may_write(current)) {
        let wanted = Wanted::with_import(WantedImport::LeftAlone, known);
        return left_alone(Wanted { slices, stamps, conflicts, ..wanted }, actual);
    }
    let vips = VipSources {
        ranges: &importer.vip_ranges,
        reserved: &importer.reserved,
        in_use,
        existing: current.map_or(&[], |current| &current.import.ips),
        lost: known.lost,
        preferred: &exporters_vips(&accepted),
    };
    let (mut import, ready) = import(known.name, &merged, supported, &vips);
    // Dataplanes leave an import without slices to its derived Service, which has no address. Present slices lead to the
    // Service only if the import already names it.
    let has_kept = || actual.slices.values().any(|slice| known.incomplete.contains(&slice.cluster));
    let is_named = current.is_some_and(|current| current.import.has_derived_service);
    import.has_derived_service = derives && (!slices.is_empty() || is_named && has_kept());
    let conflict = conflict(current, &record, &accepted, &conflicts, &endpoints);
    // Slices of unread clusters stay; whether their endpoints are ready is unknown.
    let is_kept = actual.slices.iter().any(|(name, slice)| {
        !slices.contains_key(name) && known.incomplete.contains(&slice.cluster)
    });
    let counted = if record.clusters.is_empty() && !is_kept && !is_past(&slices, actual) {
        Some(endpoints.condition(&merged, in_import))
    } else {
        said(current, ConditionType::EndpointsReady)
    };
    let accepted = acceptance::of_own(&ready, counted.as_ref());
    let clusters: BTreeSet<_> =
        merged.contributions.into_keys().chain(record.clusters.iter().cloned()).collect();
    let ready = with_endpoints(of_silent(ready, &clusters, known.silent), counted.as_ref());
    let is_ready = ready.status == ConditionStatus::True;
    let ready = known.refused.condition().filter(|_| is_ready).unwrap_or(ready);
    let conditions = [ready].into_iter().chain(conflict).chain(counted);
    let status = ImportStatus {
        clusters,
        endpoint_slice_objects: Some(EndpointSliceObjects::Present),
        conditions: conditions.chain([accepted]).collect(),
        tiers: None,
    };
    let wanted = Wanted::with_import(WantedImport::Present(Box::new(import), status), known);
    let has_unread = !record.clusters.is_empty();
    let endpoints = endpoints.counts();
    Wanted { slices, stamps, endpoints, conflicts, has_unread, rejected, ..wanted }
}

/// What stays of an import that another controller has taken over: its present copies, until clients do without them. A part
/// of the clusters beside the other's slices would give these clusters more than their share.
fn left_alone(mut wanted: Wanted, actual: &Actual) -> Wanted {
    let stays = |cluster: &ClusterId| !actual.has_replaced(cluster);
    wanted.slices.retain(|name, _| actual.slices.get(name).is_some_and(|now| stays(&now.cluster)));
    wanted.stamps.retain(|cluster, _| stays(cluster));
    wanted.keep.retain(stays);
    wanted
}

/// The condition `Conflict` of the import. It stays while a cluster is unreadable: its conflicts are unknown, and each
/// change of the import costs every node.
fn conflict(
    current: Option<&ActualImport>,
    record: &Record<'_>,
    accepted: &[KnownExport<'_>],
    conflicts: &[Conflict],
    endpoints: &Endpoints,
) -> Option<Condition> {
    if !record.clusters.is_empty() {
        return said(current, ConditionType::ImportConflict);
    }
    if record.spec.is_none() {
        return import_conflict(conflicts);
    }
    // The record ends with this write of the status.
    let living = current.map_or(&[][..], |current| &current.import.spec.ip_families);
    let merged = merge(accepted.iter().map(|known| known.export), None, living);
    merged.and_then(|mut merged| {
        endpoints.weigh(&mut merged.conflicts);
        import_conflict(&merged.conflicts)
    })
}

/// Whether the cluster has newer slices than the known export: the export is from a backup.
fn is_past(slices: &BTreeMap<Arc<str>, WantedSlice>, actual: &Actual) -> bool {
    let is_before = |(name, slice): (&Arc<str>, &WantedSlice)| {
        actual.slices.get(name).is_some_and(|now| slice.stamp.is_before(now.stamp))
    };
    slices.iter().any(is_before)
}

/// The present import.
fn said(current: Option<&ActualImport>, condition_type: ConditionType) -> Option<Condition> {
    current.and_then(|current| current.status.condition(condition_type)).cloned()
}

impl Importer {
    fn may_write(&self, current: &ActualImport) -> bool {
        self.adopts || current.owner == Owner::Us
    }
}

/// The exports that reach this cluster and that it accepts.
fn accepted<'a>(importer: &Importer, known: &Known<'a>) -> Vec<KnownExport<'a>> {
    let namespace = known.name.namespace();
    let is_accepted = |known: &&KnownExport<'_>| {
        known.export.reaches(&importer.cluster) && known.rules.namespaces.allows(namespace)
    };
    known.exports.iter().filter(is_accepted).copied().collect()
}

/// Whether a peer exports the service to this cluster.
fn is_of_peers(importer: &Importer, known: &Known<'_>) -> bool {
    let is_of_peer = |known: &KnownExport<'_>| {
        known.export.cluster != importer.cluster && known.export.spec().is_some()
    };
    accepted(importer, known).iter().any(is_of_peer)
}

/// The part of the import that belongs to unreadable clusters.
struct Record<'a> {
    /// Absent if every cluster that the import names is readable.
    spec: Option<&'a ServiceSpec>,
    /// These clusters.
    clusters: BTreeSet<ClusterId>,
}

/// While a contributing cluster is unreadable, the import keeps its properties: nobody knows which of them are that
/// cluster's.
fn record<'a>(importer: &Importer, known: &Known<'_>, actual: &'a Actual) -> Record<'a> {
    // This controller takes over another's import with the first export, and may never get an export of the service.
    let is_ours = |current: &&ActualImport| {
        let is_adopted = || importer.adopts && !accepted(importer, known).is_empty();
        current.owner == Owner::Us || is_adopted()
    };
    let ours = actual.import.as_ref().filter(is_ours);
    let Some(current) = ours else {
        return Record { spec: None, clusters: BTreeSet::new() };
    };
    let of_slices = actual.slices.values().map(|slice| &slice.cluster);
    let is_unread = |cluster: &&ClusterId| {
        known.incomplete.contains(cluster)
            && !known.exports.iter().any(|known| known.export.cluster == **cluster)
    };
    let clusters: BTreeSet<_> =
        current.status.clusters.iter().chain(of_slices).filter(is_unread).cloned().collect();
    // A controller that stopped before it wrote the status left no list of contributing clusters.
    let is_unsaid = current.status.clusters.is_empty() && !known.incomplete.is_empty();
    let spec = (is_unsaid || !clusters.is_empty()).then_some(&current.import.spec);
    Record { spec, clusters }
}

/// Removes the families that this cluster's Services do not have. False if none remains: the import then keeps all families
/// and gets no VIPs.
fn own_families(spec: &mut ServiceSpec, importer: &Importer) -> bool {
    let is_ours = |family: &IpFamily| importer.families.contains(family);
    let supported = spec.ip_families.iter().any(is_ours);
    if supported {
        spec.ip_families.retain(is_ours);
    }
    supported
}

/// The VIPs of the exporters, the oldest export's first.
fn exporters_vips(accepted: &[KnownExport<'_>]) -> Vec<IpAddr> {
    let services = accepted.iter().map(|known| known.export).filter(|e| e.spec().is_some());
    let mut services: Vec<_> = services.collect();
    services.sort_by_key(|export| export.precedence());
    services.into_iter().flat_map(|export| export.vips.iter().copied()).collect()
}

type Copies = (BTreeMap<Arc<str>, WantedSlice>, BTreeMap<(ClusterId, Rejection), usize>, Endpoints);

fn copies(
    importer: &Importer,
    of: &Known<'_>,
    merged: &Merged,
    accepted: &[KnownExport<'_>],
    has_derived_service: bool,
    present: &BTreeMap<Arc<str>, ActualSlice>,
) -> Copies {
    let (name, refused) = (of.name, of.refused);
    let (mut slices, mut rejected, mut endpoints) = Copies::default();
    for known in accepted {
        let source = &known.export.cluster;
        let copier = SliceCopier {
            name,
            source,
            importer: &importer.cluster,
            merged,
            rules: &known.rules.endpoints,
            has_derived_service,
            mailbox: known.stamp.mailbox,
        };
        let rules = Arc::new(copier.rules());
        let ports = merged.ports_of(source);
        if known.export.spec().is_some() {
            endpoints.note_cluster(source);
        }
        for slice in known.slices.values() {
            if !copier.takes(slice) {
                endpoints.add(source, slice, slice.unused_endpoints(), &ports);
                continue;
            }
            let (like, wanted) = copy(&copier, &rules, slice, present);
            let is_refused = refused.has_slice(&like.name);
            let count = match wanted.copy.as_ref().filter(|_| is_refused) {
                Some(copy) => copy.count_present(slice, &addresses_of(source, present)),
                None if copier.leads_nowhere(slice) => slice.unused_endpoints(),
                None => like.endpoints,
            };
            endpoints.add(source, slice, count, &ports);
            slices.insert(like.name, wanted);
            for (reason, count) in like.rejected {
                *rejected.entry((source.clone(), reason)).or_default() += count;
            }
        }
    }
    (slices, rejected, endpoints)
}

/// The addresses of a cluster's present slices.
fn addresses_of(source: &ClusterId, present: &BTreeMap<Arc<str>, ActualSlice>) -> BTreeSet<IpAddr> {
    let of_source = present.values().filter(|slice| slice.cluster == *source);
    of_source.flat_map(|slice| slice.addresses.all()).collect()
}

/// The copy of one slice. It is built only if the cluster lacks it, or if its fingerprint is unknown.
fn copy(
    copier: &SliceCopier<'_>,
    rules: &Arc<CopyRules>,
    slice: &SourceSlice,
    present: &BTreeMap<Arc<str>, ActualSlice>,
) -> (Copied, WantedSlice) {
    let mut made = None;
    let like = slice.memo.copied(rules).unwrap_or_else(|| {
        let (copy, rejected) = copier.copy(slice);
        let fingerprint = copy.fingerprint();
        // Both maps share one string.
        let name = present.get_key_value(&copy.name).map_or(&copy.name, |(name, _)| name);
        let endpoints = copy.count_endpoints(slice);
        let like = Copied { name: Arc::clone(name), fingerprint, rejected, endpoints };
        slice.memo.note_copied(Arc::clone(rules), like.clone());
        made = Some(copy);
        like
    });
    let fingerprint = like.fingerprint;
    let is_there = present.get(&like.name).is_some_and(|now| now.fingerprint == fingerprint);
    let copy = (!is_there).then(|| Box::new(made.unwrap_or_else(|| copier.copy(slice).0)));
    (like, WantedSlice { fingerprint, stamp: copier.stamp(slice), copy })
}

/// The import and its condition `Ready`.
fn import(
    name: &ServiceName,
    merged: &Merged,
    supported: bool,
    vips: &VipSources<'_>,
) -> (Import, Condition) {
    let spec = merged.spec.clone();
    let needs_vips = spec.service_type == ServiceType::ClusterSetIp;
    let families: &[_] = if supported && needs_vips { &spec.ip_families } else { &[] };
    let (ips, problem) = vips.choose(name, families);
    let ready =
        readiness(&spec, supported, problem, vips.first_lost(&ips), vips.shared(name, &ips));
    (Import { name: name.clone(), ips, spec, has_derived_service: false, tiers: None }, ready)
}

#[cfg(test)]
pub(crate) mod tests;
