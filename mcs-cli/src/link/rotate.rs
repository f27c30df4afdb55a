//! `mcs rotate`: new tokens for existing links.

use std::process::ExitCode;

use clap::Args;
use mcs_kube::program;

use super::{LinkArgs, LinkCommand, credentials::TokenArgs, link_all, show};

/// Replace the tokens by which clusters read each other.
///
/// For each link between the clusters it makes the ServiceAccount in the mailbox anew, which ends all its tokens, and stores
/// a new token in the Secret of the reader. What is imported stays meanwhile. ClusterPeers stay as they are. With two clusters it
/// rotates this pair alone. Where no machine has both kubeconfigs, `invite --rotate` and `join` do the same.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs rotate --context east --context west
  mcs rotate east.conf west.conf south.conf --hub hub.conf")]
pub(crate) struct RotateCommand {
    #[command(flatten)]
    link: LinkArgs,

    #[command(flatten)]
    token: TokenArgs,
}

pub(crate) fn rotate(command: RotateCommand) -> anyhow::Result<ExitCode> {
    let RotateCommand { link, token } = command;
    let mut command = LinkCommand { rotate: true, ..LinkCommand::of(link, token) };
    let done = program::block_on(link_all(&mut command))?;
    show(&command.link.format, &done)
}
