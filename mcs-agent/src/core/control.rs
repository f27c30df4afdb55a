//! The running agent. The thread `engine` takes the changes of the source, runs the engine on them, and repairs what other
//! processes change. The main thread follows the source and waits for signals. Other threads serve health and metrics, and
//! attach programs to devices.

mod addresses;
pub(crate) mod config;
pub(crate) mod health;
pub(crate) mod kernel;
pub(crate) mod metrics;
pub(crate) mod process;
pub(crate) mod programs;
pub(crate) mod published;
pub(crate) mod rejections;
mod repairs;
pub(crate) mod report;
pub(crate) mod run_directory;
pub(crate) mod server;
mod start;
pub mod state;
mod status_file;
pub mod task;
mod tc;

use std::{future::pending, pin::pin, sync::Arc};

use anyhow::{Context as _, anyhow};
use mcs_kube::program::{self, until_signal};
pub use mcs_kube::report::{AgentInfo, Start};
use tokio::sync::{mpsc, oneshot};

pub use self::repairs::{Repaired, Repairs};
use self::{metrics::SyncMetrics, programs::InstalledPrograms, published::Published};
use super::feature::{self, ChosenFeatures};
pub use crate::core::engine::Usage;
use crate::core::{control::task::Control, model::EventBatch, source::Running};
pub(crate) use addresses::of_this_node as node_addresses;
pub use config::{Config, SocketLb, TcAttach};
pub(crate) use health::unfollowed;
pub use health::{Attachments, Check, age};
pub use process::share_heap;
pub use report::Report;
#[cfg(test)]
pub(crate) use report::fixture::report as report_fixture;
pub use run_directory::ReportError;
pub(crate) use run_directory::{remove_files, run_directory_mark};
pub(crate) use start::read as read_start;
#[cfg(test)]
pub(crate) use tc::fixture as tc_fixture;
pub use tc::{DeviceReport, TcReport};

/// Batches that wait while the engine writes or gathers: those of 25 ms with 10,000 changes a second.
const WAITING_BATCHES: usize = 256;

/// Runs until SIGTERM or SIGINT. The dataplane stays in place.
pub async fn run(config: Config, features: ChosenFeatures) -> anyhow::Result<()> {
    let (sender, receiver) = mpsc::channel(WAITING_BATCHES);
    let filter = feature::filter(features.list, &config.source.from);
    let source = feature::source(features.list, &config.source.from)
        .unwrap_or_else(|| Box::new(config.source.clone()));
    let source = source.start(filter, sender);
    Box::pin(run_on(&config, &features, source, receiver, until_signal()))
        .await
        .inspect(|()| tracing::info!("stopping; the dataplane stays in place"))
}

/// Runs on batches from elsewhere, in the place of the source that `config` names, until they end.
pub async fn follow(
    config: Config,
    features: ChosenFeatures,
    batches: mpsc::Receiver<EventBatch>,
) -> anyhow::Result<()> {
    let none: Running = Box::pin(std::future::pending());
    let source = std::future::ready(Ok(none));
    Box::pin(run_on(&config, &features, source, batches, std::future::pending())).await
}

async fn run_on(
    config: &Config,
    features: &ChosenFeatures,
    source: impl Future<Output = anyhow::Result<Running>>,
    batches: mpsc::Receiver<EventBatch>,
    stop: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let agent = report::this_process();
    let result = run_as(&agent, config, features, source, batches, stop).await;
    result.inspect_err(|error| start::note_failure(config, agent, error))
}

async fn run_as(
    agent: &AgentInfo,
    config: &Config,
    features: &ChosenFeatures,
    source: impl Future<Output = anyhow::Result<Running>>,
    batches: mpsc::Receiver<EventBatch>,
    stop: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let (end, ending) = oneshot::channel();
    let start = async {
        tracing::info!(version = env!("CARGO_PKG_VERSION"), "starting");
        let metrics = SyncMetrics::new().context("cannot make the metrics")?;
        let published = Arc::new(Published::new(metrics));
        server::start(config, features, &published).context("cannot serve health and metrics")?;
        let source = published.life.beat_during(source);
        let source = published.main_life.beat_during(source).await?;
        let (ready, is_ready) = oneshot::channel();
        let run = {
            let (agent, config, features) = (agent.clone(), config.clone(), features.clone());
            let published = Arc::clone(&published);
            move || run_engine(agent, config, features, published, batches, ready, ending)
        };
        let engine = program::run_on_thread("engine", run)?;
        let source = async {
            match is_ready.await {
                Ok(()) => source.await,
                // The engine has ended.
                Err(_) => pending().await,
            }
        };
        anyhow::Ok((published, source, engine))
    };
    let mut stop = pin!(stop);
    let (published, source, engine) = tokio::select! {
        biased;
        // First, since a container's first process misses a signal that it does not handle yet.
        stopped = &mut stop => return stopped,
        started = start => started?,
    };
    let work = async {
        let mut engine = pin!(engine);
        let stopped = tokio::select! {
            biased;
            stopped = stop => stopped,
            ended = &mut engine => return ended,
            // It ends too when the engine fails, whose error says more.
            () = source => Err(anyhow!("the source of objects ended")),
        };
        drop(end);
        engine.await.and(stopped)
    };
    published.main_life.beat_during(work).await
}

/// What the thread `engine` does, until the batches end or the other half of `ending` is dropped: it takes the maps, tells
/// that by `ready`, and writes them.
async fn run_engine(
    agent: AgentInfo,
    config: Config,
    features: ChosenFeatures,
    published: Arc<Published>,
    batches: mpsc::Receiver<EventBatch>,
    ready: oneshot::Sender<()>,
    mut ending: oneshot::Receiver<()>,
) -> anyhow::Result<()> {
    let start = async {
        let settings = features.settings(&config)?;
        let install = InstalledPrograms::start(&config, settings, &agent);
        let installed = published.life.beat_during(install).await?;
        Control::new(agent.clone(), installed, &features, Arc::clone(&published))
    };
    let mut control = tokio::select! {
        biased;
        _ = &mut ending => return Ok(()),
        started = start => started?,
    };
    // Nobody waits for it if the agent ends.
    let _ = ready.send(());
    tokio::select! {
        biased;
        _ = ending => {}
        result = control.run(batches) => return result,
    }
    control.stop().await;
    Ok(())
}
