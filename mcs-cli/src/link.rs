//! `mcs link` and `unlink`: the credentials with which clusters read each other's mailboxes.

mod credentials;
mod direction;
mod former;
mod halves;
mod hub;
mod invitation;
mod invite;
mod leave;
mod rotate;
mod sides;
mod unlink;

use std::{collections::BTreeSet, process::ExitCode};

use anyhow::{bail, ensure};
use clap::Args;
use ipnet::IpNet;
use mcs_kube::{
    is_unverified,
    program::{self, FormatArgs, Style},
    told,
};
use serde::Serialize;

use self::{
    credentials::{Terms, TokenArgs},
    direction::{Direction, Scope, directions},
    halves::{Mailbox, Publisher, accept},
    sides::Pairs,
};
pub(super) use self::{
    direction::{LinkPlan, ranges_in},
    hub::{needs_hub, open as open_hub, peer_on_hub},
    invite::{InviteCommand, JoinCommand, invite, join},
    leave::{leave, leave_hub},
    rotate::{RotateCommand, rotate},
};
use super::{
    cluster::Cluster,
    fleet,
    kubeconfig::{self, ClusterArgs, KubeconfigArg},
    pod_ranges::{self, RangeList},
};
use mcs_controller::core::clusterset::{ClusterId, well_known};

/// The namespace in which the chart lets a cluster publish.
pub(crate) const MAILBOX: &str = "mcs-mailbox";
/// The Role of the chart in the namespace of the mailbox.
const READER: &str = "mcs-mailbox-reader";

/// The clusters and namespaces of a link.
#[derive(Debug, Args)]
struct LinkArgs {
    #[command(flatten)]
    clusters: ClusterArgs,

    /// The namespace of the controllers
    #[arg(long, env = "MCS_NAMESPACE", value_name = "NAMESPACE", default_value = "mcs-controller")]
    namespace: String,

    /// The namespace in which each cluster publishes
    #[arg(long, env = "MCS_MAILBOX", value_name = "NAMESPACE", default_value = "mcs-mailbox")]
    mailbox: String,

    /// The mailboxes are on the API server of this kubeconfig, in a namespace mcs-ID for each cluster
    #[arg(long, value_name = "KUBECONFIG", conflicts_with = "mailbox")]
    hub: Option<KubeconfigArg>,

    #[command(flatten)]
    format: FormatArgs,
}

/// Let clusters import from each other.
///
/// For each pair and in both directions it makes a ServiceAccount that may read one mailbox and renew its own token,
/// stores its kubeconfig as a Secret in the other cluster, and makes a ClusterPeer there. On a hub each cluster has one
/// ServiceAccount, which writes its own mailbox and reads all of them. The controllers need to be installed. Run it again to replace credentials: pod ranges and URLs that were set stay, unless they are
/// given anew. With `--with` it links new clusters to others, whose links with each other stay as they are. It refuses a cluster with the id of another one, and changes nothing then.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs link east.conf west.conf
  mcs link ~/.kube/config:east ~/.kube/config:west ~/.kube/config:south
  mcs link --context south --with east west       # south is new
  mcs link east.conf west.conf --hub hub.conf
  mcs link east.conf west.conf --pod-cidr east=10.1.0.0/16 --server east=https://east.example:6443")]
pub(super) struct LinkCommand {
    #[command(flatten)]
    link: LinkArgs,

    /// Clusters that are linked with each other already: contexts, or kubeconfigs. Their links with each other stay as they are
    #[arg(long, value_name = "CONTEXT", num_args = 1..)]
    with: Vec<String>,

    /// The pod ranges of a cluster, with commas between them; repeatable. Endpoints outside are refused [default: what the
    /// ClusterPeers of others have, or objects of the CNI, or podSubnet of kubeadm, or else the ranges that its nodes have now]
    #[arg(long, value_name = "ID=CIDR", value_parser = pair::<RangeList>)]
    pod_cidr: Vec<(ClusterId, RangeList)>,

    /// How other clusters reach the API server of a cluster, or of the hub (`hub=URL`) [default: as its kubeconfig says]
    #[arg(long, value_name = "ID=URL", value_parser = pair::<String>)]
    server: Vec<(ClusterId, String)>,

