//! `mcs trace`: shows the decisions of the programs on all nodes as they are made.

mod pod_names;

use std::{
    process::{ExitCode, Stdio},
    time::Duration,
};

use anyhow::Context as _;
use clap::{Args, ValueEnum as _};
use futures_util::{Stream, StreamExt as _, stream};
use mcs_kube::{
    one_line_of,
    program::{
        self, Signals, TraceFormat, Verdict, growing_row, has_reader, print, terminal_width,
        trace_duration,
    },
    report::{TraceTotals, TraceView},
    told,
};
use serde::Serialize;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout},
};

use self::pod_names::PodNames;
use crate::{
    agent_pod::{self, AgentPod},
    cluster::Cluster,
    contexts::{self, Contexts},
    exit,
    explain::client,
    fleet,
    kubeconfig::ContextArgs,
};

/// The columns of the table: 80 with the gaps.
const COLUMNS: [usize; 5] = [8, 14, 18, 21, 15];
/// The most bytes of a foreign text in a cell.
const CELL: usize = 128;

/// Show each decision of the agents as it is made: which backend a connect gets, or why it is refused
///
/// Runs `mcs-agent trace` in the agent's pod of every node, by kubectl: of all contexts, or of the given ones. It takes the
/// rights to list pods and to exec into the agent's. Names of pods are shown where pods may be listed. The table is cut at 80 columns
/// on a terminal alone.
///
/// Exits with 0 if it ends as asked, with 1 if an agent does not trace or ends it, with 3 if a cluster could not be asked.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs trace
  mcs trace shop/cart --verdict refused
  mcs trace --pod shop/web-7d9c --for 1m
  mcs trace -o json | jq -r 'select(.\"mcs.verdict\") | .\"k8s.node.name\"'")]
pub(super) struct TraceCommand {
    /// Only decisions about this ServiceImport; with --namespace its NAME is enough
    #[arg(value_name = "NAMESPACE/NAME")]
    service: Option<String>,

    /// Only decisions about ServiceImports of this namespace
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// Only what this pod does, on its node alone: NAME in the context's namespace, or NAMESPACE/NAME
    #[arg(long, value_name = "POD")]
    pod: Option<String>,

    /// Only decisions of this kind
    #[arg(long, value_name = "VERDICT")]
    verdict: Option<Verdict>,

    /// End after this time, at most 1h
    #[arg(long = "for", value_name = "DURATION", value_parser = trace_duration, default_value = "5m")]
    duration: Duration,

    /// Trace on this many nodes at most, of each cluster in turn: each takes a kubectl
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
    nodes: u16,

    /// End after so many decisions
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    #[command(flatten)]
    contexts: ContextArgs,

    /// Output format
    #[arg(short, long, env = "MCS_OUTPUT", value_name = "FORMAT", default_value = "table")]
    output: TraceFormat,
}

pub(super) fn run(command: &TraceCommand) -> anyhow::Result<ExitCode> {
    program::block_on(trace(command))
}

async fn trace(command: &TraceCommand) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let contexts = contexts::open(&command.contexts.named()?).await?;
    let (nodes, pod, is_unasked) = nodes(command, &contexts).await?;
    let words = words(command, pod.as_deref());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let traces = nodes.iter().enumerate().map(|(index, node)| {
        let begun = Trace::begin(node, &words);
        lines(begun).map(move |said| (index, said))
    });
    let mut traces = stream::select_all(traces.map(Box::pin));
    let mut printer = Printer {
        command,
        nodes: &nodes,
        names: nodes.iter().map(|node| PodNames::new(node.cluster, &node.agent.node)).collect(),
        lost: vec![0; nodes.len()],
        shown: 0,
        failed: false,
    };
    printer.begin()?;
    loop {
        tokio::select! {
            () = signals.next() => break,
            next = traces.next() => {
                let Some((index, said)) = next else { break };
                printer.print(index, said).await?;
                let is_enough = command.count.is_some_and(|count| printer.shown >= count);
                if is_enough || !has_reader() {
                    break;
                }
            }
        }
    }
    let lost: u64 = printer.lost.iter().sum();
    eprintln!("{} decisions shown of {} nodes, {lost} lost", printer.shown, nodes.len());
    Ok(match (printer.failed, is_unasked) {
        (true, _) => ExitCode::FAILURE,
        (false, true) => exit::UNASKED.into(),
        (false, false) => ExitCode::SUCCESS,
    })
}

/// The agent of a node.
struct Node<'a> {
    cluster: &'a Cluster,
    agent: AgentPod,
}

