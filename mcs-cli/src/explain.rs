//! `mcs explain`: whether clusters and their nodes serve a service, and why a pod reaches it, or not.

pub(crate) mod client;
mod target;

use std::{net::IpAddr, process::ExitCode};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use mcs_controller::core::clusterset::ServiceName;
use mcs_kube::{
    hanging, one_line, one_line_of,
    program::{self, Format, OutputArgs, finding::Finding, print},
    reasons::{Code, Severity},
    told,
};
use serde::Serialize;
use serde_json::Value;

pub(super) use self::client::NotAsked;
use self::{
    client::{Client, DnsServer},
    target::ServiceTarget,
};
use crate::{
    agent_pod::{self, AgentPod},
    cluster::{Cluster, SERVICES},
    contexts::{self, Contexts},
    dns::SYSTEM,
    fleet,
    kubeconfig::ContextArgs,
    services::{
        nodes,
        service::{self, Service},
    },
    tool::said_last,
};

/// Explain whether a service is served in every cluster and on their nodes, or why one pod reaches it, or not
///
/// SERVICE alone: says for each cluster what it exports and imports, which clusters it is ready from, and which nodes
/// serve it. It asks the agent of every node, by kubectl.
///
/// POD SERVICE: finds the pod in the clusters of all contexts, or of the given ones, and runs `mcs-agent explain` in the
/// agent's pod of its node, by kubectl. It takes the rights to get the pod, to list pods, and to exec into the agent's.
/// Then it says what the clusters export and import. Each finding has a code; deploy/explain.md lists them.
///
/// Exits with 0 if the service is served, with 1 if something is wrong, with 3 if a cluster or an agent could not be asked.
#[derive(Debug, Args)]
#[command(
    allow_missing_positional = true,
    after_help = "\
Examples:
  mcs explain shop/cart
  mcs explain -n shop web-7d9c cart
  mcs explain web-7d9c cart.shop.svc.clusterset.local:80 --probe
  mcs explain front/web-7d9c shop/cart --context east -o json"
)]
pub(super) struct ExplainCommand {
    /// The pod that connects: NAME or NAMESPACE/NAME
    #[arg(value_name = "POD")]
    pod: Option<String>,

    /// The service: NAME, NAMESPACE/NAME or NAME.NAMESPACE.svc.clusterset.local, with or without :PORT. Without namespace it is
    /// one of the pod's. A port takes a pod
    #[arg(value_name = "SERVICE")]
    service: ServiceTarget,

    /// The namespace of the pod [default: that of the context], or of the service if there is no pod
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    #[command(flatten)]
    contexts: ContextArgs,