    /// A cluster may be another one than the one that had its id before, such as one that was made anew: nothing is kept of
    /// the former one, neither pod ranges nor URLs
    #[arg(long)]
    replace: bool,

    #[command(flatten)]
    token: TokenArgs,

    /// `mcs rotate`: existing links get new tokens, and nothing else is done.
    #[arg(skip)]
    rotate: bool,

    #[arg(skip)]
    scope: Scope,
}

/// End what `link` began.
///
/// Deletes the ClusterPeers and Secrets, and the ServiceAccounts with their rights. What clusters had imported from each
/// other goes. A cluster that does not answer keeps its part: the command does the rest, says what is left to do, and exits
/// with 1.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs unlink --context east --context west")]
pub(super) struct UnlinkCommand {
    #[command(flatten)]
    link: LinkArgs,

    /// The id of a cluster that is gone for good, instead of its kubeconfig; repeatable. `forget` leaves the other clusters
    /// linked with each other
    #[arg(long, value_name = "ID")]
    gone: Vec<ClusterId>,
}

/// Forget a cluster that is gone for ever.
///
/// The other clusters lose its ClusterPeer and Secret, and with them what they had imported from it. The ServiceAccounts by
/// which it read their mailboxes are deleted, so its tokens end. The others stay linked with each other.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs forget south --context east --context west
  mcs forget south east.conf west.conf --hub hub.conf")]
pub(super) struct ForgetCommand {
    /// The id of the cluster
    #[arg(value_name = "ID")]
    id: ClusterId,

    #[command(flatten)]
    link: LinkArgs,
}

impl LinkArgs {
    /// A link of these clusters, with the namespaces of the chart.
    fn new(kubeconfigs: Vec<KubeconfigArg>, hub: Option<KubeconfigArg>) -> Self {
        Self {
            clusters: ClusterArgs::of(kubeconfigs),
            namespace: well_known::CONTROLLER.to_owned(),
            mailbox: MAILBOX.to_owned(),
            hub,
            format: FormatArgs::default(),
        }
    }
}

impl LinkCommand {
    /// As `mcs link` with these flags, for clusters that the caller has opened.
    pub(crate) fn new(
        pod_cidr: Vec<(ClusterId, RangeList)>,
        server: Vec<(ClusterId, String)>,
    ) -> Self {
        let link = LinkArgs::new(vec![], None);
        Self { pod_cidr, server, ..Self::of(link, TokenArgs::default()) }
    }

    /// Without other flags.
    fn of(link: LinkArgs, token: TokenArgs) -> Self {
        Self {
            link,
            with: vec![],
            pod_cidr: vec![],
            server: vec![],
            replace: false,
            token,
            rotate: false,
            scope: Scope::All,
        }
    }

    /// Forgets what is given for other clusters.
    pub(crate) fn retain(&mut self, is_meant: impl Fn(&ClusterId) -> bool) {
        self.pod_cidr.retain(|(id, _)| is_meant(id));
        self.server.retain(|(id, _)| is_meant(id));
    }

    /// The URL that `--server` gives.
    fn server_of(&self, host: &Cluster) -> Option<&String> {
        self.server.iter().find(|(id, _)| *id == host.id).map(|(_, url)| url)
    }

    /// The terms of an account on this API server.
    fn terms(&self, host: &Cluster) -> Terms<'_> {
        let server = self.server_of(host).map(String::as_str);
        Terms { server, seconds: self.token.token_seconds, is_anew: self.rotate }
    }
}

/// The result for one direction of a link.
#[derive(Debug, Serialize)]
struct Linked {
    reader: ClusterId,
    publisher: ClusterId,
    account: String,
    secret: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pod_ranges: Vec<IpNet>,
    /// When the token expires, unless the controller renews it.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
    /// The steps that failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left: Vec<String>,
}

pub(crate) fn pair<T>(text: &str) -> Result<(ClusterId, T), String>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    let (id, value) = text.split_once('=').ok_or("write it as ID=VALUE")?;
    let id = id.parse::<ClusterId>().map_err(|error| error.to_string())?;
    Ok((id, value.parse().map_err(|error: T::Err| error.to_string())?))
}

