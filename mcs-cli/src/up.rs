//! `mcs up` and `mcs down`: make and remove a clusterset with one command.

mod chart;
mod down;
mod interrupt;
mod member;
mod pending;
mod plan;
mod proof;
mod release;
mod stays;
mod types;

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, ValueEnum};
use mcs_controller::core::clusterset::ClusterId;
use mcs_kube::{
    program::{self, print, table, terminal_width},
    told,
};
use serde_json::{Value, json};
use tokio::time::Instant;

pub(crate) use self::down::{DownCommand, down};
use self::{
    chart::ChartArgs,
    interrupt::Interrupt,
    member::{Member, MemberArgs},
    plan::Plan,
    release::{NAMESPACE, Release},
};
use crate::{
    cluster::PEERS,
    dns,
    draft::Draft,
    fleet::{self, Outcome, Outcomes},
    kubeconfig::{ClusterArgs, KubeconfigArg},
    link, progress,
    status::{
        condition,
        known::{READ, older},
    },
    wait::{self, Waiting},
};

/// The time limit for controllers to read each other.
const CONNECTED_WITHIN: Duration = Duration::from_mins(2);

/// Make a clusterset of these clusters.
///
/// It looks at each cluster, shows what it is going to change and what stays, and asks. Then it installs the types of the
/// Multi-Cluster Services API, the chart and the names in clusterset.local where they are missing or differ, in one cluster first: a
/// pod on each of its nodes connects to a service by name. The others follow. Then it links the clusters, and ends with a proof:
/// from every node, a pod connects by name to a service of all clusters. A failure in one cluster ends nothing in another; the
/// last table has a row for each. After Ctrl-C what has begun ends, and nothing else begins. Run it again to repair, or with one more cluster to add it. It needs helm and kubectl in the
/// PATH.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs up --context east --context west
  mcs up --context east --context west --context south --yes
  mcs up east.conf west.conf --hub hub.conf
  mcs up east.conf west.conf --chart deploy/helm/mcs --dry-run
  mcs up --context east --context west --dry-run -o yaml > clusterset.yaml")]
pub(crate) struct UpCommand {
    #[command(flatten)]
    clusters: ClusterArgs,

    /// The mailboxes are on the API server of this kubeconfig, in a namespace mcs-ID for each cluster
    #[arg(long, value_name = "KUBECONFIG")]
    hub: Option<KubeconfigArg>,

    #[command(flatten)]
    chart: ChartArgs,

    #[command(flatten)]
    member: MemberArgs,

    /// How many clusters are changed at a time, after the first one
    #[arg(long, value_name = "COUNT", default_value_t = fleet::AT_A_TIME)]
    at_a_time: usize,

    /// The namespace of the proof's service, which every ClusterPeer allows and every cluster has [default: mcs-controller; there
    /// is no proof where ClusterPeers do not allow it]
    #[arg(long, value_name = "NAMESPACE")]
    proof_namespace: Option<String>,

    /// Show what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,

    /// With --dry-run: print what would be written instead of the plan
    #[arg(short, long, value_name = "FORMAT", requires = "dry_run")]
    output: Option<DraftFormat>,

    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// How a dry run prints objects.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum DraftFormat {
    /// Documents for each context, in the order in which they are applied. Credentials are not among them
    Yaml,
}

pub(crate) fn up(command: &UpCommand) -> anyhow::Result<ExitCode> {
    program::block_on(async {
        let mut waiting = Waiting::new("it looks at the chart and at each cluster");
        let mut plan = waiting.during(Plan::of(command)).await?;
        if let Some(DraftFormat::Yaml) = command.output {
            draft(&mut plan).await?;
            return Ok(ExitCode::SUCCESS);
        }
        print(&table(terminal_width(), &["CLUSTER", "STEP", "WHAT"], plan.rows()))?;
        if command.dry_run {
            return Ok(ExitCode::SUCCESS);
        }
        ensure_confirmed(command.yes)?;
        let mut work = Work::of(&plan);
        work.install(&mut plan, command.at_a_time).await?;
        if !work.is_stopped() {
            work.link(&mut plan).await?;
        }
        if !work.is_stopped() {
            work.prove(&plan).await?;
        }
        let code = work.outcomes(&plan).show()?;
        if work.interrupt.has_come() {
            eprintln!("mcs: it was interrupted: run it again to finish");
            return Ok(ExitCode::FAILURE);
        }
        if code == ExitCode::SUCCESS {
            print(
                "\nThe clusterset is up. Export a Service: kubectl apply -f - <<EOF\n\
                 {apiVersion: multicluster.x-k8s.io/v1beta1, kind: ServiceExport, metadata: {name: SERVICE, namespace: NAMESPACE}}\nEOF",
            )?;
        }
        Ok(code)
    })
}

