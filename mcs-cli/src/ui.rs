//! `mcs ui`: the page of an agent or of the controller, on a port of this machine.

use std::{
    process::{ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use mcs_kube::program::{self, page::PATH, print, until_signal};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    process::{Child, ChildStdout},
    time::timeout,
};

use crate::{
    agent_pod,
    cluster::{Cluster, LEASES, PODS},
    kubeconfig::{self, KubeconfigArg, KubeconfigError},
    tool::tool,
};

/// The controller: the label of its pods, and the name of the leader's Lease.
const CONTROLLER: &str = "mcs-controller";
/// The time limit of the forward and the first answer.
const LIMIT: Duration = Duration::from_secs(20);

/// Show the page of an agent, or of the controller, in a browser on this machine
///
/// Forwards a port of 127.0.0.1 to the pod, by kubectl and with your rights (`pods/portforward`), prints the URL, and goes on
/// until Ctrl-C. The page is off unless the chart's value `page.enabled` is set. Without --node it is that of the first agent
/// that is ready.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcs ui --node worker-1
  mcs ui --context east --controller
  mcs ui --port 8080")]
pub(super) struct UiCommand {
    /// A context of KUBECONFIG or of ~/.kube/config [default: the current one]
    #[arg(long, value_name = "NAME", conflicts_with = "kubeconfig")]
    context: Option<String>,

    /// A kubeconfig instead: `FILE` or `FILE:CONTEXT`
    #[arg(long, value_name = "KUBECONFIG")]
    kubeconfig: Option<KubeconfigArg>,

    /// The node of the agent
    #[arg(long, value_name = "NODE")]
    node: Option<String>,

    /// The page of the controller, for the clusterset: that of the replica at work
    #[arg(long, conflicts_with = "node")]
    controller: bool,

    /// The controller's namespace
    #[arg(long, env = "MCS_NAMESPACE", value_name = "NAMESPACE", default_value = CONTROLLER)]
    namespace: String,

    /// The port on this machine [default: a free one]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
}

pub(super) fn run(command: &UiCommand) -> anyhow::Result<ExitCode> {
    program::block_on(async {
        tokio::select! {
            result = show(command) => result,
            result = until_signal() => result,
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn show(command: &UiCommand) -> anyhow::Result<()> {
    let contexts: Vec<_> = command.context.iter().cloned().collect();
    let given = kubeconfig::named(command.kubeconfig.as_slice(), &contexts)?;
    let given = match given.into_iter().next() {
        Some(given) => given,
        None => KubeconfigArg::of_environment()?.ok_or(KubeconfigError::None)?,
    };
    // The cluster needs no id: an agent serves imports of other controllers too.
    let cluster = Cluster::open_as(&given, "unknown".parse()?).await?;
    let (namespace, name) = if command.controller {
        (command.namespace.clone(), leader(&cluster, &command.namespace).await?)
    } else {
        agent(&cluster, command.node.as_deref()).await?
    };
    let pod = cluster.get(PODS, Some(&namespace), &name).await?;
    let pod = pod.with_context(|| format!("the pod {namespace}/{name} has just gone"))?;
    let remote = health_port(&pod).with_context(|| {
        format!("the pod {namespace}/{name} has no port for health: its page is off")
    })?;
    let mut kubectl = tool("kubectl", "--context", &given)?;
    let local = command.port.map(|port| port.to_string()).unwrap_or_default();
    kubectl.args(["port-forward", "--address", "127.0.0.1", "--namespace", &namespace]);
    kubectl.args([format!("pod/{name}"), format!("{local}:{remote}")]);
    let mut child = kubectl
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("cannot run kubectl")?;
    let (port, mut said) = forwarded(&mut child).await?;
    let status = timeout(LIMIT, ask(port)).await.ok().and_then(Result::ok);
    match status.as_deref() {
        Some("200") => {}
        Some("404") => bail!(
            "the page of {namespace}/{name} is off: set the value page.enabled of its chart, or give it --page"
        ),
        _ => bail!("{namespace}/{name} does not answer on its port {remote}"),
    }
    print(&format!("http://127.0.0.1:{port}{PATH}  ({namespace}/{name}; Ctrl-C ends it)"))?;
    // kubectl prints a line for each connection, and blocks if nobody reads it.
    tokio::io::copy(&mut said, &mut tokio::io::sink()).await?;
    bail!("kubectl port-forward has ended: {}", child.wait().await?)
}

/// The namespace and name of an agent's pod.
async fn agent(cluster: &Cluster, node: Option<&str>) -> anyhow::Result<(String, String)> {
    let mut pods = agent_pod::pods(cluster, node).await?;
    pods.sort_by_key(|pod| pod.obstacle.is_some());
    let pod = pods.into_iter().next().with_context(|| match node {
        Some(node) => format!("no pod of the agent runs on node {node}"),
        None => "no pod of the agent runs in this cluster".to_owned(),
    })?;
    Ok((pod.namespace, pod.name))
}

/// The replica that holds the Lease, else any ready one.
async fn leader(cluster: &Cluster, namespace: &str) -> anyhow::Result<String> {
    let selector = format!("app.kubernetes.io/name={CONTROLLER}");
    let pods = cluster.list_in(PODS, Some(namespace), &selector).await?;
    let lease = cluster.get(LEASES, Some(namespace), CONTROLLER).await?.unwrap_or_default();
    let chosen = choose(&pods, lease["spec"]["holderIdentity"].as_str());
    chosen.with_context(|| {
        format!(
            "no pod of the controller is ready in namespace {namespace}: --namespace names another"
        )
    })
}

fn choose(pods: &[Value], holder: Option<&str>) -> Option<String> {
    let names = pods.iter().filter(|pod| agent_pod::is_ready(pod));
    let names: Vec<_> = names.filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
    let held = names.iter().find(|name| Some(**name) == holder);
    held.or(names.first()).map(|name| (*name).to_owned())
}

/// The health port, which serves the page too.
fn health_port(pod: &Value) -> Option<u64> {
    let mut containers = pod["spec"]["containers"].as_array()?.iter();
    containers.find_map(|container| match &container["livenessProbe"]["httpGet"]["port"] {
        Value::String(name) => {
            let ports = container["ports"].as_array()?;
            ports.iter().find(|port| port["name"] == **name)?["containerPort"].as_u64()
        }
        port => port.as_u64(),
    })
}

/// Waits until kubectl listens. Returns the port on this machine, and the rest of kubectl's output.
async fn forwarded(child: &mut Child) -> anyhow::Result<(u16, BufReader<ChildStdout>)> {
    let mut said = BufReader::new(child.stdout.take().context("kubectl has no output")?);
    let mut line = String::new();
    let read = timeout(LIMIT, said.read_line(&mut line)).await;
    read.context("kubectl port-forward says nothing")??;
    ensure!(!line.is_empty(), "kubectl port-forward has failed");
    // `Forwarding from 127.0.0.1:43211 -> 16450`.
    let port = line.split(" -> ").next().and_then(|from| from.rsplit(':').next());
    let port = port.and_then(|port| port.parse().ok());
    Ok((port.with_context(|| format!("kubectl port-forward: {}", line.trim()))?, said))
}

/// The status of the page.
async fn ask(port: u16) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!("HEAD {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.take(4096).read_to_string(&mut answer).await?;
    Ok(answer.split(' ').nth(1).unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_replica_at_work_is_shown() {
        let pod = |name: &str, ready: &str| json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}});
        let pods = [pod("a", "False"), pod("b", "True"), pod("c", "True")];
        assert_eq!(choose(&pods, Some("c")).as_deref(), Some("c"));
        assert_eq!(choose(&pods, Some("a")).as_deref(), Some("b"));
        assert_eq!(choose(&pods[..1], None), None);
    }

    #[test]
    fn the_port_is_that_of_the_probe() {
        let pod = |port: Value| {
            let ports = json!([{"name": "metrics", "containerPort": 1}, {"name": "health", "containerPort": 2}]);
            let probe = json!({"httpGet": {"path": "/livez", "port": port}});
            json!({"spec": {"containers": [{"name": "sidecar"}, {"ports": ports, "livenessProbe": probe}]}})
        };
        assert_eq!(health_port(&pod(json!(16450))), Some(16450));
        assert_eq!(health_port(&pod(json!("health"))), Some(2));
        assert_eq!(health_port(&pod(json!("other"))), None);
        assert_eq!(health_port(&json!({})), None);
    }
}
