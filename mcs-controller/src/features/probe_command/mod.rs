//! `mcs probe`: whether endpoints of other clusters answer where it runs. `mcs check` runs it in pods of the controller's
//! image, as `mcs probe`.

use std::{fs, net::SocketAddr, path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::{Args, Command, FromArgMatches as _};
use mcs_kube::{
    program::{self, FormatArgs},
    reach::{Found, Outcome, Target, Targets, source::Source},
};
use serde::Serialize;

use crate::core::feature::{Entry, Verb};

/// The feature in the list: a command that `mcs check` runs.
pub(crate) const ENTRY: Entry = Entry {
    verb: Some(Verb {
        command: || {
            let about = "`mcs check` runs it in pods of the controller's image";
            let command = ProbeCommand::augment_args(Command::new("probe"));
            command.about(about).long_about(None).hide(true)
        },
        run: |matches| run(&ProbeCommand::from_arg_matches(matches)?),
    }),
    ..Entry::NONE
};

/// Connect to endpoints of other clusters.
///
/// Opens a TCP connection to each address, sends nothing, and closes it. `check` runs it in a pod. Exits with 1 if an
/// address is not reached; one that refuses is reached. `--ask` tells whether source addresses are masqueraded on the way.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs probe 10.2.1.5:8080 [fd02::5]:8080
  mcs probe web.shop.svc.clusterset.local:80 --wait 30
  mcs probe --ask 10.2.0.7:16460")]
pub struct ProbeCommand {
    #[command(flatten)]
    targets: Targets,

    /// Also write the results into this file, as JSON
    #[arg(long, value_name = "FILE")]
    outcomes: Option<PathBuf>,

    #[command(flatten)]
    format: FormatArgs,
}

/// One line of the output.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Line<'a> {
    Connected { address: &'a Target, outcome: Outcome },
    Asked { address: &'a SocketAddr, source: Option<Source> },
}

impl Line<'_> {
    fn row(&self) -> Vec<String> {
        match self {
            Self::Connected { address, outcome } => {
                vec![address.to_string(), outcome.text().to_owned()]
            }
            Self::Asked { address, source } => {
                let seen = source.map(|Source { own, seen }| {
                    if own == seen {
                        format!("sees {seen}, the address of this end")
                    } else {
                        format!("sees {seen} instead of {own}")
                    }
                });
                let unsaid = "does not say what it sees";
                vec![address.to_string(), seen.unwrap_or_else(|| unsaid.to_owned())]
            }
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The outcomes cannot be written.
pub fn run(command: &ProbeCommand) -> anyhow::Result<ExitCode> {
    let ProbeCommand { targets, outcomes, format } = command;
    let found: Found = program::block_on(async { Ok(targets.probe().await) })?;
    if let Some(file) = outcomes {
        fs::write(file, serde_json::to_vec(&found)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    let connected = targets.addresses.iter().zip(&found.outcomes);
    let connected = connected.map(|(address, &outcome)| Line::Connected { address, outcome });
    let asked = targets.ask.iter().zip(&found.sources);
    let asked = asked.map(|(address, &source)| Line::Asked { address, source });
    let lines: Vec<_> = connected.chain(asked).collect();
    format.show(&lines, |lines, style| {
        style.table(&["ADDRESS", "RESULT"], lines.iter().map(Line::row))
    })?;
    let is_fine = found.outcomes.into_iter().all(Outcome::is_reached);
    Ok(if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
