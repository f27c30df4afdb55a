//! Logs.

use std::{borrow::Cow, io::IsTerminal as _};

use anyhow::Context as _;
use clap::ValueEnum;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{EnvFilter, layer::SubscriberExt as _, util::SubscriberInitExt as _};

/// How to log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line for people
    Human,
    /// One JSON object per line
    Json,
}

/// Starts logging to standard error.
pub(crate) fn init(format: LogFormat, filter: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(directives(filter))
        .with_context(|| format!("--log {filter}: try a level such as info or debug"))?;
    let registry = tracing_subscriber::registry().with(filter);
    let writer = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Human => registry.with(writer.with_target(false)).init(),
        LogFormat::Json => registry.with(writer.json()).init(),
    }
    Ok(())
}

/// A level alone is the agent's: libraries say what is wrong only, and the programs say what they
/// were told to log.
fn directives(filter: &str) -> Cow<'_, str> {
    match filter.parse::<LevelFilter>() {
        Ok(level) => format!("warn,mcs_agent={level},mcs_ebpf=debug").into(),
        Err(_) => filter.into(),
    }
}