/// What became of each cluster so far, by its place in the plan.
struct Work {
    done: Vec<Vec<String>>,
    failed: Vec<Option<String>>,
    /// Whether the first cluster has failed, and the others are left alone.
    has_first_failed: bool,
    interrupt: Interrupt,
}

impl Work {
    fn of(plan: &Plan) -> Self {
        let count = plan.members.len();
        Self {
            done: vec![vec![]; count],
            failed: vec![None; count],
            has_first_failed: false,
            interrupt: Interrupt::listen(),
        }
    }

    fn is_stopped(&self) -> bool {
        self.has_first_failed || self.interrupt.has_come()
    }

    fn note(&mut self, place: usize, result: anyhow::Result<Vec<String>>) {
        match result {
            Ok(done) => self.done[place].extend(done),
            Err(error) => {
                self.failed[place].get_or_insert_with(|| told(&error));
            }
        }
    }

    /// The clusters in which nothing has failed.
    fn sound<'a>(&self, plan: &'a Plan) -> Vec<(usize, &'a Member)> {
        let members = plan.members.iter().enumerate();
        let sound = members.filter(|(place, _)| self.failed[*place].is_none());
        sound.map(|(place, (member, _))| (place, member)).collect()
    }

    /// Installs everything that differs: in one cluster, and if that is proven in the others.
    async fn install(&mut self, plan: &mut Plan, at_a_time: usize) -> anyhow::Result<()> {
        let places = (0..plan.members.len()).filter(|place| !plan.is_installed(*place));
        let mut places: Vec<_> = places.collect();
        // A cluster that is new serves nobody yet.
        places.sort_by_key(|place| plan.members[*place].1.change.former().is_some());
        let Some((first, others)) = places.split_first() else { return Ok(()) };
        let plan = &*plan;
        let mut result = install(plan, *first).await;
        let (member, _) = &plan.members[*first];
        let waits_for_hub = plan.links.members.contains_key(&member.cluster.id);
        if result.is_ok() && !others.is_empty() && plan.proof.works_alone() && !waits_for_hub {
            let id = member.cluster.id.as_str();
            progress::say(id, "the first cluster is proven before the others begin")?;
            let proven = plan.proof.of_members(&[member], &self.interrupt).await.pop();
            let proven = proven.context("no proof")?;
            result = result.and_then(|done| proven.map(|_| done));
        }
        self.has_first_failed = result.is_err();
        self.note(*first, result);
        if self.is_stopped() {
            return Ok(());
        }
        let interrupt = &self.interrupt;
        let installed = fleet::each_of(at_a_time, others, async |place: &usize| {
            if interrupt.has_come() {
                return None;
            }
            Some((*place, install(plan, *place).await))
        });
        for (place, result) in installed.await.into_iter().flatten() {
            self.note(place, result);
        }
        Ok(())
    }

    /// Links the clusters that are installed, and waits until they read each other.
    async fn link(&mut self, plan: &mut Plan) -> anyhow::Result<()> {
        let mut links = plan.links.clone();
        let places: BTreeMap<ClusterId, usize> = self
            .sound(plan)
            .into_iter()
            .map(|(place, member)| (member.cluster.id.clone(), place))
            .collect();
        links.pairs.retain(|(reader, publisher), _| {
            places.contains_key(reader) && places.contains_key(publisher)
        });
        links.members.retain(|id, _| places.contains_key(id));
        let readers = places.iter().filter(|(id, _)| !links.of(id).is_empty());
        let readers: Vec<_> = readers.collect();
        let Plan { members, hub, link, .. } = &mut *plan;
        // A cluster that has failed may not answer, and is no part of the links.
        let clusters = members.iter().map(|(member, _)| &member.cluster);
        let clusters: Vec<_> = clusters.filter(|one| places.contains_key(&one.id)).collect();
        link.retain(|id| places.contains_key(id) || hub.as_ref().is_some_and(|hub| hub.id == *id));
        let mut waiting = Waiting::new("API servers take the accounts and ClusterPeers of links");
        let linked = link::begin(link, links, &clusters, hub.as_ref());
        let left = match waiting.during(linked).await {
            Ok(left) => left,
            Err(error) => {
                let why = format!("not linked: {}", told(&error));
                readers.iter().map(|(id, _)| ((*id).clone(), why.clone())).collect()
            }
        };
        for (id, place) in readers {
            let mut why = left.iter().filter(|(reader, _)| reader == id).map(|(_, why)| why);
            let result = match why.next() {
                None => Ok(vec!["linked".to_owned()]),
                Some(why) => Err(anyhow::anyhow!(why.clone())),
            };
            self.note(*place, result);
        }
        let sound = self.sound(plan);
        let ids: Vec<_> = sound.iter().map(|(_, member)| &member.cluster.id).collect();
        let end = Instant::now() + CONNECTED_WITHIN;
        let interrupt = &self.interrupt;
        let connected = fleet::each(&sound, async |(place, member): &(usize, &Member)| {
            (*place, interrupt.or_work(connected(member, &ids, end)).await)
        });
        for (place, result) in connected.await {
            self.note(place, result.map(|()| vec![]));
        }
        progress::say("all", "the controllers read each other, where no row says otherwise")
    }

    async fn prove(&mut self, plan: &Plan) -> anyhow::Result<()> {
        if plan.proof.is_left_out() {
            return progress::say("all", &format!("the proof is {}", plan.proof.text()));
        }
        let (places, members): (Vec<_>, Vec<_>) = self.sound(plan).into_iter().unzip();
        progress::say(
            "all",
            "the proof begins: every node connects to a service of all clusters by name",
        )?;
        let proven = plan.proof.of_members(&members, &self.interrupt).await;
        for (place, proven) in places.into_iter().zip(proven) {
            if let Ok(line) = &proven {
                print(line)?;
            }
            self.note(place, proven.map(|_| vec![]));
        }
        Ok(())
    }

    fn outcomes(&self, plan: &Plan) -> Outcomes {
        let mut all = Outcomes::default();
        for (place, (member, _)) in plan.members.iter().enumerate() {
            let done = self.done[place].join(", ");
            let outcome = match &self.failed[place] {
                Some(why) if done.is_empty() => Outcome::Failed(why.clone()),
                Some(why) => Outcome::Failed(format!("{why}; done before: {done}")),
                None if !done.is_empty() => Outcome::Done(done),
                None if self.is_stopped() && !plan.is_left(place) => {
                    let why = if self.has_first_failed {
                        "the first cluster has failed"
                    } else {
                        "it was interrupted"
                    };
                    Outcome::Left(format!("not begun, since {why}"))
                }
                None => Outcome::Left("it was as it should be".to_owned()),
            };
            all.add(&member.cluster.id, outcome);
        }
        all
    }
}

