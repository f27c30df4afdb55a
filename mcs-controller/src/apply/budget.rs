//! A budget of writes for each source cluster: churn in one cluster must not load the API servers of the others, and must
//! not delay what other clusters change.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::TokenBucket;
use crate::{
    clusterset::{ClusterId, ServiceName},
    plan::Write,
};

/// How many writes of slices a source cluster has at once after it was quiet.
const BURST: f64 = 500.0;

/// Token buckets, one for each source cluster.
#[derive(Debug)]
pub struct WriteBudgets {
    /// Writes a second.
    rate: f64,
    /// Below zero by what was promised, and after a service with many slices.
    buckets: HashMap<ClusterId, TokenBucket>,
    /// The services that wait, each with the clusters that they wait for.
    promises: HashMap<ServiceName, HashMap<ClusterId, Promise>>,
}

/// Writes of a service that are paid for, and may be made then. Without it, each service that waits would ask again as soon
/// as there is a token for one of them.
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
    /// nothing left, with all that has to come after them, and returns until when these have to wait.
    pub fn take(
        &mut self,
        name: &ServiceName,
        writes: &mut Vec<Write>,
        own: &ClusterId,
        now: Instant,
    ) -> Option<Instant> {
        let promises = self.promises.remove(name).unwrap_or_default();
        let mut waits: HashMap<ClusterId, Promise> = HashMap::new();
        for (cluster, cost) in costs(writes, own) {
            let former = promises.get(&cluster).copied();
            let promise = former.unwrap_or_else(|| self.promise(&cluster, cost, now));
            if promise.due > now {
                waits.insert(cluster, promise);
            } else {
                let rest = cost.saturating_sub(promise.paid);
                self.bucket(&cluster, now).spend(rest.into());
            }
        }
        let first = waits.values().map(|promise| promise.due).min()?;
        writes.retain(|write| match write {
            Write::ApplySlice(slice) => !waits.contains_key(&slice.cluster),
            Write::ApplyImport(_)
            | Write::SetExportConditions(..)
            | Write::CreateExport(_)
            | Write::DeleteExport(_)
            | Write::CreateNamespace(_) => true,
            Write::SetImportStatus(..)
            | Write::ApplyDerivedService(..)
            | Write::DeleteImport(_)
            | Write::DeleteDerivedService(_)
            | Write::DeleteSlice(..) => false,
        });
        self.promises.insert(name.clone(), waits);
        Some(first)
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
mod tests {
    use super::*;
    use crate::clusterset::{ImportedSlice, IpFamily, fixture::name};

    fn writes(cluster: &str, count: usize) -> Vec<Write> {
        let slice = ImportedSlice {
            service: name("shop/web"),
            name: "web".into(),
            cluster: cluster.parse().unwrap(),
            source_name: "web".into(),
            source_generation: 1,
            family: IpFamily::V4,
            ports: vec![],
            endpoints: vec![],
            has_zone_hints: false,
            has_derived_service: false,
            trigger_time: None,
        };
        vec![Write::ApplySlice(slice); count]
    }

    /// Asks for a service, and returns how long it has to wait.
    fn take(
        budgets: &mut WriteBudgets,
        service: &str,
        mut writes: Vec<Write>,
        now: Instant,
    ) -> Option<Duration> {
        let own = "own".parse().unwrap();
        Some(budgets.take(&name(service), &mut writes, &own, now)? - now)
    }

    #[test]
    fn one_cluster_does_not_use_the_budget_of_another() {
        let now = Instant::now();
        let mut budgets = WriteBudgets::new(100);
        for _ in 0..10 {
            assert_eq!(take(&mut budgets, "shop/web", writes("busy", 50), now), None);
        }
        let wait = take(&mut budgets, "shop/web", writes("busy", 1), now).unwrap();
        assert!(wait <= Duration::from_millis(10), "{wait:?}");
        assert_eq!(take(&mut budgets, "shop/db", writes("quiet", 1), now), None);
        assert_eq!(take(&mut budgets, "shop/db", writes("own", 10_000), now), None);
        let later = now + Duration::from_secs(1);
        let at_once = take(&mut budgets, "shop/web", writes("busy", 1000), later);
        assert_eq!(at_once, None, "in debt then");
        let wait = take(&mut budgets, "shop/web", writes("busy", 1), later).unwrap();
        assert!(wait > Duration::from_secs(8), "{wait:?}");
    }

    #[test]
    fn services_that_wait_have_their_turn_one_after_the_other() {
        let mut now = Instant::now();
        let mut budgets = WriteBudgets::new(100);
        assert_eq!(take(&mut budgets, "shop/first", writes("busy", 500), now), None);
        let services: Vec<_> = (0..50).map(|number| format!("shop/s{number}")).collect();
        let mut asked = 0;
        let mut waiting: Vec<_> = services.iter().map(|service| (now, service)).collect();
        while let Some(next) = waiting.iter().map(|(due, _)| *due).min() {
            now = now.max(next);
            let (due, later): (Vec<_>, Vec<_>) =
                waiting.into_iter().partition(|(at, _)| *at <= now);
            waiting = later;
            for (_, service) in due {
                asked += 1;
                let Some(wait) = take(&mut budgets, service, writes("busy", 1), now) else {
                    continue;
                };
                let again = take(&mut budgets, service, writes("busy", 1), now);
                assert_eq!(again, Some(wait), "a service that changes again keeps its turn");
                waiting.push((now + wait, service));
            }
        }
        assert_eq!(asked, 100, "each service asks twice");
        assert!(budgets.promises.is_empty());
    }

    #[test]
    fn a_cluster_in_debt_does_not_hold_up_the_others_of_a_service() {
        let own = "own".parse().unwrap();
        let now = Instant::now();
        let mut budgets = WriteBudgets::new(100);
        let service = name("shop/web");
        assert_eq!(budgets.take(&service, &mut writes("busy", 1000), &own, now), None);
        let mut both = [writes("busy", 1), writes("quiet", 2), writes("own", 1)].concat();
        both.push(Write::DeleteSlice(service.clone(), "old".into()));
        assert!(budgets.take(&service, &mut both, &own, now).is_some());
        assert_eq!(both, [writes("quiet", 2), writes("own", 1)].concat(), "deletions come last");
    }
}
