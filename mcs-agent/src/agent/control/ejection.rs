//! Silent clusters that this node does not use, since it reaches none of their pods.

use std::collections::BTreeSet;

use super::Control;

impl Control {
    /// Ejects silent clusters none of whose pods this node reaches, until they are not silent any more. Returns whether a round is
    /// due.
    pub(super) fn eject(&mut self) -> bool {
        let before = self.engine.ejected().clone();
        let traffic = &self.engine.node().facts.traffic;
        self.reach.hurry(traffic);
        // Nobody asks pods of a cluster that is not used. So it is not used again before its controller is heard.
        let ejected: BTreeSet<_> = traffic
            .ejectable()
            .filter(|cluster| before.contains(*cluster) || self.reach.is_silent(cluster))
            .cloned()
            .collect();
        for cluster in ejected.difference(&before) {
            tracing::warn!(
                "cluster {cluster} is silent, and none of its pods answers this node: new clients get other clusters"
            );
        }
        for cluster in before.difference(&ejected) {
            tracing::info!("new clients get cluster {cluster} again");
        }
        self.engine.set_ejected(ejected)
    }
}
