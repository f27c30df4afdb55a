//! Orders the writes that lead from what this cluster has of a service to what it should have.
//!
//! After any number of these writes, clients of the service lose nothing ([`Sending`] has the rules after a failure):
//! - Of slices that stay, what the operator forbids goes first.
//! - Slices are written before the import, and the import before the status that says that slices are there.
//! - Deletions are last, but for a slice of another family that has the name of a new one. The import goes before its
//!   slices.
//! - An import names a derived Service only while it has slices.
//! - Nothing of an incomplete cluster is deleted.
//! - Of an import that another controller writes, slices from before stay up to date until clients do without them, and nothing
//!   is created.
//! - What the API server has refused is sent again at the end, and nothing waits for it. Endpoints of a refused slice stay in
//!   the slice that had them.

mod sending;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use crate::core::clusterset::{
    Actual, ActualDerived, ActualSlice, ClusterId, Condition, EndpointRules, Import, ImportStatus,
    ImportedSlice, Owner, ServiceName, ServiceObject, ServicePort, Wanted, WantedImport,
    derived_ports,
};

pub use self::sending::{Ending, Ordered, Sending, SliceOf};

/// One write to the API server of this cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Write {
    /// Creates or replaces a slice.
    ApplySlice(ImportedSlice),
    /// Removes the endpoints that the rules of its cluster reject from a slice, by `metadata.name`.
    RestrictSlice(ServiceName, ClusterId, Arc<str>, Arc<EndpointRules>),
    /// Creates or replaces a ServiceImport.
    ApplyImport(Import),
    /// Replaces `status` of a ServiceImport.
    SetImportStatus(ServiceName, ImportStatus),
    /// Sets one condition of a ServiceImport that another controller writes.
    SetAccepted(ServiceName, Condition),
    /// Replaces `status.conditions` of a ServiceExport.
    SetExportConditions(ServiceName, Vec<Condition>),
    /// Creates the ServiceExport of a Service.
    CreateExport(ServiceName),
    /// Deletes a ServiceExport that this controller has created.
    DeleteExport(ServiceName),
    /// Creates or replaces the derived Service of an import.
    ApplyDerivedService(ServiceName, Vec<ServicePort>),
    /// Creates a namespace, for a service of a peer.
    CreateNamespace(Arc<str>),
    /// Deletes a ServiceImport.
    DeleteImport(ServiceName),
    /// Deletes the derived Service of an import.
    DeleteDerivedService(ServiceName),
    /// Deletes a slice that a service has from this cluster, by `metadata.name`.
    DeleteSlice(ServiceName, ClusterId, Arc<str>),
}

impl Write {
    /// The object that it writes.
    pub fn object(&self) -> ServiceObject {
        match self {
            Self::ApplySlice(slice) => ServiceObject::Slice(Arc::clone(&slice.name)),
            Self::RestrictSlice(_, _, slice, _) | Self::DeleteSlice(_, _, slice) => {
                ServiceObject::Slice(Arc::clone(slice))
            }
            Self::ApplyImport(_) | Self::DeleteImport(_) => ServiceObject::Import,
            Self::SetImportStatus(..) | Self::SetAccepted(..) => ServiceObject::ImportStatus,
            Self::SetExportConditions(..) => ServiceObject::ExportStatus,
            Self::CreateExport(_) | Self::DeleteExport(_) => ServiceObject::Export,
            Self::ApplyDerivedService(..) | Self::DeleteDerivedService(_) => {
                ServiceObject::DerivedService
            }
            Self::CreateNamespace(_) => ServiceObject::Namespace,
        }
    }

    /// Whether it changes the import, or what belongs to it and is no slice. Deletions do not count.
    pub const fn changes_import(&self) -> bool {
        matches!(
            self,
            Self::ApplyImport(_)
                | Self::SetImportStatus(..)
                | Self::SetAccepted(..)
                | Self::SetExportConditions(..)
                | Self::CreateExport(_)
                | Self::ApplyDerivedService(..)
                | Self::CreateNamespace(_)
        )
    }
}

