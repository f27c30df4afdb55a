//! A budget of writes for each source cluster: churn in one cluster must not load the API servers of the others, and must
//! not delay what other clusters change.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use crate::{clusterset::ClusterId, plan::Write};

/// How many writes of slices a source cluster has at once after it was quiet.
const BURST: f64 = 500.0;

/// Token buckets, one for each source cluster.
#[derive(Debug)]
pub struct WriteBudgets {
    /// Writes a second.
    rate: f64,
    buckets: HashMap<ClusterId, Bucket>,
}

#[derive(Debug)]
struct Bucket {
    /// Below zero after a service with many slices.
    tokens: f64,
    filled: Instant,
}

impl WriteBudgets {
    /// Each source cluster has this many writes a second.
    pub fn new(rate: u32) -> Self {
        Self { rate: rate.into(), buckets: HashMap::new() }
    }

    /// Takes what these writes cost, but for those of `own`. Or else returns how long to wait.
    pub fn take(
        &mut self,
        writes: &[Write],
        own: &ClusterId,
        now: Instant,
    ) -> Result<(), Duration> {
        let mut costs: HashMap<&ClusterId, u32> = HashMap::new();
        for write in writes {
            if let Write::ApplySlice(slice) = write
                && slice.cluster != *own
            {
                *costs.entry(&slice.cluster).or_default() += 1;
            }
        }
        for cluster in costs.keys() {
            let rate = self.rate;
            let bucket = self.bucket(cluster, now);
            if bucket.tokens < 1.0 {
                let wait = ((1.0 - bucket.tokens) / rate).clamp(0.001, 60.0);
                return Err(Duration::from_secs_f64(wait));
            }
        }
        for (cluster, cost) in costs {
            self.bucket(cluster, now).tokens -= f64::from(cost);
        }
        Ok(())
    }

    /// The bucket of a cluster, filled up to now.
    fn bucket(&mut self, cluster: &ClusterId, now: Instant) -> &mut Bucket {
        let rate = self.rate;
        let full = || Bucket { tokens: BURST, filled: now };
        let bucket = self.buckets.entry(cluster.clone()).or_insert_with(full);
        let elapsed = now.saturating_duration_since(bucket.filled).as_secs_f64();
        bucket.tokens = (bucket.tokens + elapsed * rate).min(BURST);
        bucket.filled = now;
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
        for _ in 0..10 {
            assert_eq!(budgets.take(&writes("busy", 50), &own, now), Ok(()));
        }
        let wait = budgets.take(&writes("busy", 1), &own, now).unwrap_err();
        assert!(wait <= Duration::from_millis(10), "{wait:?}");
        assert_eq!(budgets.take(&writes("quiet", 1), &own, now), Ok(()));
        assert_eq!(budgets.take(&writes("own", 10_000), &own, now), Ok(()));
        let later = now + Duration::from_secs(1);
        assert_eq!(budgets.take(&writes("busy", 1000), &own, later), Ok(()), "in debt then");
        let wait = budgets.take(&writes("busy", 1), &own, later).unwrap_err();
        assert!(wait > Duration::from_secs(8), "{wait:?}");
    }
}
