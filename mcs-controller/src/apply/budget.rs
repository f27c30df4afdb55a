//! A budget of writes for each source cluster: churn in one cluster must not load the API servers of the others, and must
//! not delay what other clusters change.
//!
//! A token is a write of up to 32 KiB. A cluster pays for its slices. An import costs one token with its status, derived
//! Service, namespace and the conditions of its export. Of the clusters that have changed the service, the first one with a
//! token pays. An import is free if that cluster pays for slices too. Deletions are free: each removes a paid object.
//! Slices of this cluster are free.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{TokenBucket, weight};
use crate::{
    clusterset::{ActualSlice, ClusterId, ServiceName},
    mailbox::MailboxWrite,
    plan::Write,
};

/// The most tokens that a source cluster saves up.
const BURST: f64 = 500.0;
/// This cluster's tenants get this many times the rate of a peer.
const OWN: f64 = 5.0;

/// Token buckets, one for each source cluster.
#[derive(Debug)]
pub struct WriteBudgets {
    /// Tokens a second.
    rate: f64,
    /// This cluster.
    own: ClusterId,
    /// A balance is negative while services wait, because a promise is paid at once, and after a service with many slices.
    buckets: HashMap<ClusterId, TokenBucket>,
    /// The services that wait, each with the clusters that they wait for.
    promises: HashMap<ServiceName, HashMap<ClusterId, Promise>>,
}

/// A service has paid for its writes and makes them at this time. Without promises, all waiting services would ask again
/// for each new token.
#[derive(Clone, Copy, Debug)]
struct Promise {
    due: Instant,
    paid: f64,
}

impl WriteBudgets {
    /// Each source cluster has this many tokens a second.
    pub fn new(rate: u32, own: ClusterId) -> Self {
        Self { rate: rate.into(), own, buckets: HashMap::new(), promises: HashMap::new() }
    }

    /// Pays for these writes of a service. Removes the writes of clusters without tokens, and the writes that must follow
    /// them; returns the time at which these are due. `causes`: the clusters that have changed the service; empty means
    /// this one. `present`: the slices that the service has.
    pub fn take(
        &mut self,
        name: &ServiceName,
        writes: &mut Vec<Write>,
        causes: &BTreeSet<ClusterId>,
        present: &BTreeMap<Arc<str>, ActualSlice>,
        now: Instant,
    ) -> Option<Instant> {
        let mut costs = self.slice_costs(writes);
        let import: Vec<_> = writes.iter().filter_map(weight::of_import).collect();
        let payer = (!import.is_empty()).then(|| self.payer(name, causes, now));
        if let Some(payer) = &payer {
            let cost = costs.entry(payer.clone()).or_default();
            *cost = cost.max(weight::tokens(import.into_iter().sum()));
        }
        let waits = self.pay(name, costs, now)?;
        leave_out(&waits, payer.as_ref(), writes, present);
        waits.into_values().min()
    }

    /// The same for writes to the mailbox. All writes of a service wait together: a reader uses a slice only if an
    /// ExportedService names it.
    pub fn take_publication(
        &mut self,
        name: &ServiceName,
        writes: &mut Vec<MailboxWrite>,
        now: Instant,
    ) -> Option<Instant> {
        let cost: f64 = writes.iter().filter_map(weight::of_publication).sum();
        let costs = (cost > 0.0).then(|| (self.own.clone(), cost)).into_iter().collect();
        let waits = self.pay(name, costs, now)?;
        writes.clear();
        waits.into_values().min()
    }

    /// Refunds slices that were not written.
    pub fn give_back(&mut self, writes: &[Write], now: Instant) {
        for (cluster, cost) in self.slice_costs(writes) {
            self.bucket(&cluster, now).spend(-cost);
        }
    }

    /// How many services wait for each cluster.
    pub fn waiting(&self) -> BTreeMap<&ClusterId, usize> {
        let mut waiting = BTreeMap::new();
        for cluster in self.promises.values().flat_map(HashMap::keys) {
            *waiting.entry(cluster).or_default() += 1;
        }
        waiting
    }

    /// Pays. Returns the clusters without tokens, and until when the service waits for each.
    fn pay(
        &mut self,
        name: &ServiceName,
        costs: HashMap<ClusterId, f64>,
        now: Instant,
    ) -> Option<HashMap<ClusterId, Instant>> {
        let mut promises = self.promises.remove(name).unwrap_or_default();
        let mut waits: HashMap<ClusterId, Promise> = HashMap::new();
        for (cluster, cost) in costs {
            let former = promises.remove(&cluster);
            let promise = former.unwrap_or_else(|| self.promise(&cluster, cost, now));
            if promise.due > now {
                waits.insert(cluster, promise);
            } else {
                self.bucket(&cluster, now).spend(cost - promise.paid);
            }
        }
        // The writes that these clusters paid for are no longer planned.
        for (cluster, promise) in promises {
            self.bucket(&cluster, now).spend(-promise.paid);
        }
        if waits.is_empty() {
            return None;
        }
        let due = waits.iter().map(|(cluster, promise)| (cluster.clone(), promise.due)).collect();
        self.promises.insert(name.clone(), waits);
        Some(due)
    }

