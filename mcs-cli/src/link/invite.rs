//! `mcs invite` and `mcs join`: create the two halves of a link on two machines, each with the kubeconfig of one cluster.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context as _, ensure};
use clap::Args;
use ipnet::IpNet;
use jiff::Timestamp;
use mcs_kube::{
    is_unverified,
    program::{self, FormatArgs, print},
};

use super::{
    Linked,
    credentials::{Terms, TokenArgs},
    former::{Formers, pod_cidrs},
    halves::{Mailbox, Publisher, accept},
    invitation::{self, Facts, Invitation, Own},
    joined, show,
};
use crate::{
    check::addresses::{Ranges, ranges_of},
    cluster::{Cluster, PEERS},
    kubeconfig::ClusterArgs,
    pod_ranges::PodRanges,
};
use mcs_controller::core::clusterset::{ClusterId, well_known};

/// Invite another cluster to import from this one.
///
/// Makes a ServiceAccount for it, which may read the mailbox and renew its own token, and prints an invitation: a Secret with the
/// kubeconfig, the id and uid of this cluster, and its ranges of pods and ClusterSetIPs. `join` takes it in the other cluster.
/// Whoever has the invitation can read the mailbox until `rotate`, `unlink` or `forget`: send it as you send a password. For exports in both
/// directions each cluster invites and joins once.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs invite west --context east --output east-for-west.yaml
  mcs invite west east.conf | ssh west-admin mcs join - --context west")]
pub(crate) struct InviteCommand {
    /// The id of the cluster that is invited
    #[arg(value_name = "PEER")]
    peer: ClusterId,

    #[command(flatten)]
    clusters: ClusterArgs,

    /// The file for the invitation, which its owner alone may read [default: the standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// A pod range of this cluster; repeatable. The other cluster refuses endpoints outside [default: podSubnet of kubeadm, or else
    /// the ranges that its nodes have now]
    #[arg(long, value_name = "CIDR")]
    pod_cidr: Vec<IpNet>,

    /// How the other cluster reaches the API server of this one [default: as the kubeconfig says]
    #[arg(long, value_name = "URL")]
    server: Option<String>,

    /// The namespace of the controllers
    #[arg(long, env = "MCS_NAMESPACE", value_name = "NAMESPACE", default_value = "mcs-controller")]
    namespace: String,

    /// The namespace in which this cluster publishes
    #[arg(long, env = "MCS_MAILBOX", value_name = "NAMESPACE", default_value = "mcs-mailbox")]
    mailbox: String,

    /// End the tokens that the other cluster had before. It cannot read this one until it has joined again
    #[arg(long)]
    rotate: bool,

    #[command(flatten)]
    token: TokenArgs,
}

/// Import from a cluster that has invited this one.
///
/// Checks the invitation: it is for this cluster, the ranges of the two clusters do not overlap, and the API server of the other one
/// answers by it. Then it stores the Secret and makes the ClusterPeer. Run it again with the same or another invitation: what other
/// fields of the ClusterPeer say stays.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs join east-for-west.yaml --context west
  mcs join - west.conf < east-for-west.yaml")]
pub(crate) struct JoinCommand {
    /// The file with the invitation; `-` is the standard input
    #[arg(value_name = "FILE")]
    invitation: PathBuf,

    #[command(flatten)]
    clusters: ClusterArgs,

    /// Do not connect to the API server of the other cluster, since this machine does not reach it
    #[arg(long)]
    no_connect: bool,

    /// The other cluster was made anew under its id: keep nothing of the former one
    #[arg(long)]
    replace: bool,

    /// The namespace of the controllers
    #[arg(long, env = "MCS_NAMESPACE", value_name = "NAMESPACE", default_value = "mcs-controller")]
    namespace: String,

    #[command(flatten)]
    format: FormatArgs,
}

