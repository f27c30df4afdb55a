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
        let ejected = traffic
            .ejectable()
            .filter(|cluster| before.ejected.contains(*cluster) || self.reach.is_silent(cluster))
            .cloned()
            .collect();
        let now = OutOfUse { ejected, past_deadline: traffic.past_deadline(Timestamp::now()) };
        for cluster in now.ejected.difference(&before.ejected) {
            tracing::warn!(
                "cluster {cluster} is silent, and none of its pods answers this node: new clients get other clusters"
            );
        }
        for cluster in before.ejected.difference(&now.ejected) {
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
