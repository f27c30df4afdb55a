//! `mcs explain`: why a pod of any cluster reaches a service of the clusterset, or not.

pub(crate) mod client;
mod code;
mod target;

use std::{net::IpAddr, process::ExitCode};

use clap::Args;
use mcs_controller::clusterset::ServiceName;
use mcs_kube::{
    hanging, one_line, one_line_of,
    program::{self, Format, OutputArgs, print},
    told,
};
use serde::Serialize;
use serde_json::Value;

pub(super) use self::client::NotAsked;
use self::{
    client::{Client, DnsServer},
    code::{Code, Finding, Severity},
    target::Target,
};
use crate::{
    agent_pod::{self, AgentPod},
    cluster::{Cluster, SERVICES},
    contexts::{self, Contexts},
    dns::SYSTEM,
    fleet,
    kubeconfig::ContextArgs,
    status::service::{self, ServiceStatus},
    tool::said_last,
};

/// Explain why a pod reaches a service, or not: in the agent of its node, and in the controllers of all clusters
///
/// Finds the pod in the clusters of all contexts, or of the given ones, and runs `mcs-agent explain` in the agent's pod of its
/// node, by kubectl. It takes the rights to get the pod, to list pods, and to exec into the agent's. Then it says what the
/// clusters export and import. Each finding has a code; deploy/explain.md lists them.
///
/// Exits with 0 if the service is served, with 1 if something is wrong, with 3 if a cluster or the agent could not be asked.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs explain -n shop web-7d9c cart
  mcs explain web-7d9c cart.shop.svc.clusterset.local:80 --probe
  mcs explain front/web-7d9c shop/cart --context east -o json")]
pub(super) struct ExplainCommand {
    /// The pod that connects: NAME or NAMESPACE/NAME
    #[arg(value_name = "POD")]
    pod: String,

    /// The service: NAME, NAMESPACE/NAME or NAME.NAMESPACE.svc.clusterset.local, with or without :PORT. Without namespace it is
    /// one of the pod's
    #[arg(value_name = "SERVICE")]
    service: Target,

    /// The namespace of the pod [default: that of the context]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    #[command(flatten)]
    contexts: ContextArgs,

