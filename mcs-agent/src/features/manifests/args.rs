//! The flag.

use std::path::PathBuf;

use anyhow::bail;
use clap::{ArgMatches, Args, Command, FromArgMatches as _};

use crate::core::source::ReadFrom;

/// The section of what an agent reads.
const SECTION: &str = "manifests";

#[derive(Debug, Args)]
struct ManifestArgs {
    /// Read objects from the *.yaml, *.yml and *.json files of this directory, and follow changes
    /// instead of an API server
    #[arg(long, env = "MCS_MANIFESTS", value_name = "DIR", conflicts_with_all = ["kubeconfig", "import_selector"])]
    manifests: Option<PathBuf>,
}

pub(super) fn flags(command: Command) -> Command {
    ManifestArgs::augment_args(command)
}

pub(super) fn reads(matches: &ArgMatches, from: &mut ReadFrom) -> anyhow::Result<()> {
    let directory = ManifestArgs::from_arg_matches(matches)?.manifests;
    if let Some(file) = directory.as_ref().filter(|path| path.is_file()) {
        bail!("--manifests {} is a file: give its directory", file.display());
    }
    if let Some(path) = directory.as_ref().filter(|path| path.to_str().is_none()) {
        bail!("--manifests {} is not UTF-8: give the directory another name", path.display());
    }
    // Another process that reads there too may be in another directory.
    let directory = directory.map(|path| std::path::absolute(&path).unwrap_or(path));
    from.sections.set(SECTION, &directory);
    Ok(())
}

/// The directory, if objects are read from one.
pub(super) fn directory(from: &ReadFrom) -> Option<PathBuf> {
    from.sections.get::<Option<PathBuf>>(SECTION)?
}
