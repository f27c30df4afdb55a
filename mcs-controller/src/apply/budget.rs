//! A budget of writes for each source cluster: churn in one cluster must not load the API servers of the others, and must
//! not delay what other clusters change.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use super::TokenBucket;
use crate::{
    clusterset::{ActualSlice, ClusterId, ServiceName},
    plan::Write,
};

/// How many writes of slices a source cluster has at once after it was quiet.
const BURST: f64 = 500.0;

/// Token buckets, one for each source cluster.
#[derive(Debug)]
pub struct WriteBudgets {
    /// Writes a second.
    rate: f64,
    /// Negative while services wait, as a promise is paid at once, and after a service with many slices.
    buckets: HashMap<ClusterId, TokenBucket>,
    /// The services that wait, each with the clusters that they wait for.
    promises: HashMap<ServiceName, HashMap<ClusterId, Promise>>,
}

/// A service has paid for its writes, and makes them when they are due. Without promises, all services that wait would ask
/// again as soon as there is one token.
#[derive(Clone, Copy, Debug)]
struct Promise {
    due: Instant,
    paid: u32,
}

impl WriteBudgets {
    /// Each source cluster has this many writes a second.
    pub fn new(rate: u32) -> Self {
        Self { rate: rate.into(), buckets: HashMap::new(), promises: HashMap::new() }
    }

    /// Takes what these writes of a service cost, but for those of `own`. It leaves out the slices of clusters that have
    /// nothing left, with all that has to come after them, and returns until when these have to wait. `present`: the
    /// slices that the service has.
    pub fn take(
        &mut self,
        name: &ServiceName,
        writes: &mut Vec<Write>,
        own: &ClusterId,
        present: &BTreeMap<Arc<str>, ActualSlice>,
        now: Instant,
    ) -> Option<Instant> {
        let mut promises = self.promises.remove(name).unwrap_or_default();
        let mut waits: HashMap<ClusterId, Promise> = HashMap::new();
        for (cluster, cost) in costs(writes, own) {
            let former = promises.remove(&cluster);
            let promise = former.unwrap_or_else(|| self.promise(&cluster, cost, now));
            if promise.due > now {
                waits.insert(cluster, promise);
            } else {
                let rest = f64::from(cost) - f64::from(promise.paid);
                self.bucket(&cluster, now).spend(rest);
            }
        }
        // What these have paid for is not written any more.
        for (cluster, promise) in promises {
            self.bucket(&cluster, now).spend(-f64::from(promise.paid));
        }
        let first = waits.values().map(|promise| promise.due).min()?;
        leave_out(&waits, writes, present);
        self.promises.insert(name.clone(), waits);
        Some(first)
    }

    /// Gives back what writes cost that were not made.
    pub fn give_back(&mut self, writes: &[Write], own: &ClusterId, now: Instant) {
        for (cluster, cost) in costs(writes, own) {
            self.bucket(&cluster, now).spend(-f64::from(cost));
        }
    }

    /// Pays for writes, and says when they may be made.
    fn promise(&mut self, cluster: &ClusterId, cost: u32, now: Instant) -> Promise {
        let rate = self.rate;
        let bucket = self.bucket(cluster, now);
        let missing = (1.0 - bucket.tokens()).max(0.0);
        bucket.spend(cost.into());
        Promise { due: now + Duration::from_secs_f64(missing / rate), paid: cost }
    }

    /// The bucket of a cluster, filled up to now.
    fn bucket(&mut self, cluster: &ClusterId, now: Instant) -> &mut TokenBucket {
        let full = || TokenBucket::full(BURST, now);
        let bucket = self.buckets.entry(cluster.clone()).or_insert_with(full);
        bucket.fill(self.rate, now);
        bucket
    }
}

/// Leaves out the slices of clusters that wait, and what must not come before them.
fn leave_out(
    waits: &HashMap<ClusterId, Promise>,
    writes: &mut Vec<Write>,
    present: &BTreeMap<Arc<str>, ActualSlice>,
) {
    let is_new_and_waits = |write: &Write| {
        matches!(write, Write::ApplySlice(slice)
            if waits.contains_key(&slice.cluster) && !present.contains_key(&slice.name))
    };
    let lacks_slices = writes.iter().any(is_new_and_waits);
    let is_derived =
        |write: &Write| matches!(write, Write::ApplySlice(slice) if slice.has_derived_service);
    let has_derived_service = writes.iter().any(is_derived);
    writes.retain(|write| match write {
        Write::ApplySlice(slice) => !waits.contains_key(&slice.cluster),
        // Endpoints move between slices of one cluster.
        Write::DeleteSlice(_, cluster, _) => !waits.contains_key(cluster),
        // The status says that all slices are there.
        Write::SetImportStatus(..) => !lacks_slices,
        Write::ApplyImport(_)
        | Write::SetExportConditions(..)
        | Write::CreateExport(_)
        | Write::DeleteExport(_)
        | Write::ApplyDerivedService(..)
        | Write::CreateNamespace(_) => true,
        Write::DeleteImport(_) | Write::DeleteDerivedService(_) => false,
    });
    let is_applied = |write: &Write| matches!(write, Write::ApplySlice(_));
    if !has_derived_service || writes.iter().any(is_applied) {
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

/// How many slices of each cluster other than `own` are written.
fn costs(writes: &[Write], own: &ClusterId) -> HashMap<ClusterId, u32> {
    let mut costs = HashMap::new();
    for write in writes {
        if let Write::ApplySlice(slice) = write
            && slice.cluster != *own
        {
            *costs.entry(slice.cluster.clone()).or_default() += 1;
        }
    }
    costs
}

#[cfg(test)]
mod tests;