pub(super) fn link(mut command: LinkCommand) -> anyhow::Result<ExitCode> {
    let done = program::block_on(link_all(&mut command))?;
    show(&command.link.format, &done)
}

/// What clusters lack to read each other, for a command with its own output. Changes nothing.
pub(crate) async fn plan(
    command: &LinkCommand,
    clusters: &[&Cluster],
    hub: Option<&Cluster>,
) -> anyhow::Result<LinkPlan> {
    let publishers = publishers(command, clusters, hub).await?;
    direction::plan(command, &publishers).await
}

/// Links the clusters as planned. Returns what has failed, with the reading cluster.
pub(crate) async fn begin(
    command: &mut LinkCommand,
    plan: LinkPlan,
    clusters: &[&Cluster],
    hub: Option<&Cluster>,
) -> anyhow::Result<Vec<(ClusterId, String)>> {
    command.scope = Scope::Planned(plan);
    let mut failed = Vec::new();
    for done in link_clusters(command, clusters, hub).await? {
        if let Some(warning) = done.warning {
            eprintln!("mcs: {warning}");
        }
        failed.extend(done.left.into_iter().map(|left| (done.reader.clone(), left)));
    }
    Ok(failed)
}

pub(super) fn unlink(command: &UnlinkCommand) -> anyhow::Result<ExitCode> {
    let done = program::block_on(unlink::unlink_all(&command.link, &command.gone, Pairs::All))?;
    show(&command.link.format, &done)
}

pub(super) fn forget(command: &ForgetCommand) -> anyhow::Result<ExitCode> {
    let gone = std::slice::from_ref(&command.id);
    program::block_on(unlink::ensure_known(&command.link, &command.id))?;
    let done = program::block_on(unlink::unlink_all(&command.link, gone, Pairs::OfGone))?;
    show(&command.link.format, &done)
}

fn show(format: &FormatArgs, done: &[Linked]) -> anyhow::Result<ExitCode> {
    let is_done = done.iter().all(|one| one.left.is_empty());
    let code = if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    format.show(&done, |done, style| table(done, style))?;
    Ok(code)
}

fn table(done: &[Linked], style: Style) -> anyhow::Result<()> {
    let has_tokens = done.iter().any(|one| one.expires.is_some());
    let rows = done.iter().map(|one| {
        let Linked { reader, publisher, account, secret, expires, .. } = one;
        let mut row = vec![
            reader.to_string(),
            if reader == publisher { "(writes)".to_owned() } else { publisher.to_string() },
            account.clone(),
            secret.clone(),
            pod_ranges::joined(&one.pod_ranges),
        ];
        row.extend(has_tokens.then(|| expires.clone().unwrap_or_default()));
        row
    });
    let mut header = vec!["CLUSTER", "READS", "SERVICE ACCOUNT", "SECRET", "POD RANGES"];
    header.extend(has_tokens.then_some("TOKEN EXPIRES"));
    style.table(&header, rows)?;
    for warning in done.iter().filter_map(|one| one.warning.as_ref()) {
        eprintln!("mcs: {warning}");
    }
    for left in done.iter().flat_map(|one| &one.left) {
        eprintln!("mcs: left to do: {left}");
    }
    Ok(())
}

/// Opens the clusters. Fails if two have one id.
async fn open(kubeconfigs: &[KubeconfigArg]) -> anyhow::Result<Vec<Cluster>> {
    let mut clusters: Vec<Cluster> = Vec::new();
    for cluster in fleet::all_of(fleet::each(kubeconfigs, Cluster::open).await)? {
        if let Some(same) = clusters.iter().find(|other| other.id == cluster.id) {
            bail!(
                "the clusters at {} and {} have the same id {}: every cluster needs its own",
                same.server,
                cluster.server,
                cluster.id
            );
        }
        clusters.push(cluster);
    }
    Ok(clusters)
}