/// The writes for one service, in order. Empty if the cluster has what it should have.
pub fn plan(name: &ServiceName, actual: &Actual, wanted: &Wanted) -> Vec<Write> {
    let mut writes = Vec::new();
    writes.extend(restrictions(name, actual, wanted));
    writes.extend(changed_slices(actual, wanted));
    writes.extend(import_writes(name, actual, wanted));
    if let (Some(now), Some(then)) = (&actual.export_conditions, &wanted.export_conditions)
        && now != then
    {
        writes.push(Write::SetExportConditions(name.clone(), then.clone()));
    }
    writes.extend(acceptance(name, actual, wanted));
    if wanted.needs_namespace {
        writes.push(Write::CreateNamespace(name.namespace().into()));
    }
    writes.extend(deletions(name, actual, wanted));
    put_refused_last(&mut writes, actual, wanted);
    let has_derived = actual.derived.as_ref().is_some_and(ActualDerived::is_ours);
    // The import of another controller may name the derived Service.
    let is_left_alone = wanted.import == WantedImport::LeftAlone;
    if has_derived && wanted.derived().is_none() && !is_left_alone {
        writes.push(Write::DeleteDerivedService(name.clone()));
    }
    writes
}

/// Nothing waits for what the API server has refused, and what goes may make room for it.
fn put_refused_last(writes: &mut Vec<Write>, actual: &Actual, wanted: &Wanted) {
    if wanted.refused.is_empty() {
        return;
    }
    let lacks_import = actual.import.is_none() && wanted.refused.contains(&ServiceObject::Import);
    let is_refused = |write: &mut Write| {
        let object = write.object();
        wanted.refused.contains(&object) || lacks_import && object == ServiceObject::ImportStatus
    };
    let again: Vec<_> = writes.extract_if(.., is_refused).collect();
    writes.extend(again);
}

/// The restrictions of slices that stay: forbidden endpoints go even if their cluster is incomplete.
fn restrictions<'a>(
    name: &'a ServiceName,
    actual: &'a Actual,
    wanted: &'a Wanted,
) -> impl Iterator<Item = Write> + use<'a> {
    let stays = |slice: &Arc<str>, now: &ActualSlice| match wanted.slices.get(slice) {
        Some(wanted) => wanted.stamp.is_before(now.stamp),
        None => !goes(slice, now, wanted),
    };
    actual.slices.iter().filter_map(move |(slice, now)| {
        let rules = wanted.rules.get(&now.cluster)?;
        let is_rejected = |address| rules.rejection(address).is_some();
        let is_forbidden = stays(slice, now) && now.addresses.all().any(is_rejected);
        let (cluster, slice, rules) = (now.cluster.clone(), Arc::clone(slice), Arc::clone(rules));
        is_forbidden.then(|| Write::RestrictSlice(name.clone(), cluster, slice, rules))
    })
}

/// Whether a present slice is to be deleted.
fn goes(slice: &Arc<str>, now: &ActualSlice, wanted: &Wanted) -> bool {
    let is_later =
        wanted.stamps.get(&now.cluster).is_some_and(|export| export.is_before(now.stamp));
    !wanted.slices.contains_key(slice) && !wanted.keep.contains(&now.cluster) && !is_later
}

fn changed_slices<'a>(
    actual: &'a Actual,
    wanted: &'a Wanted,
) -> impl Iterator<Item = Write> + use<'a> {
    // A mailbox that was restored from a backup has old slices.
    let is_later = |slice: &&ImportedSlice| {
        actual.slices.get(&slice.name).is_none_or(|now| !slice.stamp.is_before(now.stamp))
    };
    let copies = wanted.slices.values().filter_map(|slice| slice.copy.as_deref());
    copies.filter(is_later).flat_map(|slice| {
        // Nobody can change the family of a slice.
        let former = actual.slices.get(&slice.name).filter(|now| now.family != slice.family);
        let former = former.map(|now| {
            Write::DeleteSlice(slice.service.clone(), now.cluster.clone(), Arc::clone(&slice.name))
        });
        former.into_iter().chain([Write::ApplySlice(slice.clone())])
    })
}

