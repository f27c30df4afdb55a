//! The running agent: one task takes the changes of the source, runs the engine on them, and repairs what other
//! processes change. Threads serve health and metrics, and attach programs to devices.

mod address_filter;
mod addresses;
mod audit;
mod config;
mod control;
mod cpu;
mod figures;
mod health;
mod kernel;
mod malloc;
mod metrics;
mod programs;
mod published;
mod rejections;
mod repairs;
mod report;
mod run_directory;
mod server;
mod source_lost;
mod start;
mod status_file;
mod tc;
mod trace;

use std::{
    pin::{Pin, pin},
    sync::Arc,
};

use anyhow::{Context as _, bail};
use mcs_kube::program::until_signal;
use tokio::sync::mpsc;

pub(crate) use addresses::of_this_node as node_addresses;
pub use audit::{AuditPass, AuditReport};
pub use config::{Config, ReadFrom, SocketLb, SourceConfig, TcAttach};
pub(crate) use health::unfollowed;
pub use health::{Attachments, Check, age, failings};
pub use malloc::share_heap;
pub use repairs::{Repaired, Repairs};
#[cfg(test)]
pub(crate) use report::fixture::report as report_fixture;
pub use report::{AgentInfo, FilterReport, Report};
pub use run_directory::ReportError;
pub(crate) use run_directory::{remove_files, run_directory_mark};
pub use start::Start;
#[cfg(test)]
pub(crate) use tc::fixture as tc_fixture;
pub use tc::{DeviceReport, TcReport};

use self::{
    control::Control, metrics::SyncMetrics, programs::InstalledPrograms, published::Published,
};
pub use crate::engine::Usage;
use crate::{
    model::EventBatch,
    source::{KubernetesSource, ManifestSource},
};

/// Batches that wait while one is being applied; what waits is merged.
const WAITING_BATCHES: usize = 64;

/// Runs until SIGTERM or SIGINT. The dataplane stays in place.
pub async fn run(config: Config) -> anyhow::Result<()> {
    let (sender, receiver) = mpsc::channel(WAITING_BATCHES);
    Box::pin(run_on(&config, source(&config, sender), receiver, until_signal()))
        .await
        .inspect(|()| tracing::info!("stopping; the dataplane stays in place"))
}

/// Runs on batches from elsewhere, in the place of the source that `config` names, until they end.
pub async fn follow(config: Config, batches: mpsc::Receiver<EventBatch>) -> anyhow::Result<()> {
    let none: Source = Box::pin(std::future::pending());
    let source = std::future::ready(Ok(none));
    Box::pin(run_on(&config, source, batches, std::future::pending())).await
}

/// A source at work, once it is polled.
type Source = Pin<Box<dyn Future<Output = ()>>>;

async fn run_on(
    config: &Config,
    source: impl Future<Output = anyhow::Result<Source>>,
    batches: mpsc::Receiver<EventBatch>,
    stop: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let agent = AgentInfo::of_this_process();
    let result = run_as(&agent, config, source, batches, stop).await;
    result.inspect_err(|error| start::note_failure(config, agent, error))
}

async fn run_as(
    agent: &AgentInfo,
    config: &Config,
    source: impl Future<Output = anyhow::Result<Source>>,
    batches: mpsc::Receiver<EventBatch>,
    stop: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let start = async {
        tracing::info!(version = env!("CARGO_PKG_VERSION"), "starting");
        let metrics = SyncMetrics::new().context("cannot make the metrics")?;
        let published = Arc::new(Published::new(metrics));
        server::start(config, &published).context("cannot serve health and metrics")?;
        let install = async {
            let source = source.await?;
            anyhow::Ok((source, InstalledPrograms::start(config, agent).await?))
        };
        let (source, installed) = published.life.beat_during(install).await?;
        anyhow::Ok((source, Control::new(agent.clone(), installed, published)?))
    };
    let mut stop = pin!(stop);
    let (source, mut control) = tokio::select! {
        biased;
        // First, since a container's first process misses a signal that it does not handle yet.
        stopped = &mut stop => return stopped,
        started = start => started?,
    };
    tokio::select! {
        biased;
        stopped = stop => stopped?,
        () = source => bail!("the source of objects ended"),
        result = control.run(batches) => return result,
    }
    control.stop().await;
    Ok(())
}

/// The source that `config` names.
async fn source(config: &Config, batches: mpsc::Sender<EventBatch>) -> anyhow::Result<Source> {
    Ok(match &config.source {
        SourceConfig::Manifests(directory, scope) => {
            Box::pin(ManifestSource::with_scope(directory.clone(), scope.clone()).run(batches))
        }
        SourceConfig::Kubernetes(options) => {
            Box::pin(KubernetesSource::new(options.clone()).await?.run(batches))
        }
    })
}
