//! What is logged of the ranges of ClusterSetIPs.

use super::Control;
use crate::core::model::VIP_RANGES_PROPERTY;

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
