//! `mcs-agent trace`: what the programs decide, as they decide it. The agent attaches programs that write events, and passes
//! their ring buffer to the command. This module has the code that both share, and the names of the objects in events.

mod channel;
pub mod cli;
pub mod control;
mod events;
mod names;
pub mod server;
mod view;

pub(crate) use self::{
    channel::{Channel, Client, Listener},
    events::TraceFilter,
    names::Names,
};

use clap::{Args as _, Command, FromArgMatches as _};

use mcs_common::TraceEvent;

use crate::core::{
    feature::{Definition, Verb},
    kernel::loader::Setting,
};

/// Trace in the list of features.
pub const FEATURE: Definition = Definition {
    // A log tells the same.
    settings: |_, config| Ok(settings(config.log_programs, 1)),
    start: |_, core| {
        let server = server::TraceServer::start(&core.installed.run_directory);
        Ok(Some(Box::new(control::Trace { server, order: None })))
    },
    verbs: &[Verb {
        command: || cli::TraceArgs::augment_args(Command::new("trace")),
        run: |_, matches| cli::run(&cli::TraceArgs::from_arg_matches(matches)?),
    }],
    ..Definition::named("trace")
};

/// Whether the programs tell what they decide, and how large their ring buffer is, which the kernel rounds up to a page.
fn settings(is_told: bool, bytes: u32) -> Vec<Setting> {
    vec![Setting::Constant("TRACE", u8::from(is_told)), Setting::Entries(TraceEvent::MAP, bytes)]
}
