//! `mcs bundle`: an archive of diagnostic data.

mod archive;
mod events;
mod mask;
mod sources;

use std::{collections::BTreeSet, path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::Args;
use jiff::Timestamp;
use mcs_kube::program::{self, print};
use serde_json::json;

use self::{archive::Archive, mask::Mask};
use crate::{contexts, exit::UNASKED, kubeconfig::ClusterArgs};

/// Collect status, services, flows, logs and objects of all clusters in one archive, for somebody who looks for a fault
///
/// For each cluster: `mcs status`, the objects of the Multi-Cluster Services API and of this project with the Events about them, the
/// configuration of CoreDNS, the pods of agents and controllers with their logs, and from the agent of each node its report, imports, frontends in the maps, and flows. It reads
/// no Secret, and leaves out the values of variables other than MCS_*. What cannot be read is a line in `failures.txt`, and the rest is collected all the same.
/// Without kubeconfigs it collects from the clusters of all contexts.
///
/// Exits with 0 if all was collected, with 3 if something could not be.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs bundle
  mcs bundle --context east --context west --mask-addresses --output for-support.tar.gz")]
pub(super) struct BundleCommand {
    #[command(flatten)]
    clusters: ClusterArgs,

    /// The archive, which its owner alone may read, and which must not be there yet [default: mcs-bundle-TIME.tar.gz]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace each IP address by a number, the same one everywhere. Names of nodes, namespaces, services and servers stay
    #[arg(long)]
    mask_addresses: bool,

    /// The lines of each log, the last ones; of each at most 1 MiB
    #[arg(long, value_name = "LINES", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    log_lines: u32,
}

pub(super) fn run(command: &BundleCommand) -> anyhow::Result<ExitCode> {
    let named = command.clusters.named()?;
    let now = Timestamp::now();
    let path = command
        .output
        .clone()
        .unwrap_or_else(|| format!("mcs-bundle-{}.tar.gz", now.strftime("%Y%m%dT%H%M%SZ")).into());
    let failures = program::block_on(async {
        let contexts = contexts::open(&named).await?;
        let mask = command.mask_addresses.then(Mask::default);
        let mut archive = Archive::create(&path, mask)
            .with_context(|| format!("cannot write {}", path.display()))?;
        let directories = directories(contexts.clusters.iter().map(|one| one.id.as_str()));
        let about = json!({
            "time": now.to_string(),
            "mcs": env!("CARGO_PKG_VERSION"),
            "addresses_masked": command.mask_addresses,
            "clusters": directories,
        });
        archive.json("bundle.json", &about)?;
        for one in &contexts.unasked {
            archive.fail(&one.name, &one.error);
        }
        for (cluster, directory) in contexts.clusters.iter().zip(&directories) {
            sources::collect(cluster, directory, command.log_lines, &mut archive).await?;
        }
        archive.finish()
    })?;
    print(&path.display().to_string())?;
    if failures == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "mcs: parts that could not be collected: {failures}; failures.txt in the archive lists them"
    );
    Ok(UNASKED.into())
}

/// A name for each cluster: its id, and `id-2` for another with this id.
fn directories<'a>(ids: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let name = |id: &str| {
        let others = (2..).map(|number| format!("{id}-{number}"));
        let mut names = std::iter::once(id.to_owned()).chain(others);
        names.find(|name| taken.insert(name.clone())).unwrap_or_default()
    };
    ids.map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_clusters_of_one_id_have_two_directories() {
        let ids = ["east", "east", "east-2", "west"];
        assert_eq!(directories(ids.into_iter()), ["east", "east-2", "east-2-2", "west"]);
    }
}