/// Prints what each step would write.
async fn draft(plan: &mut Plan) -> anyhow::Result<()> {
    for (member, release) in &mut plan.members {
        let draft = Draft::default();
        let drafted = draft_of(&plan.chart, member, release, &draft).await;
        drafted.with_context(|| format!("cluster {}", member.cluster.id))?;
        member.cluster.draft = Some(draft);
        member.name_set(&plan.clusterset).await?;
        if member.dns.is_some() {
            dns::apply(&member.cluster).await?;
        }
    }
    let Plan { members, hub, link, links, .. } = &mut *plan;
    if let Some(hub) = hub {
        hub.draft = Some(Draft::default());
    }
    let clusters: Vec<_> = members.iter().map(|(member, _)| &member.cluster).collect();
    let failed = link::begin(link, links.clone(), &clusters, hub.as_ref()).await?;
    ensure!(failed.is_empty(), "{failed:?}");
    let of_hub = hub.as_ref().map(|hub| ("the hub".to_owned(), hub));
    let mut of_members = Vec::new();
    for (member, _) in members {
        of_members.push((member.kubeconfig.context_name()?, &member.cluster));
    }
    for (context, cluster) in of_hub.into_iter().chain(of_members) {
        let text = cluster.draft.as_ref().map(Draft::text).unwrap_or_default();
        print(&format!("# context: {context}, cluster: {}\n{}", cluster.id, text.trim_end()))?;
    }
    Ok(())
}