async fn link_all(command: &mut LinkCommand) -> anyhow::Result<Vec<Linked>> {
    let mut named = command.link.clusters.named()?;
    let new = named.len();
    for other in &command.with {
        named.push(kubeconfig::context_or_file(other)?);
    }
    ensure!(new > 0, "name the new clusters too, such as --context south");
    ensure!(named.len() > 1, "give the kubeconfigs or contexts of two clusters or more");
    let clusters = open(&named).await?;
    let hub = hub::open(command.link.hub.as_ref()).await?;
    if !command.with.is_empty() {
        let new = clusters[..new].iter().map(|cluster| cluster.id.clone());
        command.scope = Scope::Of(new.collect());
    }
    link_clusters(command, &clusters.iter().collect::<Vec<_>>(), hub.as_ref()).await
}

/// The clusters with their mailboxes and pods.
async fn publishers<'a>(
    command: &LinkCommand,
    clusters: &[&'a Cluster],
    hub: Option<&'a Cluster>,
) -> anyhow::Result<Vec<Publisher<'a>>> {
    let read = fleet::each(clusters, async |cluster: &&'a Cluster| {
        let mailbox = Mailbox::of(cluster, hub, &command.link);
        let given = pod_ranges::given(&command.pod_cidr, &cluster.id);
        Publisher::of(cluster, mailbox, given).await
    });
    fleet::all_of(read.await)
}

async fn link_clusters(
    command: &LinkCommand,
    clusters: &[&Cluster],
    hub: Option<&Cluster>,
) -> anyhow::Result<Vec<Linked>> {
    let named = command.pod_cidr.iter().map(|(id, _)| id);
    for id in named.chain(command.server.iter().map(|(id, _)| id)) {
        let is_known = clusters.iter().copied().chain(hub).any(|cluster| cluster.id == *id);
        ensure!(is_known, "no cluster among these has the id {id}");
    }
    for host in hub.as_ref().map_or(clusters, std::slice::from_ref) {
        let Cluster { id, server, .. } = host;
        let server = command.server_of(host).unwrap_or(server);
        ensure!(
            !is_unverified(server),
            "{server} would carry tokens in the clear: give --server {id}=https://..."
        );
    }
    if command.rotate {
        let ids: BTreeSet<_> = clusters.iter().map(|cluster| cluster.id.as_str()).collect();
        hub::ensure_hub(clusters, hub.is_some(), |peer| ids.contains(peer)).await?;
    }
    let publishers = publishers(command, clusters, hub).await?;
    let mut directions = directions(&publishers, command).await?;
    if command.rotate {
        directions.retain(Direction::is_linked);
        ensure!(
            !directions.is_empty(),
            "none of these clusters reads another one by a mailbox {}: there is nothing to rotate",
            if hub.is_some() {
                "of this hub"
            } else {
                "in its own cluster (for a hub, give --hub)"
            }
        );
    }
    let mut done = Vec::new();
    if hub.is_some() {
        for publisher in publishers.iter().filter(|_| !command.replace) {
            hub::ensure_own(publisher).await?;
        }
        done.extend(hub::let_in(command, &publishers).await?);
        let failed = done.iter().filter(|one| !one.left.is_empty());
        let failed: BTreeSet<_> = failed.map(|one| one.reader.clone()).collect();
        directions.retain(|direction| !failed.contains(&direction.reader.id));
    }
    // On a hub each cluster has one account for all its links: `let_in` has rotated it.
    if hub.is_some() && command.rotate {
        return Ok(done);
    }
    let linked = fleet::each(&directions, async |direction: &Direction<'_>| {
        let linked = link_one(command, direction).await;
        linked.unwrap_or_else(|error| failed(command, direction, &error))
    });
    done.extend(linked.await);
    Ok(done)
}

async fn link_one(command: &LinkCommand, direction: &Direction<'_>) -> anyhow::Result<Linked> {
    let Direction { reader, publisher, former, .. } = direction;
    let namespace = &command.link.namespace;
    let credentials = if publisher.is_at_home() {
        let terms = command.terms(publisher.mailbox.host);
        Some(publisher.let_read(&reader.id, terms).await?)
    } else {
        None
    };
    let pods = if command.rotate { former.pods() } else { direction.pods() };
    let offer = (publisher.identity(), &pods);
    let mut done = accept(reader, namespace, offer, credentials.as_ref(), former).await?;
    if command.rotate {
        // Only tokens change, so notes on ranges and URLs would not be new.
        done.warning = credentials.and_then(|credentials| credentials.warning);
    }
    if !publisher.is_at_home()
        && let Err(error) = hub::take_former(&command.link, direction).await
    {
        done.left.push(format!(
            "run `link` again: {}, and its former Secret stays: {}",
            direction.text(),
            told(&error)
        ));
    }
    Ok(done)
}

