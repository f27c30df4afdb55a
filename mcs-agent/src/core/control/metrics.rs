//! The metrics, in the text format of Prometheus.
//!
//! The control task updates [`SyncMetrics`]. [`scrape`] reads all other values from the latest report and the kernel,
//! at each scrape, on the thread that answers it.

mod families;
mod scrape;
mod sync;

pub(crate) use families::Families;
pub(super) use scrape::scrape;
pub(crate) use scrape::{bytes, figure, truth};
pub(super) use sync::SyncMetrics;

/// Counts what is of source clusters without series of their own.
pub(crate) const OTHER: &str = "other";
/// Counts what is of slices that name no source cluster.
pub(crate) const UNKNOWN: &str = "unknown";