/// The types and the chart of a cluster.
async fn draft_of(
    chart: &chart::Chart,
    member: &Member,
    release: &Release,
    draft: &Draft,
) -> anyhow::Result<()> {
    member.types.draft_files(draft, &member.kubeconfig).await?;
    draft.object(
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
    )?;
    for own in member.types.of_chart(chart) {
        draft.object(own.clone())?;
    }
    draft.text_of(&release.draft(chart, &member.cluster, &member.kubeconfig).await?);
    Ok(())
}

/// Fails unless somebody says yes, on the terminal or by a flag.
fn ensure_confirmed(yes: bool) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    ensure!(io::stdin().is_terminal(), "nobody can be asked here: give --yes");
    eprint!("Go on? [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    if !matches!(answer.trim(), "y" | "Y" | "yes") {
        bail!("nothing was done");
    }
    Ok(())
}

/// Installs what differs in one cluster. Returns what was done.
async fn install(plan: &Plan, place: usize) -> anyhow::Result<Vec<String>> {
    let (member, release) = &plan.members[place];
    let Member { cluster, kubeconfig, types, dns, .. } = member;
    let id = cluster.id.as_str();
    let mut done = Vec::new();
    let mut say = |what: String| {
        progress::say(id, &what)?;
        done.push(what);
        anyhow::Ok(())
    };
    if !types.are_left() {
        types.install(cluster, kubeconfig).await?;
        say("the types are served".to_owned())?;
    }
    member.name_set(&plan.clusterset).await?;
    if !matches!(release.change, release::ReleaseChange::Keep { .. }) {
        progress::say(id, "helm waits for the agent and the controller, 5 minutes at most")?;
        release.install(&plan.chart, cluster, kubeconfig).await?;
        let from = release.change.former().map(|from| format!("{from} -> ")).unwrap_or_default();
        say(format!("chart {from}{}", plan.chart.version))?;
    }
    if dns.is_some() {
        let changed = dns::apply(cluster).await?;
        say(changed.join("; "))?;
    }
    Ok(done)
}

/// Waits until a cluster reads each of the others.
async fn connected(member: &Member, ids: &[&ClusterId], end: Instant) -> anyhow::Result<()> {
    let id = &member.cluster.id;
    let read = async || {
        let peers = member.cluster.list(PEERS).await?;
        let mut others = ids.iter().filter(|other| **other != id);
        let unread = others.find_map(|other| unread(&peers, other));
        let why = unread.map(|unread| {
            format!("cluster {id} does not read its peers yet: {unread}. `mcs check` says more")
        });
        Ok(why.map_or(Ok(()), Err))
    };
    wait::patiently(end, read).await
}

/// Why a cluster is not read, if it is not.
fn unread(peers: &[Value], id: &ClusterId) -> Option<String> {
    let peer = peers.iter().find(|peer| peer["spec"]["clusterId"] == id.as_str());
    let Some(peer) = peer else { return Some(format!("there is no ClusterPeer of {id}")) };
    let unread = READ.into_iter().find_map(|name| {
        let condition = condition(peer, name);
        if condition.is_some_and(|one| one["status"] == "True") {
            return None;
        }
        let message = condition.and_then(|one| one["message"].as_str()).unwrap_or("not told yet");
        Some(format!("{name}: {message}"))
    });
    let unread = unread.map(|why| format!("{id} {why}"));
    unread.or_else(|| older(peer).map(|why| format!("{id}: {why}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_peer_counts_once_it_is_read() {
        let id: ClusterId = "west".parse().unwrap();
        let peer = |fresh: &str| {
            let condition = |name: &str, status: &str| json!({"type": name, "status": status, "message": "why"});
            let conditions =
                ["Accepted", "Connected", "Synced"].map(|name| condition(name, "True"));
            let conditions: Vec<_> =
                conditions.into_iter().chain([condition("Fresh", fresh)]).collect();
            json!({"spec": {"clusterId": "west"}, "status": {"conditions": conditions}})
        };
        assert_eq!(unread(&[peer("True")], &id), None);
        assert_eq!(unread(&[peer("Unknown")], &id).as_deref(), Some("west Fresh: why"));
        assert!(unread(&[], &id).unwrap().contains("no ClusterPeer"));
        // What the controller said before the link was changed.
        let mut changed = peer("True");
        changed["metadata"]["generation"] = json!(2);
        changed["status"]["conditions"][0]["observedGeneration"] = json!(1);
        assert!(unread(&[changed], &id).unwrap().contains("older than its spec"));
    }
}
