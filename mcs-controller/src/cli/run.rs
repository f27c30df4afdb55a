//! `mcs-controller run`: flags and their values.

use std::{process::ExitCode, sync::Arc};

use clap::{Args, builder::BoolishValueParser};
use mcs_kube::program::{self, Listen, LogFilter, LogFormat, ParseError, http};

use crate::{
    controller::{self, Settings},
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

    /// Serve a page for people at /page of these addresses too, to clients in the same network namespace alone, such as a
    /// port-forward: `mcs ui --controller`
    #[arg(long, env = "MCS_PAGE", value_parser = BoolishValueParser::new())]
    page: bool,

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
        format!(
            "warn,kube_client=off,kube_lease_manager=off,mcs_controller={level},mcs_kube={level}"
        )
    })
}

pub(super) fn run(mut args: RunArgs) -> anyhow::Result<ExitCode> {
    program::start_logs(args.log_format, &args.log);
    let published = Arc::new(Published::new(args.page)?);
    let counting = Arc::clone(&published);
    let beside = async move { counting.follow_figures().await };
    http::start(args.health_address.0, args.metrics_address.0, &published, beside)?;
    args.settings.check()?;
    args.settings.health = args.health_address.0;
    program::block_on(controller::run(args.settings, published))?;
    Ok(ExitCode::SUCCESS)
}