/// The nodes to trace on, the uid of the pod if one is given, and whether a cluster could not be asked.
async fn nodes<'a>(
    command: &TraceCommand,
    contexts: &'a Contexts,
) -> anyhow::Result<(Vec<Node<'a>>, Option<String>, bool)> {
    if let Some(pod) = &command.pod {
        let found = client::find(contexts, None, pod).await?;
        let node = found.client.node.context("the pod is on no node yet")?;
        let agents = agent_pod::pods(found.cluster, Some(&node)).await?;
        let agent = agents.into_iter().next();
        let agent = agent.with_context(|| format!("no agent runs on node {node}"))?;
        let node = Node { cluster: found.cluster, agent };
        return Ok((vec![node], Some(found.client.cgroup_uid), false));
    }
    let mut is_unasked = !contexts.unasked.is_empty();
    for one in &contexts.unasked {
        eprintln!("mcs: {}: {}", one.name, one.error);
    }
    let mut clusters = Vec::new();
    let read = fleet::each(&contexts.clusters, async |cluster: &'a Cluster| {
        (cluster, agent_pod::pods(cluster, None).await)
    });
    for (cluster, agents) in read.await {
        match agents {
            Ok(agents) => {
                clusters.push(agents.into_iter().map(move |agent| Node { cluster, agent }));
            }
            Err(error) => {
                eprintln!("mcs: the agents of {}: {}", cluster.id, told(&error));
                is_unasked = true;
            }
        }
    }
    let all: usize = clusters.iter().map(ExactSizeIterator::len).sum();
    let nodes = in_turn(clusters, command.nodes.into());
    if nodes.len() < all {
        eprintln!(
            "mcs: traced are {} of {all} nodes: to change that, give --nodes or --pod",
            nodes.len()
        );
    }
    Ok((nodes, None, is_unasked))
}

/// The first of each list, then the second of each, and so on.
fn in_turn<T>(mut lists: Vec<impl Iterator<Item = T>>, most: usize) -> Vec<T> {
    let mut taken = Vec::new();
    loop {
        let before = taken.len();
        taken.extend(lists.iter_mut().filter_map(Iterator::next).take(most - before));
        if taken.len() == before || taken.len() == most {
            return taken;
        }
    }
}

/// The words for `mcs-agent`.
fn words(command: &TraceCommand, pod: Option<&str>) -> Vec<String> {
    let words = ["trace", "--output=json", "--until-input-ends"];
    let mut words: Vec<_> = words.map(str::to_owned).into();
    words.push(format!("--for={}s", command.duration.as_secs().max(1)));
    words.extend(pod.map(|uid| format!("--pod={uid}")));
    let verdict = command.verdict.and_then(|verdict| verdict.to_possible_value());
    words.extend(verdict.map(|verdict| format!("--verdict={}", verdict.get_name())));
    words.extend(command.namespace.as_ref().map(|namespace| format!("--namespace={namespace}")));
    words.extend(command.service.clone());
    words
}

/// A message of an agent.
enum TraceLine {
    Line(String),
    /// The agent has ended, with the reason if that was unexpected.
    Ended(Option<String>),
}

/// `mcs-agent trace` in an agent's pod. It ends when this is dropped: that kills kubectl and closes its input.
struct Trace {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Trace {
    fn begin(node: &Node<'_>, words: &[&str]) -> anyhow::Result<Self> {
        let mut kubectl = node.agent.kubectl(node.cluster, words)?;
        kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = kubectl.kill_on_drop(true).spawn().context("cannot run kubectl")?;
        let stdout = child.stdout.take().context("no output")?;
        Ok(Self { child, lines: BufReader::new(stdout).lines() })
    }

    async fn next(&mut self) -> TraceLine {
        match self.lines.next_line().await {
            Ok(Some(line)) => TraceLine::Line(line),
            Err(error) => TraceLine::Ended(Some(error.to_string())),
            Ok(None) => match self.child.wait().await {
                Ok(status) if status.success() => TraceLine::Ended(None),
                Ok(_) => TraceLine::Ended(Some(self.last_words().await)),
                Err(error) => TraceLine::Ended(Some(error.to_string())),
            },
        }
    }

    async fn last_words(&mut self) -> String {
        let mut said = Vec::new();
        if let Some(stderr) = &mut self.child.stderr {
            // Without them the error has no words.
            let _ = stderr.take(4096).read_to_end(&mut said).await;
        }
        String::from_utf8_lossy(&said).trim().to_owned()
    }
}

fn lines(begun: anyhow::Result<Trace>) -> impl Stream<Item = TraceLine> {
    stream::unfold(Some(begun), |state| async move {
        match state? {
            Err(error) => Some((TraceLine::Ended(Some(told(&error))), None)),
            Ok(mut trace) => {
                let said = trace.next().await;
                let rest = matches!(said, TraceLine::Line(_)).then_some(Ok(trace));
                Some((said, rest))
            }
        }
    })
}

/// Prints the messages of the agents.
struct Printer<'a> {
    command: &'a TraceCommand,
    nodes: &'a [Node<'a>],
    names: Vec<PodNames<'a>>,
    /// The events that each agent has lost so far.
    lost: Vec<u64>,
    shown: u64,
    failed: bool,
}

