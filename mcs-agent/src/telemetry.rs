//! Logs.

use std::{
    fmt::{self, Debug},
    io::IsTerminal as _,
};

use clap::ValueEnum;
use tracing::{field::Field, level_filters::LevelFilter};
use tracing_subscriber::{
    EnvFilter,
    filter::ParseError,
    fmt::format::{Writer, debug_fn},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
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
    /// A level alone is the agent's: libraries say what is wrong only, and the programs say what
    /// they were told to log. (Those of netlink would repeat at every look what they do not know of
    /// a device.)
    pub(crate) fn parse(text: &str) -> Result<Self, ParseError> {
        let directives = match text.parse::<LevelFilter>() {
            Ok(level) => format!(
                "warn,netlink_proto=off,netlink_packet_route=off,kube_client=off,mcs_agent={level},mcs_kube={level},mcs_ebpf=debug"
            ),
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
        LogFormat::Human => {
            registry.with(writer.fmt_fields(debug_fn(write_field)).with_target(false)).init();
        }
        // `message`, `namespace` and `name` beside `level`, as log pipelines expect them.
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
