//! Source clusters whose drain is past its deadline.

use jiff::Timestamp;

use super::Control;

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