pub(crate) fn invite(command: &InviteCommand) -> anyhow::Result<ExitCode> {
    let text = program::block_on(invited(command))?;
    match &command.output {
        Some(path) => invitation::write(path, &text)?,
        None => print(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn join(command: &JoinCommand) -> anyhow::Result<ExitCode> {
    let done = program::block_on(joined_by(command))?;
    show(&command.format, &[done])
}

/// The cluster of this half of the link.
async fn one(clusters: &ClusterArgs) -> anyhow::Result<Cluster> {
    let named = clusters.named()?;
    ensure!(
        named.len() <= 1,
        "name one cluster: the other half is made with the other one's kubeconfig"
    );
    Cluster::open_all(&named).await?.pop().context("no cluster")
}

/// Creates the account of the other cluster. Returns the text of the invitation.
async fn invited(command: &InviteCommand) -> anyhow::Result<String> {
    let cluster = one(&command.clusters).await?;
    let (id, peer) = (&cluster.id, &command.peer);
    ensure!(id != peer, "this is cluster {id}: give the id of the cluster that is invited");
    let server = command.server.as_deref();
    ensure!(
        !is_unverified(server.unwrap_or(&cluster.server)),
        "{} would carry tokens in the clear: give --server https://...",
        server.unwrap_or(&cluster.server)
    );
    let mailbox = Mailbox { host: &cluster, namespace: command.mailbox.clone() };
    let publisher = Publisher::of(&cluster, mailbox, command.pod_cidr.clone()).await?;
    let PodRanges { ranges, warning, .. } = publisher.pods.clone();
    let seen = warning.clone().unwrap_or_default();
    ensure!(
        !ranges.is_empty(),
        "the pod range of cluster {id} is unknown: give --pod-cidr CIDR. {seen}"
    );
    let vips = ranges_of(&cluster, &command.namespace).await?.vips;
    let facts = Facts {
        cluster: id.clone(),
        cluster_uid: publisher.uid.clone(),
        reader: peer.clone(),
        clusterset: cluster.property(well_known::CLUSTERSET_PROPERTY).await?,
        mailbox: command.mailbox.clone(),
        pods: ranges,
        vips: vec![vips.v4.into(), vips.v6.into()],
    };
    let terms = Terms { server, seconds: command.token.token_seconds, is_anew: command.rotate };
    let credentials = publisher.let_read(peer, terms).await?;
    if let Some(warning) = joined(warning, credentials.warning.clone()) {
        eprintln!("mcs: {warning}");
    }
    eprintln!(
        "mcs: cluster {peer} may read {} of cluster {id}; the token expires at {} unless its controller renews it",
        command.mailbox,
        credentials.expires().unwrap_or_default()
    );
    invitation::text(&facts, &credentials, &command.namespace)
}

async fn joined_by(command: &JoinCommand) -> anyhow::Result<Linked> {
    let invitation = Invitation::read(&command.invitation)?;
    let namespace = &command.namespace;
    let reader = one(&command.clusters).await?;
    let own = own(&reader, namespace).await?;
    invitation.ensure_fits(&own, Timestamp::now())?;
    if !command.no_connect {
        invitation.ensure_reached().await?;
    }
    let mut formers = Formers::of(&reader, namespace).await?;
    let former = formers.get(&invitation.facts.cluster).await?;
    let former = former.kept(invitation.identity(), &reader.id, command.replace)?;
    let (offer, credentials) =
        ((invitation.identity(), &invitation.pods()), invitation.credentials());
    let mut done = accept(&reader, namespace, offer, Some(&credentials), &former).await?;
    done.warning = joined(done.warning, invitation.facts.other_vips(&own));
    Ok(done)
}

/// The identity and ranges of the joining cluster.
async fn own<'a>(cluster: &'a Cluster, namespace: &str) -> anyhow::Result<Own<'a>> {
    let Ranges { vips, services, mut pods } = ranges_of(cluster, namespace).await?;
    pods.extend(PodRanges::of_kubernetes(cluster).await?.ranges);
    let peers = cluster.list(PEERS).await?.into_iter().map(|peer| {
        let id = peer["spec"]["clusterId"].as_str().unwrap_or_default().to_owned();
        (id, pod_cidrs(&peer))
    });
    Ok(Own {
        id: &cluster.id,
        uid: cluster.uid().await?,
        clusterset: cluster.property(well_known::CLUSTERSET_PROPERTY).await?,
        ranges: Ranges { vips, services, pods },
        peers: peers.collect(),
    })
}
