//! `mcs-controller run`: flags and their values.

use std::{process::ExitCode, sync::Arc};

use clap::{ArgMatches, Args};
use futures_util::future::{BoxFuture, join_all};
use mcs_kube::program::{self, Listen, LogFilter, LogFormat, ParseError, http};
use tokio::sync::watch;

use crate::core::{
    control::{self, Settings},
    feature::{Entry, Features, Wiring},
    server::Published,
};

/// Run the controller.
///
/// Publishes the Services that this cluster exports, and imports those of its peers: it writes ServiceImports, imported
/// EndpointSlices and the status of ServiceExports. When it ends, what it has written stays.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs-controller run
  mcs-controller run --kubeconfig east.conf --cluster-id east --clusterset shop
  mcs-controller run --mailbox-secret mailbox --mailbox mcs-east")]
pub struct RunArgs {
    #[command(flatten)]
    settings: Settings,

    /// Serve /livez and /readyz here, or `off`. Each address serves all paths
    #[arg(
        long,
        env = "MCS_HEALTH_ADDRESS",
        value_name = "IP:PORT",
        default_value = "127.0.0.1:16460"
    )]
    health_address: Listen,

    /// Serve /metrics here, or `off`
    #[arg(
        long,
        env = "MCS_METRICS_ADDRESS",
        value_name = "IP:PORT",
        default_value = "127.0.0.1:16461"
    )]
    metrics_address: Listen,

    /// How to log, on standard error
    #[arg(long, env = "MCS_LOG_FORMAT", value_name = "FORMAT", default_value = "human")]
    log_format: LogFormat,

    /// What to log: error, warn, info, debug, trace, or directives (`warn,mcs_controller=debug`)
    #[arg(long, env = "MCS_LOG", value_name = "FILTER", default_value = "info",
        value_parser = log_filter)]
    log: LogFilter,
}

/// A level alone is the controller's: libraries say what is wrong only.
fn log_filter(text: &str) -> Result<LogFilter, ParseError> {
    LogFilter::parse(text, |level| {
        format!("warn,kube_client=off,mcs_controller={level},mcs_kube={level}")
    })
}

pub(super) fn run(
    mut args: RunArgs,
    features: &[Entry],
    matches: &ArgMatches,
) -> anyhow::Result<ExitCode> {
    program::start_logs(args.log_format, &args.log);
    let mut beside = vec![];
    let (published, features) = start(&mut args, features, matches, &mut beside)?;
    let beside = async { drop(join_all(beside).await) };
    http::start(args.health_address.0, args.metrics_address.0, &published, beside)?;
    args.settings.check()?;
    program::block_on(control::run(args.settings, published, features))?;
    Ok(ExitCode::SUCCESS)
}

/// Starts the features.
fn start(
    args: &mut RunArgs,
    features: &[Entry],
    matches: &ArgMatches,
    beside: &mut Vec<BoxFuture<'static, ()>>,
) -> anyhow::Result<(Arc<Published>, Features)> {
    let mut published = Published::new()?;
    let mut wiring = Wiring {
        settings: &mut args.settings,
        health: args.health_address.0,
        published: &mut published,
        beside,
    };
    let features = Features::start(features, matches, &mut wiring)?;
    Ok((Arc::new(published), features))
}

/// Plays a controller in the runtime of the caller, until it is `stopped`.
pub(super) async fn play(
    mut args: RunArgs,
    features: &[Entry],
    matches: &ArgMatches,
    stopped: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let (published, features) = start(&mut args, features, matches, &mut vec![])?;
    args.settings.check()?;
    Box::pin(control::control(args.settings, published, features, stopped)).await
}