/// A direction that could not be linked. The others are.
fn failed(command: &LinkCommand, direction: &Direction<'_>, error: &anyhow::Error) -> Linked {
    let Direction { reader, publisher, .. } = direction;
    Linked {
        reader: reader.id.clone(),
        publisher: publisher.cluster.id.clone(),
        account: format!("{}/{}", publisher.mailbox.namespace, reader.id),
        secret: format!("{}/{}", command.link.namespace, secret_name(&publisher.cluster.id)),
        pod_ranges: vec![],
        expires: None,
        warning: None,
        left: vec![format!("run `link` again, as {}: {}", direction.text(), told(error))],
    }
}

/// Joins two warnings.
fn joined(first: Option<String>, second: Option<String>) -> Option<String> {
    let all: Vec<_> = first.into_iter().chain(second).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn secret_name(publisher: &ClusterId) -> String {
    format!("peer-{publisher}")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use mcs_kube::testing::ScriptedAnswer;
    use serde_json::json;

    use super::*;
    use crate::{
        cluster::tests::{object, scripted},
        link::former::Former,
        pod_ranges::PodRanges,
    };

    #[tokio::test]
    async fn a_pair_whose_former_secret_stays_is_told_and_the_others_go_on() {
        let command = LinkCommand::of(LinkArgs::new(vec![], None), TokenArgs::default());
        let (hub, _hub_server, _hub_file) = scripted("hub", []).await;
        // The reader takes a ClusterPeer of each pair, and is asked to delete a Secret of each.
        let done = || object(json!({"metadata": {"name": "p"}}));
        let answers = [done(), ScriptedAnswer::error(403), done(), done()];
        let (west, _west_server, _west_file) = scripted("west", answers).await;
        let mut left = Vec::new();
        for id in ["east", "south"] {
            let (cluster, _server, _file) = scripted(id, []).await;
            let ranges = vec!["10.1.0.0/16".parse().unwrap()];
            let publisher = Publisher {
                cluster: &cluster,
                uid: "u".to_owned(),
                mailbox: Mailbox::of(&cluster, Some(&hub), &command.link),
                pods: PodRanges { ranges, are_given: true, warning: None },
            };
            let name = secret_name(&cluster.id);
            let labels = json!({well_known::MANAGED_BY: well_known::CONTROLLER});
            let secret = json!({"metadata": {"name": name, "labels": labels}});
            let former = Former { peer: None, secret: Some(secret) };
            let direction =
                Direction { reader: &west, publisher: &publisher, former, others: vec![] };
            left.push(link_one(&command, &direction).await.unwrap().left);
        }
        let [east, south] = &*left else { panic!("{left:?}") };
        assert!(
            east[0].contains("cluster west reads east, and its former Secret stays"),
            "{east:?}"
        );
        assert!(south.is_empty(), "{south:?}");
    }

    #[test]
    fn a_cluster_that_was_away_for_a_month_needs_no_link() {
        let command = crate::Cli::try_parse_from(["mcs", "link", "a", "b"]).unwrap();
        let crate::Command::Link(link) = command.command else { panic!("{command:?}") };
        let seconds = link.token.token_seconds;
        assert!(seconds - seconds / 3 > 30 * 86_400);
    }

    #[test]
    fn a_value_of_a_cluster_names_it() {
        let (id, range) = pair::<IpNet>("east=10.1.0.0/16").unwrap();
        assert_eq!((id.as_str(), range.to_string()), ("east", "10.1.0.0/16".to_owned()));
        assert!(pair::<IpNet>("10.1.0.0/16").is_err());
        assert!(pair::<IpNet>("East=10.1.0.0/16").is_err());
    }
}