    /// Connect by TCP to the VIP and to some backends: from the pod's network namespace if the agent sees the pod's processes
    /// (hostPID), else from its node
    #[arg(long, requires = "pod")]
    probe: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// The explanation. `explain -o json`: fields are added, never renamed.
#[derive(Debug, Serialize)]
struct Explanation {
    /// Null if none is named.
    pod: Option<Client>,
    /// `NAMESPACE/NAME` or `NAMESPACE/NAME:PORT`.
    service: String,
    /// Whether nothing wrong was found.
    served: bool,
    /// The findings outside of the agent, the worst first.
    findings: Vec<Finding>,
    #[serde(flatten)]
    node: OnNode,
    /// The service in each cluster.
    clusters: Vec<Service>,
    #[serde(skip)]
    severity: Option<Severity>,
}

/// What the agent of the pod's node says.
#[derive(Debug, Default, Serialize)]
struct OnNode {
    /// The agent's pod: `NAMESPACE/NAME`.
    agent: Option<String>,
    /// The agent's answer, as `mcs-agent explain -o json`; null without an answer.
    explained: Option<Value>,
    /// Why no DNS server was asked; null if one was asked.
    dns_unasked: Option<String>,
    /// The agent's tree, for people.
    #[serde(skip)]
    tree: Option<String>,
    #[serde(skip)]
    severity: Option<Severity>,
}

pub(super) fn run(command: &ExplainCommand) -> anyhow::Result<ExitCode> {
    let read = || program::block_on(explain(command));
    let explained = command.output.show(read, |explained, _| print(&explained.text()))?;
    Ok(explained.severity.map_or(0, Severity::exit_status).into())
}

async fn explain(command: &ExplainCommand) -> anyhow::Result<Explanation> {
    let contexts = contexts::open(&command.contexts.named()?).await?;
    let namespace = command.namespace.as_deref();
    let mut findings = Vec::new();
    let (pod, name, node) = if let Some(pod) = &command.pod {
        let client::ClientPod { client, cluster } = client::find(&contexts, namespace, pod).await?;
        let name = command.service.name_in(Some(&client.namespace))?;
        let service = command.service.shown(&name);
        let node = on_node(command, cluster, &client, &service, &mut findings).await;
        findings.extend(client.obstacle());
        (Some(client), name, node)
    } else {
        ensure!(
            !command.service.has_port(),
            "a port is explained for a pod: name one, or leave the port out"
        );
        (None, command.service.name_in(namespace)?, OnNode::default())
    };
    let own = pod.as_ref().map(|pod| &*pod.cluster);
    let clusters = in_clusters(&contexts, &name, own, &mut findings).await;
    findings.sort_by_key(|finding| finding.severity);
    let severity = findings.iter().map(|one| one.severity).chain(node.severity).min();
    Ok(Explanation {
        pod,
        service: command.service.shown(&name),
        served: severity.is_none_or(|severity| severity == Severity::Note),
        findings,
        node,
        clusters,
        severity,
    })
}

/// Asks the agent of the pod's node.
async fn on_node(
    command: &ExplainCommand,
    cluster: &Cluster,
    pod: &Client,
    service: &str,
    findings: &mut Vec<Finding>,
) -> OnNode {
    let (dns, dns_unasked) = match dns_server(cluster, pod).await {
        Ok(address) => (Some(address), None),
        Err(why) => (None, Some(why)),
    };
    let mut said = OnNode { dns_unasked, ..OnNode::default() };
    let Some(node) = &pod.node else { return said };
    let unasked = match agent_pod::pods(cluster, Some(node)).await.as_deref() {
        Ok([agent, ..]) => {
            let shown = format!("{}/{}", agent.namespace, agent.name);
            let client = (pod, dns.as_deref());
            let asked = ask(command, (cluster, agent), client, service, &mut said).await;
            let obstacle =
                agent.obstacle.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
            let what = asked.err().map(|error| format!("pod {shown}: {}{obstacle}", told(&error)));
            said.agent = Some(shown);
            what.map(|what| (Code::AgentUnasked, what))
        }
        Ok([]) => Some((Code::NoAgent, format!("no agent runs on node {node} of {}", pod.cluster))),
        Err(error) => {
            Some((Code::AgentUnasked, format!("the agents of {}: {}", pod.cluster, told(error))))
        }
    };
    findings.extend(unasked.map(|(code, what)| Finding::new(code, one_line(&what))));
    said
}

/// The DNS server of the pod, by its object, or why it is unknown.
async fn dns_server(cluster: &Cluster, pod: &Client) -> Result<String, String> {
    match pod.dns() {
        DnsServer::OfCluster => {}
        DnsServer::Own(address) => return Ok(address.to_string()),
        DnsServer::Unknown(why) => return Err(why.to_owned()),
    }
    cluster_dns(cluster).await.map(|address| address.to_string())
}

/// The address of Service `kube-dns`, or why it is unknown.
pub(crate) async fn cluster_dns(cluster: &Cluster) -> Result<IpAddr, String> {
    let found = cluster.get(SERVICES, Some(SYSTEM), "kube-dns").await;
    cluster_ip(found.map_err(|error| told(&error))?.as_ref())
}

fn cluster_ip(service: Option<&Value>) -> Result<IpAddr, String> {
    let service = service.ok_or_else(|| format!("there is no Service kube-dns in {SYSTEM}"))?;
    let address = service["spec"]["clusterIP"].as_str().and_then(|address| address.parse().ok());
    address.ok_or_else(|| format!("Service kube-dns in {SYSTEM} has no address"))
}

/// Runs `mcs-agent explain` in the agent's pod.
async fn ask(
    command: &ExplainCommand,
    (cluster, agent): (&Cluster, &AgentPod),
    (pod, dns): (&Client, Option<&str>),
    service: &str,
    said: &mut OnNode,
) -> anyhow::Result<()> {
    let format = match command.output.format() {
        Format::Table => "table",
        Format::Wide => "wide",
        Format::Json | Format::Yaml => "json",
    };
    let mut words = vec!["explain", service, "--pod", &*pod.cgroup_uid, "--output", format];
    words.extend(command.probe.then_some("--probe"));
    words.extend(dns.iter().flat_map(|address| ["--dns-server", address]));
    let output = agent.run(cluster, &words).await?;
    let severity = match output.status.code() {
        Some(0) => None,
        Some(1) => Some(Severity::Wrong),
        Some(3) => Some(Severity::Unknown),
        _ => bail!(said_last(&output)),
    };
    let text = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    // kubectl's own failures also end with 1.
    ensure!(!text.is_empty(), said_last(&output));
    if format == "json" {
        said.explained = Some(serde_json::from_str(&text).context("its answer is no JSON")?);
    } else {
        said.tree = Some(text);
    }
    said.severity = severity;
    Ok(())
}

/// The service in each cluster. `own`, the cluster of a pod, has to import it, and findings in others are notes. Without a pod
/// each cluster has to serve it, on all nodes.
async fn in_clusters(
    contexts: &Contexts,
    name: &ServiceName,
    own: Option<&str>,
    findings: &mut Vec<Finding>,
) -> Vec<Service> {
    let mut all = Vec::new();
    let read = fleet::each(&contexts.clusters, async |cluster| {
        let views = match own {
            Some(_) => None,
            None => Some(nodes::ask(cluster, Some(name.namespace())).await),
        };
        let found = service::read(cluster, name, views.as_ref()).await;
        (&cluster.id, found, views.map(|views| views.unasked).unwrap_or_default())
    });
    for (id, found, unasked) in read.await {
        let lost = |what: &str| Finding::new(Code::ClusterUnasked, format!("{id}: {what}"));
        match found {
            Ok((one, unread)) => {
                findings.extend(judge(&one, own));
                findings.extend(unread.map(|why| lost(&format!("its EndpointSlices: {why}"))));
                all.push(one);
            }
            Err(error) => findings.push(lost(&told(&error))),
        }
        let unasked = unasked.iter().map(|why| format!("{id}: {why}"));
        findings.extend(unasked.map(|what| Finding::new(Code::AgentUnasked, what)));
    }
    let unasked = contexts.unasked.iter().map(|one| format!("{}: {}", one.name, one.error));
    findings.extend(unasked.map(|what| Finding::new(Code::ClusterUnasked, what)));
    all
}

/// The finding about the service in a cluster.
fn judge(one: &Service, own: Option<&str>) -> Option<Finding> {
    let is_meant = own.is_none_or(|own| own == one.cluster);
    let code = match one {
        Service { is_refused: true, .. } if is_meant => Code::NotImported,
        Service { is_wrong: true, .. } if own.is_none() => Code::NotServed,
        Service { problems, .. } if problems.is_empty() => return None,
        _ => Code::ClusterNote,
    };
    let what = format!("{}: import {}: {}", one.cluster, one.import, one.problems.join("; "));
    Some(Finding::new(code, one_line(&what)))
}

impl Explanation {
    fn text(&self) -> String {
        const WIDTH: usize = 80;
        let mut text = match &self.pod {
            Some(pod) => hanging(0, &pod.line(self.node.agent.as_deref()), WIDTH),
            None => hanging(0, &format!("service {}", self.service), WIDTH),
        };
        match &self.node.tree {
            // The agent escapes foreign texts, but the process in the pod may not be the agent.
            Some(tree) => text.extend([&*escaped(tree), "\n"]),
            None if self.pod.is_none() => {}
            None => {
                let unasked = format!("{}: the agent of its node was not asked", self.service);
                text.push_str(&hanging(0, &unasked, WIDTH));
            }
        }
        if let Some(why) = &self.node.dns_unasked {
            text.push_str(&hanging(0, &format!("DNS not asked: {why}"), WIDTH));
        }
        text.push_str("clusters:\n");
        for one in &self.clusters {
            let list = |before: &str, all: &str| match all {
                "" => String::new(),
                all => format!("{before}{all}"),
            };
            let at = list(" at ", &one.addresses.join(", "));
            let from = list(" from ", &one.sources());
            let line =
                format!("{}: export {}, import {}{at}{from}", one.cluster, one.export, one.import);
            text.push_str(&hanging(2, &line, WIDTH));
            let nodes = one.nodes.iter().map(|nodes| hanging(4, &nodes.named(), WIDTH));
            text.extend(nodes);
        }
        for finding in &self.findings {
            text.push_str(&finding.text(WIDTH));
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
    use clap::{Command, FromArgMatches as _};
    use serde_json::json;

    use super::*;
    use crate::contexts::Unasked;

    #[tokio::test]
    async fn a_cluster_that_does_not_answer_is_unknown() {
        let away = Unasked { name: "south".to_owned(), error: "refused".to_owned() };
        let contexts = Contexts { clusters: vec![], unasked: vec![away] };
        let (name, mut findings) = ("shop/web".parse().unwrap(), vec![]);
        assert!(in_clusters(&contexts, &name, None, &mut findings).await.is_empty());
        let codes: Vec<_> = findings.iter().map(|one| &*one.code).collect();
        assert_eq!(codes, ["cluster-unasked"]);
    }

    #[test]
    fn the_pod_may_be_left_out() {
        let command = || ExplainCommand::augment_args(Command::new("explain"));
        let pod = |words: &[&str]| {
            let words = ["explain"].iter().chain(words);
            let matches = command().try_get_matches_from(words)?;
            Ok::<_, clap::Error>(ExplainCommand::from_arg_matches(&matches)?.pod)
        };
        assert_eq!(pod(&["shop/cart", "--context", "east"]).unwrap(), None);
        assert_eq!(pod(&["web", "cart", "--probe"]).unwrap().as_deref(), Some("web"));
        assert!(pod(&["shop/cart", "--probe"]).is_err(), "nobody connects");
    }

    #[test]
    fn without_a_pod_every_cluster_has_to_serve_the_service() {
        let wrong = ["not-imported", "not-imported", "cluster-note"];
        let unready = ["not-served", "cluster-note", "cluster-note"];
        for (is_refused, is_wrong, expected) in [
            (false, false, [None; 3]),
            (true, true, wrong.map(Some)),
            (false, true, unready.map(Some)),
        ] {
            let problems = if is_wrong { vec!["why".to_owned()] } else { vec![] };
            let one = Service {
                cluster: "east".to_owned(),
                is_refused,
                is_wrong,
                problems,
                ..Service::default()
            };
            let code = |own| judge(&one, own).map(|found| found.code);
            let found = [None, Some("east"), Some("west")].map(code);
            assert_eq!(found.each_ref().map(Option::as_deref), expected);
        }
    }

    #[test]
    fn a_tree_keeps_its_lines_and_moves_no_cursor() {
        assert_eq!(escaped("a  b\n    \u{1b}[2J \u{202e}c"), "a  b\n    \\u{1b}[2J \\u{202e}c");
    }

    #[test]
    fn the_dns_server_is_an_address_of_kube_dns() {
        let service = |ip: &str| json!({"spec": {"clusterIP": ip}});
        assert_eq!(cluster_ip(Some(&service("10.96.0.10"))), Ok([10, 96, 0, 10].into()));
        assert!(cluster_ip(Some(&service("None"))).is_err());
        assert!(cluster_ip(None).unwrap_err().starts_with("there is no Service kube-dns"));
    }
}
