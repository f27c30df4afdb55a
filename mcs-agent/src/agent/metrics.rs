//! The metrics, in the text format of Prometheus.
//!
//! What the control task does is counted as it happens ([`SyncMetrics`]); how things stand is read at
//! each scrape ([`Scrape`]), from the latest report and from the kernel, on the thread that serves it.

mod families;
mod process;
mod scrape;
mod sync;

pub(super) use scrape::Scrape;
pub(super) use sync::SyncMetrics;
