//! What the report says of the ways to other clusters.

use mcs_kube::{reach::Way, report::ReachReport};

use super::WayId;
use crate::core::model::FrontendId;

/// The way to the pods of a source cluster in one IP family.
pub(super) fn report((cluster, family): &WayId, way: &Way<FrontendId>) -> ReachReport {
    let (reached, silent) = way.counts();
    let is_broken = way.is_whole() == Some(false);
    let silent_endpoints = way.lost().0.iter().filter(|_| is_broken);
    ReachReport {
        cluster: cluster.to_string(),
        family: family.name().to_owned(),
        reachable: way.is_whole(),
        reached,
        silent,
        round_trip_micros: way
            .round_trip()
            .map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
        silent_endpoints: silent_endpoints.map(|(address, _)| *address).collect(),
    }
}

/// Logs that the way has turned.
pub(super) fn log(id: &WayId, way: &Way<FrontendId>) {
    let report = report(id, way);
    if let Some(problem) = report.problem() {
        tracing::warn!("{problem}");
    } else {
        tracing::info!("this node reaches pods of cluster {} by {}", id.0, id.1.name());
    }
}