fn import_writes(name: &ServiceName, actual: &Actual, wanted: &Wanted) -> Vec<Write> {
    let WantedImport::Present(import, status) = &wanted.import else {
        return vec![];
    };
    let now = actual.import.as_ref();
    let is_written = now.is_some_and(|now| now.owner == Owner::Us && now.import == **import);
    let has_status = now.is_some_and(|now| now.status == *status);
    let import = (!is_written).then(|| Write::ApplyImport(Import::clone(import)));
    let status = (!has_status).then(|| Write::SetImportStatus(name.clone(), status.clone()));
    import.into_iter().chain(status).chain(derived_service(name, actual, wanted)).collect()
}

fn acceptance(name: &ServiceName, actual: &Actual, wanted: &Wanted) -> Option<Write> {
    let (now, then) = (actual.import.as_ref()?, wanted.accepted.as_ref()?);
    let is_said = now.status.condition(then.condition_type) == Some(then);
    (!is_said).then(|| Write::SetAccepted(name.clone(), then.clone()))
}

/// The write of the derived Service. The import does not wait for it: clients of the VIP do not need it.
fn derived_service(name: &ServiceName, actual: &Actual, wanted: &Wanted) -> Option<Write> {
    let ports = derived_ports(wanted.derived()?);
    let is_written =
        actual.derived.as_ref().is_some_and(|now| now.ports == ports && now.is_ours_alone);
    (!is_written).then(|| Write::ApplyDerivedService(name.clone(), ports))
}

fn deletions(name: &ServiceName, actual: &Actual, wanted: &Wanted) -> Vec<Write> {
    let is_ours = actual.import.as_ref().is_some_and(|now| now.owner == Owner::Us);
    let import = (is_ours && wanted.import == WantedImport::Absent)
        .then(|| Write::DeleteImport(name.clone()));
    let waiting = waiting(actual, wanted);
    let slices = actual.slices.iter().filter(|(slice, now)| goes(slice, now, wanted));
    let slices = slices.filter_map(|(slice, now)| {
        let stay = waiting.get(&now.cluster).map(|waiting| stay(now, waiting));
        let (name, cluster, slice) = (name.clone(), now.cluster.clone(), Arc::clone(slice));
        match stay {
            Some(rules) if rules.pod_ranges.as_ref().is_some_and(|some| !some.is_empty()) => {
                let is_rejected = |address| rules.rejection(address).is_some();
                let has_others = now.addresses.all().any(is_rejected);
                has_others.then(|| Write::RestrictSlice(name, cluster, slice, Arc::new(rules)))
            }
            _ => Some(Write::DeleteSlice(name, cluster, slice)),
        }
    });
    import.into_iter().chain(slices).collect()
}

/// The addresses of each cluster that a refused slice should have and no present one of that name has: endpoints that move
/// between slices.
fn waiting(actual: &Actual, wanted: &Wanted) -> BTreeMap<ClusterId, BTreeSet<IpAddr>> {
    let mut waiting: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let copies = wanted.slices.values().filter_map(|slice| slice.copy.as_deref());
    for slice in copies {
        if wanted.refused.contains(&ServiceObject::Slice(Arc::clone(&slice.name))) {
            let there = actual.slices.get(&slice.name).map(|now| now.addresses.all().collect());
            let there: BTreeSet<_> = there.unwrap_or_default();
            let addresses = slice.endpoints.iter().map(|endpoint| endpoint.address);
            let missing = addresses.filter(|address| !there.contains(address));
            waiting.entry(slice.cluster.clone()).or_default().extend(missing);
        }
    }
    waiting
}

/// The rules by which a slice that goes keeps the endpoints among these.
fn stay(now: &ActualSlice, waiting: &BTreeSet<IpAddr>) -> EndpointRules {
    let stay = now.addresses.all().filter(|address| waiting.contains(address));
    EndpointRules { pod_ranges: Some(stay.map(Into::into).collect()), ..EndpointRules::default() }
}

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod refusals;
