//! Growth: larger maps replace maps that run short, with nothing else in flight.

use std::time::Instant;

use super::{Control, seconds_since_epoch};
use crate::core::model::Capacity;

impl Control {
    /// Replaces the maps by larger ones. Nothing else happens in this task meanwhile.
    pub(super) async fn grow(&mut self, capacity: Capacity) {
        self.features.release(&mut self.core, "the agent moves to larger maps: trace again").await;
        let began = Instant::now();
        let contents = self.core.engine.realized().contents().clone();
        let growth = self.core.installed.grow(capacity, contents);
        let grown = self.core.published.life.beat_during(growth).await;
        let now = Instant::now();
        match grown {
            Ok(()) => {
                self.core.engine.has_grown(capacity);
                self.grown_at = Some(seconds_since_epoch());
                tracing::info!(
                    vips = capacity.vips,
                    frontends = capacity.frontends,
                    endpoints = capacity.endpoints,
                    clusters = capacity.clusters,
                    micros = now.duration_since(began).as_micros(),
                    "moved to larger maps"
                );
            }
            Err(error) => {
                let known = self.core.engine.not_grown().map(str::to_owned);
                let delay = self.core.engine.has_not_grown(&error, now);
                let why = self.core.engine.not_grown().unwrap_or_default();
                if known.as_deref() == Some(why) {
                    tracing::debug!("{why}; trying again in {delay:?}");
                } else {
                    tracing::warn!("{why}; trying again in {delay:?}, and later each time");
                }
            }
        }
        self.core.report_soon();
    }
}
