//! Logs, as the agent has them.

use std::io::IsTerminal as _;

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{
    EnvFilter, filter::ParseError, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// How to log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line for people
    Human,
    /// One JSON object per line
    Json,
}

/// What to log.
#[derive(Clone, Debug)]
pub(crate) struct LogFilter {
    directives: String,
}

impl LogFilter {
    /// A level alone is the controller's: libraries say what is wrong only.
    pub(crate) fn parse(text: &str) -> Result<Self, ParseError> {
        let directives = match text.parse::<LevelFilter>() {
            Ok(level) => {
                format!(
                    "warn,kube_client=off,kube_lease_manager=off,mcs_controller={level},mcs_kube={level}"
                )
            }
            Err(_) => text.to_owned(),
        };
        EnvFilter::try_new(&directives)?;
        Ok(Self { directives })
    }
}

/// Starts logging to standard error.
pub(crate) fn init(format: LogFormat, filter: &LogFilter) {
    let registry = tracing_subscriber::registry().with(EnvFilter::new(&filter.directives));
    let writer = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Human => registry.with(writer.with_target(false)).init(),
        LogFormat::Json => registry.with(writer.json()).init(),
    }
}
