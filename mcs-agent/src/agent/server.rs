//! Health, metrics and the page over HTTP, and the news that the process ends, which the control task may be too busy to tell.

mod answer;
mod page;

use std::sync::Arc;

use mcs_kube::program::{http, until_signal};

pub(super) use self::answer::Answers;
use super::{config::Config, published::Published};
use crate::loader::Pins;

/// Serves what `config` asks for, as long as the process runs. Returns when every address was tried
/// once.
pub(super) fn start(config: &Config, published: &Arc<Published>) -> anyhow::Result<()> {
    let answers = Arc::new(Answers {
        published: Arc::clone(published),
        pins: Pins::new(&config.bpffs),
        patience: config.liveness_timeout,
        figures: config.page.then(page::Figures::default),
    });
    let (published, counting) = (Arc::clone(published), Arc::clone(&answers));
    let beside = async move {
        tokio::spawn(async move {
            let Some(figures) = &counting.figures else { return };
            figures.follow(|| page::count(&counting.pins.state())).await;
        });
        match until_signal().await {
            Ok(()) => published.life.stop(),
            Err(error) => tracing::warn!("/readyz will not tell that the agent ends: {error:#}"),
        }
    };
    http::start(config.health_address, config.metrics_address, &answers, beside)
}
