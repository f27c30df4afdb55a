//! The feature in the agent: it logs what `--adopt` would do.

use std::sync::Arc;

use clap::ArgMatches;

use super::offers::of_status;
use crate::core::{
    feature::{Core, Feature},
    model::SourceStatus,
};

/// Logs offers that are new.
struct OfferLog {
    /// The status after the batch before.
    known: Arc<SourceStatus>,
}

#[expect(clippy::unnecessary_wraps, reason = "the list calls each feature alike")]
pub(super) fn start(_: &ArgMatches, core: &mut Core) -> anyhow::Result<Option<Box<dyn Feature>>> {
    Ok(Some(Box::new(OfferLog { known: Arc::clone(core.engine.source()) })))
}

impl Feature for OfferLog {
    fn after_objects(&mut self, core: &mut Core) {
        let now = core.engine.source();
        if Arc::ptr_eq(&self.known, now) {
            return;
        }
        let (known_objects, known_groups) = of_status(&self.known);
        let (objects, groups) = of_status(now);
        for one in objects {
            if known_objects.iter().all(|known| known.controller != one.controller) {
                tracing::info!("{}", one.offer());
            }
        }
        for group in groups.iter().filter(|group| !known_groups.contains(group)) {
            tracing::info!("{}", group.offer());
        }
        self.known = Arc::clone(now);
    }
}
