//! A budget of writes for each source cluster: churn in one cluster must not load the API servers of the others, and must
//! not delay what other clusters change.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::TokenBucket;
use crate::{clusterset::ClusterId, plan::Write};

/// How many writes of slices a source cluster has at once after it was quiet.
const BURST: f64 = 500.0;

/// Token buckets, one for each source cluster.
#[derive(Debug)]
pub struct WriteBudgets {
    /// Writes a second.
    rate: f64,
    /// Below zero after a service with many slices.
    buckets: HashMap<ClusterId, TokenBucket>,
}

impl WriteBudgets {
    /// Each source cluster has this many writes a second.
    pub fn new(rate: u32) -> Self {
        Self { rate: rate.into(), buckets: HashMap::new() }
    }

    /// Takes what these writes cost, but for those of `own`. It leaves out the slices of clusters that have nothing left,
    /// with all that has to come after them, and returns how long these have to wait.
    pub fn take(
        &mut self,
        writes: &mut Vec<Write>,
        own: &ClusterId,
        now: Instant,
    ) -> Option<Duration> {
        let mut costs: HashMap<ClusterId, u32> = HashMap::new();
        for write in &*writes {
            if let Write::ApplySlice(slice) = write
                && slice.cluster != *own
            {
                *costs.entry(slice.cluster.clone()).or_default() += 1;
            }
        }
        let mut waits: HashMap<ClusterId, f64> = HashMap::new();
        for (cluster, cost) in costs {
            let rate = self.rate;
            let bucket = self.bucket(&cluster, now);
            if bucket.tokens() < 1.0 {
                waits.insert(cluster, ((1.0 - bucket.tokens()) / rate).clamp(0.001, 60.0));
            } else {
                bucket.spend(f64::from(cost));
            }
        }
        let wait = waits.values().copied().reduce(f64::min)?;
        writes.retain(|write| match write {
            Write::ApplySlice(slice) => !waits.contains_key(&slice.cluster),
            Write::ApplyImport(_)
            | Write::SetExportConditions(..)
            | Write::CreateExport(_)
            | Write::DeleteExport(_)
            | Write::CreateNamespace(_) => true,
            Write::SetImportStatus(..) | Write::DeleteImport(_) | Write::DeleteSlice(..) => false,
        });
        Some(Duration::from_secs_f64(wait))
    }

    /// The bucket of a cluster, filled up to now.
    fn bucket(&mut self, cluster: &ClusterId, now: Instant) -> &mut TokenBucket {
        let full = || TokenBucket::full(BURST, now);
        let bucket = self.buckets.entry(cluster.clone()).or_insert_with(full);
        bucket.fill(self.rate, now);
        bucket
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusterset::{ImportedSlice, IpFamily, ServiceName};

    fn writes(cluster: &str, count: usize) -> Vec<Write> {
        let slice = ImportedSlice {
            service: ServiceName::new("shop", "web").unwrap(),
            name: "web".into(),
            cluster: cluster.parse().unwrap(),
            source_name: "web".into(),
            source_generation: 1,
            family: IpFamily::V4,
            ports: vec![],
            endpoints: vec![],
            has_zone_hints: false,
            trigger_time: None,
        };
        vec![Write::ApplySlice(slice); count]
    }

    #[test]
    fn one_cluster_does_not_use_the_budget_of_another() {
        let own = "own".parse().unwrap();
        let now = Instant::now();
        let mut budgets = WriteBudgets::new(100);
        let mut take = |writes: &[Write], now| budgets.take(&mut writes.to_vec(), &own, now);
        for _ in 0..10 {
            assert_eq!(take(&writes("busy", 50), now), None);
        }
        let wait = take(&writes("busy", 1), now).unwrap();
        assert!(wait <= Duration::from_millis(10), "{wait:?}");
        assert_eq!(take(&writes("quiet", 1), now), None);
        assert_eq!(take(&writes("own", 10_000), now), None);
        let later = now + Duration::from_secs(1);
        assert_eq!(take(&writes("busy", 1000), later), None, "in debt then");
        let wait = take(&writes("busy", 1), later).unwrap();
        assert!(wait > Duration::from_secs(8), "{wait:?}");
    }

    #[test]
    fn a_cluster_in_debt_does_not_hold_up_the_others_of_a_service() {
        let own = "own".parse().unwrap();
        let now = Instant::now();
        let mut budgets = WriteBudgets::new(100);
        assert_eq!(budgets.take(&mut writes("busy", 1000), &own, now), None);
        let name = ServiceName::new("shop", "web").unwrap();
        let mut both = [writes("busy", 1), writes("quiet", 2), writes("own", 1)].concat();
        both.push(Write::DeleteSlice(name, "old".into()));
        assert!(budgets.take(&mut both, &own, now).is_some());
        assert_eq!(both, [writes("quiet", 2), writes("own", 1)].concat(), "deletions come last");
    }
}
