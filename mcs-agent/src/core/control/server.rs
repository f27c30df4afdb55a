//! Health, metrics and the routes of features over HTTP, and the news that the process ends, which the control task may be too busy to tell.

mod answer;

use std::sync::Arc;

use futures_util::future::join_all;
use mcs_kube::program::{http, until_signal};

pub(super) use self::answer::Answers;
use super::{config::Config, published::Published};
use crate::core::{feature::ChosenFeatures, kernel::loader::Pins};

/// Serves what `config` asks for, as long as the process runs. Returns when every address was tried
/// once.
pub(super) fn start(
    config: &Config,
    features: &ChosenFeatures,
    published: &Arc<Published>,
) -> anyhow::Result<()> {
    let ChosenFeatures { list: features, flags } = features;
    let routes = features.iter().filter_map(|feature| (feature.route)(flags));
    let answers = Arc::new(Answers {
        published: Arc::clone(published),
        pins: Pins::new(&config.bpffs),
        features,
        patience: config.liveness_timeout,
        routes: routes.collect(),
    });
    let (published, answering) = (Arc::clone(published), Arc::clone(&answers));
    let beside = async move {
        tokio::spawn(async move {
            join_all(answering.routes.iter().map(|route| route.beside(&answering.pins))).await;
        });
        match until_signal().await {
            Ok(()) => published.life.stop(),
            Err(error) => tracing::warn!("/readyz will not tell that the agent ends: {error:#}"),
        }
    };
    http::start(config.health_address, config.metrics_address, &answers, beside)
}
