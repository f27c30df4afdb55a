//! The flag.

use std::collections::BTreeSet;

use clap::{ArgMatches, Args, Command, FromArgMatches as _};

use super::Controller;
use crate::core::source::ReadFrom;

/// The section of what an agent reads.
const SECTION: &str = "adopt";

#[derive(Debug, Args)]
struct AdoptArgs {
    /// Serve the objects of these controllers too, which do not follow KEP-1645 [default: none]
    #[arg(long, env = "MCS_ADOPT", value_name = "CONTROLLER", value_delimiter = ',')]
    adopt: Vec<Controller>,
}

pub(super) fn flags(command: Command) -> Command {
    AdoptArgs::augment_args(command)
}

pub(super) fn reads(matches: &ArgMatches, from: &mut ReadFrom) -> anyhow::Result<()> {
    let adopt: BTreeSet<_> = AdoptArgs::from_arg_matches(matches)?.adopt.into_iter().collect();
    from.sections.set(SECTION, &adopt);
    Ok(())
}

/// The controllers whose objects are adopted.
pub(super) fn adopted(from: &ReadFrom) -> BTreeSet<Controller> {
    from.sections.get(SECTION).unwrap_or_default()
}