    /// Pays for writes. Returns when they are due.
    fn promise(&mut self, cluster: &ClusterId, cost: f64, now: Instant) -> Promise {
        let due = self.turn(cluster, now);
        self.bucket(cluster, now).spend(cost);
        Promise { due, paid: cost }
    }

    /// When a cluster has a token.
    fn turn(&mut self, cluster: &ClusterId, now: Instant) -> Instant {
        let missing = (1.0 - self.bucket(cluster, now).tokens()).max(0.0);
        now + Duration::from_secs_f64(missing / (self.rate * self.share(cluster)))
    }

    /// Who pays for the import of a service. A cluster with tokens does not wait for a cluster without.
    fn payer(
        &mut self,
        name: &ServiceName,
        causes: &BTreeSet<ClusterId>,
        now: Instant,
    ) -> ClusterId {
        let mut first: Option<(Instant, ClusterId)> = None;
        for cluster in causes {
            let promise = self.promises.get(name).and_then(|of| of.get(cluster));
            let due = promise.map(|promise| promise.due);
            let due = due.unwrap_or_else(|| self.turn(cluster, now));
            if first.as_ref().is_none_or(|(earliest, _)| due < *earliest) {
                first = Some((due, cluster.clone()));
            }
        }
        first.map_or_else(|| self.own.clone(), |(_, cluster)| cluster)
    }

    /// The bucket of a cluster, filled up to now.
    fn bucket(&mut self, cluster: &ClusterId, now: Instant) -> &mut TokenBucket {
        let share = self.share(cluster);
        let full = || TokenBucket::full(BURST * share, now);
        let bucket = self.buckets.entry(cluster.clone()).or_insert_with(full);
        bucket.fill(self.rate * share, now);
        bucket
    }

    fn share(&self, cluster: &ClusterId) -> f64 {
        if *cluster == self.own { OWN } else { 1.0 }
    }

    /// What the slices cost that are written, by cluster.
    fn slice_costs(&self, writes: &[Write]) -> HashMap<ClusterId, f64> {
        let mut costs = HashMap::new();
        for write in writes {
            if let Write::ApplySlice(slice) = write
                && slice.cluster != self.own
            {
                *costs.entry(slice.cluster.clone()).or_default() += weight::of_slice(slice);
            }
        }
        costs
    }
}

/// The number of writes that belong to imports. They wait while their payer has no tokens.
pub fn import_writes(writes: &[Write]) -> usize {
    writes.iter().filter(|write| weight::of_import(write).is_some()).count()
}

/// Removes the writes of waiting clusters, and the writes that must follow them. `payer`: who pays for the import.
fn leave_out(
    waits: &HashMap<ClusterId, Instant>,
    payer: Option<&ClusterId>,
    writes: &mut Vec<Write>,
    present: &BTreeMap<Arc<str>, ActualSlice>,
) {
    let import_waits = payer.is_some_and(|payer| waits.contains_key(payer));
    let slices: Vec<_> = writes
        .iter()
        .filter_map(|write| match write {
            Write::ApplySlice(slice) => Some(slice),
            _ => None,
        })
        .collect();
    let waiting: Vec<_> =
        slices.iter().filter(|slice| waits.contains_key(&slice.cluster)).collect();
    let lacks_slices = waiting.iter().any(|slice| !present.contains_key(&slice.name));
    let waiting: BTreeSet<_> = waiting.iter().map(|slice| slice.cluster.clone()).collect();
    let has_derived_service = slices.iter().any(|slice| slice.has_derived_service);
    let drops_service = writes.iter().any(|write| matches!(write, Write::DeleteDerivedService(_)));
    writes.retain(|write| match write {
        Write::ApplySlice(slice) => !waiting.contains(&slice.cluster),
        // Endpoints move between slices of one cluster.
        Write::DeleteSlice(_, cluster, _) => !waiting.contains(cluster),
        // The status says that all slices are there.
        Write::SetImportStatus(..) => !import_waits && !lacks_slices,
        Write::ApplyImport(_)
        | Write::SetExportConditions(..)
        | Write::SetAccepted(..)
        | Write::CreateExport(_)
        | Write::ApplyDerivedService(..)
        | Write::CreateNamespace(_) => !import_waits,
        Write::RestrictSlice(..) | Write::DeleteExport(_) | Write::DeleteImport(_) => true,
        Write::DeleteDerivedService(_) => false,
    });
    let is_applied = |write: &Write| matches!(write, Write::ApplySlice(_));
    let names_derived_service = has_derived_service || import_waits && drops_service;
    if !names_derived_service || writes.iter().any(is_applied) {
        return;
    }
    // An import names a derived Service only while it has slices.
    let is_deletion = |write: &Write| matches!(write, Write::DeleteSlice(..));
    let deletions = writes.iter().filter(|write| is_deletion(write)).count();
    if deletions == present.len() {
        writes.retain(|write| !is_deletion(write));
    }
    if present.is_empty() {
        writes.retain(|write| match write {
            Write::ApplyImport(import) => !import.has_derived_service,
            other => !matches!(other, Write::ApplyDerivedService(..)),
        });
    }
}

#[cfg(test)]
mod tests;
