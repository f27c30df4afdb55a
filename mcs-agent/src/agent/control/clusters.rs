//! Source clusters that this node itself finds to be out of use: silent ones none of whose pods it reaches, and drained ones whose
//! deadline is over.

use jiff::Timestamp;

use super::Control;
use crate::engine::OutOfUse;

impl Control {
    /// Looks which clusters are out of use, and says what has changed. Returns whether a round is due.
    pub(super) fn judge_clusters(&mut self) -> bool {
        let before = self.engine.out_of_use().clone();
        let traffic = &self.engine.node().facts.traffic;
        self.reach.hurry(traffic);
        // Nobody asks pods of a cluster that is not used. So it is not used again before its controller is heard.
        let how = |cluster: &str| match (before.ejected.get(cluster), self.reach.silent(cluster)) {
            (Some(before), Some(now)) => Some(before.and(now)),
            (before, now) => before.copied().or(now),
        };
        let ejected = traffic
            .ejectable()
            .filter_map(|cluster| Some((cluster.clone(), how(cluster)?)))
            .collect();
        let now = OutOfUse { ejected, past_deadline: traffic.past_deadline(Timestamp::now()) };
        for (cluster, how) in
            now.ejected.iter().filter(|(id, how)| before.ejected.get(*id) != Some(how))
        {
            let family = how.family();
            tracing::warn!(
                "cluster {cluster} is silent, and none of its pods answers this node{family}: new clients and UDP clients get \
                 other clusters"
            );
        }
        for cluster in before.ejected.keys().filter(|id| !now.ejected.contains_key(*id)) {
            tracing::info!("new clients get cluster {cluster} again");
        }
        for cluster in now.past_deadline.difference(&before.past_deadline) {
            tracing::info!(
                "the drain of cluster {cluster} is past its deadline: former clients leave it too"
            );
        }
        self.engine.set_out_of_use(now)
    }
}