impl Printer<'_> {
    fn begin(&self) -> anyhow::Result<()> {
        let heads = ["UTC", "NODE", "SERVICE", "BACKEND OR REASON", "CLIENT"].map(str::to_owned);
        match self.command.output {
            TraceFormat::Json => Ok(()),
            format => print(&growing_row(COLUMNS, &heads, is_uncut(format, terminal_width()))),
        }
    }

    async fn print(&mut self, index: usize, said: TraceLine) -> anyhow::Result<()> {
        let Node { cluster, agent } = &self.nodes[index];
        let line = match said {
            TraceLine::Line(line) => line,
            TraceLine::Ended(None) => return Ok(()),
            TraceLine::Ended(Some(why)) => {
                self.failed = true;
                eprintln!("mcs: {}/{}: {}", cluster.id, agent.node, one_line_of(&why, 1024));
                return Ok(());
            }
        };
        if let Ok(TraceTotals { lost, .. }) = serde_json::from_str(&line) {
            self.lost[index] = lost;
            return Ok(());
        }
        let Ok(view) = serde_json::from_str::<TraceView>(&line) else { return Ok(()) };
        self.shown += 1;
        let pod = match &view.pod {
            Some(uid) => self.names[index].of(uid).await,
            None => None,
        };
        let (namespace, name) = pod.unzip();
        let (cluster_name, node) = (cluster.id.to_string(), agent.node.clone());
        let event = Event { view, cluster: cluster_name, node, namespace, name };
        match self.command.output {
            TraceFormat::Json => print(&serde_json::to_string(&event)?),
            format => {
                let has_several = self.nodes.iter().any(|other| other.cluster.id != cluster.id);
                let is_uncut = is_uncut(format, terminal_width());
                print(&growing_row(COLUMNS, &row(&event, has_several), is_uncut))
            }
        }
    }
}

/// Whether cells keep their whole text. A file has no width, and whoever searches it needs whole names.
fn is_uncut(format: TraceFormat, terminal: Option<u16>) -> bool {
    format == TraceFormat::Wide || terminal.is_none()
}

/// A decision, and where it was made. A line of `trace -o json`: fields are added, never renamed.
#[derive(Serialize)]
struct Event {
    #[serde(flatten)]
    view: TraceView,
    #[serde(rename = "k8s.cluster.name")]
    cluster: String,
    #[serde(rename = "k8s.node.name")]
    node: String,
    /// The client's pod.
    #[serde(rename = "k8s.namespace.name", skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(rename = "k8s.pod.name", skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

/// The cells of an event.
fn row(event: &Event, has_several: bool) -> [String; 5] {
    let Event { view, cluster, node, namespace, name } = event;
    let time = view.timestamp.strftime("%H:%M:%S").to_string();
    let node = if has_several { format!("{cluster}/{node}") } else { node.clone() };
    let pod = namespace.as_ref().zip(name.as_ref());
    let client = pod.map(|(namespace, name)| format!("{namespace}/{name}"));
    let client = client.or_else(|| view.pod.clone()).unwrap_or_else(|| view.client());
    [time, node, view.service(), view.outcome(), client].map(|text| one_line_of(&text, CELL))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(more: Value, pod: Option<&str>) -> Event {
        let mut view = json!({
            "timestamp": "2026-11-26T12:00:01.123Z", "destination.address": "10.99.0.10",
            "destination.port": 80, "mcs.verdict": "refused", "mcs.reason": "refused_unknown_port",
            "mcs.path": "socket", "network.type": "ipv4",
        });
        if let (Value::Object(view), Value::Object(more)) = (&mut view, more) {
            view.extend(more);
        }
        Event {
            view: serde_json::from_value(view).unwrap(),
            cluster: "east".to_owned(),
            node: "n1".to_owned(),
            namespace: pod.map(|_| "shop".to_owned()),
            name: pod.map(str::to_owned),
        }
    }

    #[test]
    fn nodes_are_those_of_each_cluster_in_turn() {
        let lists = || [vec!["a1", "a2", "a3"], vec![], vec!["c1"]].map(Vec::into_iter).into();
        assert_eq!(in_turn(lists(), 50), ["a1", "c1", "a2", "a3"]);
        assert_eq!(in_turn(lists(), 3), ["a1", "c1", "a2"]);
        assert_eq!(in_turn(lists(), 1), ["a1"]);
        assert_eq!(in_turn(Vec::<std::vec::IntoIter<&str>>::new(), 3), [""; 0]);
    }

    #[test]
    fn a_row_names_what_is_known() {
        let refused = event(json!({"thread.name": "cu\u{1b}[31m", "process.pid": 7}), None);
        let cells = row(&refused, false);
        assert_eq!(cells[..4], ["12:00:01", "n1", "10.99.0.10:80", "refused_unknown_port"]);
        assert!(!cells[4].contains('\u{1b}') && cells[4].ends_with("/7"), "{cells:?}");
        let more = json!({
            "mcs.import": "shop/cart", "network.peer.address": "10.20.1.5", "network.peer.port": 8080,
            "mcs.source_cluster": "west", "k8s.pod.uid": "0b5b",
        });
        let translated = event(more, Some(&format!("web-{}", "x".repeat(60))));
        let cells = row(&translated, true);
        assert_eq!(cells[1..4], ["east/n1", "shop/cart:80", "10.20.1.5:8080 west"]);
        let line = |terminal| growing_row(COLUMNS, &cells, is_uncut(TraceFormat::Table, terminal));
        assert!(line(Some(200)).chars().count() <= 80);
        assert!(line(None).ends_with(&cells[4]), "a file has the client's name");
    }
}