    /// Connect by TCP to the VIP and to some backends: from the pod's network namespace if the agent sees the pod's processes
    /// (hostPID), else from its node
    #[arg(long)]
    probe: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// The explanation. `explain -o json`: fields are added, never renamed.
#[derive(Debug, Serialize)]
struct Found {
    pod: Client,
    /// `NAMESPACE/NAME` or `NAMESPACE/NAME:PORT`.
    service: String,
    /// Whether nothing wrong was found.
    served: bool,
    /// The findings outside of the agent, the worst first.
    findings: Vec<Finding>,
    /// The agent's pod: `NAMESPACE/NAME`.
    agent: Option<String>,
    /// The agent's answer, as `mcs-agent explain -o json`; absent without an answer.
    explained: Option<Value>,
    /// Why no DNS server was asked; absent if one was asked.
    dns_unasked: Option<String>,
    /// The agent's tree, for people.
    #[serde(skip)]
    tree: Option<String>,
    /// The exports and imports of each cluster.
    clusters: Vec<ServiceStatus>,
    #[serde(skip)]
    severity: Option<Severity>,
}

/// The answer of an agent.
struct Answer {
    explained: Option<Value>,
    tree: Option<String>,
    severity: Option<Severity>,
}

pub(super) fn run(command: &ExplainCommand) -> anyhow::Result<ExitCode> {
    let read = || program::block_on(explain(command));
    let explained = command.output.show(read, |explained, _| print(&explained.text()))?;
    Ok(explained.severity.map_or(0, Severity::exit_status).into())
}

async fn explain(command: &ExplainCommand) -> anyhow::Result<Found> {
    let contexts = contexts::open(&command.contexts.named()?).await?;
    let found = client::find(&contexts, command.namespace.as_deref(), &command.pod).await?;
    let (pod, cluster) = (found.client, found.cluster);
    let name = command.service.name_in(&pod.namespace)?;
    let service = command.service.shown(&name);
    let mut findings = Vec::new();
    let mut answer = None;
    let mut agent = None;
    let (dns, dns_unasked) = match dns_server(cluster, &pod).await {
        Ok(address) => (Some(address), None),
        Err(why) => (None, Some(why)),
    };
    let agents = match &pod.node {
        Some(node) => agent_pod::pods(cluster, Some(node)).await.map(Some),
        None => Ok(None),
    };
    match agents {
        Ok(None) => {}
        Ok(Some(pods)) => {
            if let Some(one) = pods.first() {
                let client = (&pod, dns.as_deref());
                answer = ask(command, (cluster, one), client, &service, &mut findings).await;
                agent = Some(format!("{}/{}", one.namespace, one.name));
            } else {
                let node = pod.node.as_deref().unwrap_or_default();
                let what = format!("no agent runs on node {node} of {}", pod.cluster);
                findings.push(Finding::new(Code::NoAgent, what));
            }
        }
        Err(error) => {
            let what = format!("the agents of {}: {}", pod.cluster, told(&error));
            findings.push(Finding::new(Code::AgentUnasked, what));
        }
    }
    findings.extend(pod.obstacle());
    let clusters = statuses(&contexts, &name, &pod.cluster, &mut findings).await;
    findings.sort_by_key(|finding| finding.severity);
    let of_agent = answer.as_ref().and_then(|answer| answer.severity);
    let severity = findings.iter().map(|one| one.severity).chain(of_agent).min();
    Ok(Found {
        pod,
        service,
        served: severity.is_none_or(|severity| severity == Severity::Note),
        findings,
        agent,
        explained: answer.as_mut().and_then(|answer| answer.explained.take()),
        dns_unasked,
        tree: answer.and_then(|answer| answer.tree),
        clusters,
        severity,
    })
}

/// The DNS server of the pod, by its object, or why it is unknown.
async fn dns_server(cluster: &Cluster, pod: &Client) -> Result<String, String> {
    match pod.dns() {
        DnsServer::OfCluster => {}
        DnsServer::Own(address) => return Ok(address.to_string()),
        DnsServer::Unknown(why) => return Err(why.to_owned()),
    }
    let found = cluster.get(SERVICES, Some(SYSTEM), "kube-dns").await;
    cluster_ip(found.map_err(|error| told(&error))?.as_ref())
}

fn cluster_ip(service: Option<&Value>) -> Result<String, String> {
    let service = service.ok_or_else(|| format!("there is no Service kube-dns in {SYSTEM}"))?;
    let address = service["spec"]["clusterIP"].as_str();
    let address = address.filter(|address| address.parse::<IpAddr>().is_ok());
    address.map(str::to_owned).ok_or_else(|| format!("Service kube-dns in {SYSTEM} has no address"))
}

/// Runs `mcs-agent explain` in the agent's pod.
async fn ask(
    command: &ExplainCommand,
    (cluster, agent): (&Cluster, &AgentPod),
    (pod, dns): (&Client, Option<&str>),
    service: &str,
    findings: &mut Vec<Finding>,
) -> Option<Answer> {
    let format = match command.output.format() {
        Format::Table => "table",
        Format::Wide => "wide",
        Format::Json | Format::Yaml => "json",
    };
    let mut words = vec!["explain", service, "--pod", &*pod.cgroup_uid, "--output", format];
    words.extend(command.probe.then_some("--probe"));
    words.extend(dns.iter().flat_map(|address| ["--dns-server", address]));
    let mut unasked = |what: String| {
        let obstacle = agent.obstacle.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
        let what = format!("pod {}/{}: {what}{obstacle}", agent.namespace, agent.name);
        findings.push(Finding::new(Code::AgentUnasked, one_line(&what)));
    };
    let output = match agent.run(cluster, &words).await {
        Ok(output) => output,
        Err(error) => {
            unasked(told(&error));
            return None;
        }
    };
    let severity = match output.status.code() {
        Some(0) => None,
        Some(1) => Some(Severity::Wrong),
        Some(3) => Some(Severity::Unknown),
        _ => {
            unasked(said_last(&output));
            return None;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    // kubectl's own failures also end with 1.
    if text.is_empty() {
        unasked(said_last(&output));
        return None;
    }
    if format != "json" {
        return Some(Answer { explained: None, tree: Some(text), severity });
    }
    match serde_json::from_str(&text) {
        Ok(explained) => Some(Answer { explained: Some(explained), tree: None, severity }),
        Err(error) => {
            unasked(format!("its answer is no JSON: {error}"));
            None
        }
    }
}

/// The state of the service in each cluster. The pod's cluster has to import it; findings in other clusters are notes.
async fn statuses(
    contexts: &Contexts,
    name: &ServiceName,
    own: &str,
    findings: &mut Vec<Finding>,
) -> Vec<ServiceStatus> {
    let mut all = Vec::new();
    let read = fleet::each(&contexts.clusters, async |cluster| {
        (cluster, service::read(cluster, name).await)
    });
    for (cluster, status) in read.await {
        match status {
            Ok(status) => {
                let problems = status.problems.join("; ");
                let is_refused = status.is_refused && status.cluster == own;
                if is_refused || !problems.is_empty() {
                    let code = if is_refused { Code::NotImported } else { Code::ClusterNote };
                    let what = format!("{}: import {}: {problems}", status.cluster, status.import);
                    findings.push(Finding::new(code, one_line(&what)));
                }
                all.push(status);
            }
            Err(error) => {
                let what = format!("{}: {}", cluster.id, told(&error));
                findings.push(Finding::new(Code::ClusterUnasked, what));
            }
        }
    }
    let unasked = contexts.unasked.iter().map(|one| format!("{}: {}", one.name, one.error));
    findings.extend(unasked.map(|what| Finding::new(Code::ClusterUnasked, what)));
    all
}

impl Found {
    fn text(&self) -> String {
        const WIDTH: usize = 80;
        let unasked = format!("{}: the agent of its node was not asked", self.service);
        let mut text = hanging(0, &self.pod.line(self.agent.as_deref()), WIDTH);
        match &self.tree {
            // The agent escapes foreign texts, but the process in the pod may not be the agent.
            Some(tree) => text.push_str(&escaped(tree)),
            None => text.push_str(hanging(0, &unasked, WIDTH).trim_end()),
        }
        if let Some(why) = &self.dns_unasked {
            text.push('\n');
            text.push_str(hanging(0, &format!("DNS not asked: {why}"), WIDTH).trim_end());
        }
        text.push_str("\nclusters:\n");
        for one in &self.clusters {
            let list = |before: &str, all: &[String]| match all {
                [] => String::new(),
                all => format!("{before}{}", all.join(", ")),
            };
            let ServiceStatus { cluster, export, import, addresses, clusters, .. } = one;
            let (at, from) = (list(" at ", addresses), list(" from ", clusters));
            let line = format!("{cluster}: export {export}, import {import}{at}{from}");
            text.push_str(&hanging(2, &line, WIDTH));
        }
        for finding in &self.findings {
            text.push_str(&hanging(0, &finding.line(), WIDTH));
            text.push_str(&hanging(2, &format!("-> {}", finding.advice), WIDTH));
        }
        text.trim_end().to_owned()
    }
}

/// Foreign lines, without characters that move the cursor or change the writing direction.
fn escaped(text: &str) -> String {
    let word = |word: &str| one_line_of(word, usize::MAX);
    let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tree_keeps_its_lines_and_moves_no_cursor() {
        assert_eq!(escaped("a  b\n    \u{1b}[2J \u{202e}c"), "a  b\n    \\u{1b}[2J \\u{202e}c");
    }

    #[test]
    fn the_dns_server_is_an_address_of_kube_dns() {
        let service = |ip: &str| json!({"spec": {"clusterIP": ip}});
        assert_eq!(cluster_ip(Some(&service("10.96.0.10"))), Ok("10.96.0.10".to_owned()));
        assert!(cluster_ip(Some(&service("None"))).is_err());
        assert!(cluster_ip(None).unwrap_err().starts_with("there is no Service kube-dns"));
    }
}
