//! Logs on standard error, for people or as JSON.

use std::{
    fmt::{self, Debug},
    io::{self, IsTerminal as _},
};

use clap::ValueEnum;
use tracing::{field::Field, level_filters::LevelFilter};
use tracing_subscriber::{
    EnvFilter,
    fmt::format::{Writer, debug_fn},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use super::ParseError;

/// How to log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LogFormat {
    /// A line for people
    Human,
    /// One JSON object per line
    Json,
}

/// What to log.
#[derive(Clone, Debug)]
pub struct LogFilter {
    directives: String,
}

impl LogFilter {
    /// Reads a level, which stands for the program's directives of that level, or directives.
    ///
    /// # Errors
    /// If the text is neither.
    pub fn parse(text: &str, of_level: fn(LevelFilter) -> String) -> Result<Self, ParseError> {
        let directives = text.parse().map_or_else(|_| text.to_owned(), of_level);
        EnvFilter::try_new(&directives)?;
        Ok(Self { directives })
    }
}

/// Starts logging to standard error.
pub fn start_logs(format: LogFormat, filter: &LogFilter) {
    let registry = tracing_subscriber::registry().with(EnvFilter::new(&filter.directives));
    let writer = tracing_subscriber::fmt::layer()
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr);
    match format {
        LogFormat::Human => {
            registry.with(writer.fmt_fields(debug_fn(write_field)).with_target(false)).init();
        }
        // Log pipelines expect `message`, `namespace` and `name` on the level of `level`.
        LogFormat::Json => registry.with(writer.json().flatten_event(true)).init(),
    }
}

/// Writes a field for people: the message names the object already.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    match field.name() {
        "message" => write!(writer, "{value:?}"),
        "namespace" | "name" => Ok(()),
        name => write!(writer, " {name}={value:?}"),
    }
}
