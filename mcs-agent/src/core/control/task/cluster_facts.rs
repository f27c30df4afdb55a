//! What the cluster says of its ranges of ClusterSetIPs and of drains: log lines, and drains past their deadlines.

use jiff::Timestamp;

use super::Control;
use crate::core::model::VIP_RANGES_PROPERTY;

impl Control {
    /// Looks which drains are past their deadlines. Returns whether a round is due.
    pub(super) fn note_deadlines(&mut self) -> bool {
        let engine = &mut self.core.engine;
        let over = engine.node().facts.traffic.past_deadline(Timestamp::now());
        for cluster in over.difference(engine.past_deadline()) {
            tracing::info!(
                "the drain of cluster {cluster} is past its deadline: former clients leave it too"
            );
        }
        engine.set_past_deadline(over)
    }
}

impl Control {
    /// Logs which addresses can be ClusterSetIPs, whenever the cluster says others.
    pub(super) fn log_vip_ranges(&mut self) {
        let node = self.core.engine.node();
        if self.logged_vip_ranges.as_ref() == Some(&node.facts.vip_ranges) {
            return;
        }
        self.logged_vip_ranges = Some(node.facts.vip_ranges.clone());
        if let Some(accepted) = node.accepted_vips() {
            tracing::info!("ClusterSetIPs are those of {accepted}");
        } else {
            tracing::warn!(
                "an import can claim any address: neither --vip-cidr nor ClusterProperty {VIP_RANGES_PROPERTY} has ranges"
            );
        }
    }
}
