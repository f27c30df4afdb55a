//! A cluster that is made anew under its id, with another range of pods.

use std::process::{Output, Stdio};

use anyhow::{Context as _, ensure};
use mcs_tests::{api_server::Api, suite::Suite, topology::Subnet, wait};
use serde_json::{Value, json};

use crate::{
    check,
    cluster::{ARRIVAL, Cluster},
    controller::{self, MAILBOX, NAMESPACE},
    objects::{namespaced, service, slice},
    world::World,
};

pub(crate) const ID: &str = "c4";
/// The pods of the two clusters that have the id one after the other.
pub(crate) const PODS: [Subnet; 2] = [Subnet(41), Subnet(42)];

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a cluster that is rebuilt with another pod range", rebuilt);
}

/// Starts a cluster whose kubeadm says these pods.
pub(crate) fn start(
    world: &World,
    name: &str,
    pods: Subnet,
    number: u16,
) -> anyhow::Result<Cluster> {
    let cluster = Cluster::start_copy(&world.control, ID, name, number)?;
    let mut config = namespaced("v1", "ConfigMap", "kube-system", "kubeadm-config");
    let subnet = format!("networking:\n  podSubnet: {}/24\n", pods.v4(0));
    config["data"] = json!({ "ClusterConfiguration": subnet });
    cluster.api().apply(&config)?;
    let peers = "/apis/clusterset.mcs-agent.io/v1alpha1/clusterpeers";
    wait::until("ClusterPeers", || cluster.api().get(peers))?;
    Ok(cluster)
}

fn link(world: &World, cluster: &Cluster, flags: &[&str]) -> anyhow::Result<Output> {
    let mut link = controller::command_line(world.control.netns())?;
    link.arg("link").arg(world.second().administrator()?).arg(cluster.administrator()?);
    Ok(link.arg("--pod-cidr=c2=10.77.9.32/28").args(flags).output()?)
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&*output.stdout, &output.stderr].concat()).into_owned()
}

/// Links the second cluster with a cluster that invites it. The invitation is for that cluster alone.
fn invited(world: &World, cluster: &Cluster) -> anyhow::Result<()> {
    let file = cluster.directory().join("invitation.yaml");
    let mut invite = controller::command_line(world.control.netns())?;
    invite.args(["invite", "c2"]).arg(cluster.administrator()?).arg("--output").arg(&file);
    let invited = invite.output()?;
    ensure!(invited.status.success(), "{}", said(&invited));
    let join = |cluster: &Cluster| {
        let mut join = controller::command_line(world.control.netns())?;
        join.arg("join").arg(&file).arg(cluster.administrator()?);
        anyhow::Ok(join.args(["-o", "json"]).output()?)
    };
    let refused = join(cluster)?;
    let message = said(&refused);
    ensure!(!refused.status.success() && message.contains("is for cluster c2"), "{message}");
    for _ in 0..2 {
        let joined = join(world.second())?;
        ensure!(joined.status.success(), "{}", said(&joined));
        let done: Value = serde_json::from_slice(&joined.stdout)?;
        ensure!(done[0]["pod_ranges"] == json!(["10.77.41.0/24"]), "{done}");
    }
    Ok(())
}

/// Exports a service that has two pods.
fn export(cluster: &Cluster, namespace: &str, pods: Subnet) -> anyhow::Result<()> {
    cluster.add_namespace(namespace)?;
    let addresses = [11, 12].map(|host| pods.v4(host).to_string());
    let slice = slice(namespace, &addresses, crate::objects::PORTS);
    cluster.export(&service(namespace), Some(&slice))
}

/// What `check` says of the peer of the second cluster.
fn checked(world: &World, cluster: &Cluster) -> anyhow::Result<Value> {
    let mut command = controller::command_line(world.control.netns())?;
    command.arg("check").arg(world.second().administrator()?).arg(cluster.administrator()?);
    command.args(["-o", "json", "--probe=off"]);
    let findings = check::end(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)?;
    let is_of_peer = |one: &Value| {
        let message = one["message"].as_str().unwrap_or_default();
        one["cluster"] == "c2" && one["check"] == "peer" && message.starts_with(ID)
    };
    findings.into_iter().find(is_of_peer).context("nothing of the peer")
}

fn rebuilt(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let first = start(world, "c4-first", PODS[0], 5)?;
    invited(world, &first)?;
    export(&first, &namespace, PODS[0])?;
    let second = world.second();
    second.wait_for_addresses(&namespace, &["10.77.41.11", "10.77.41.12"])?;
    drop(first);

    let anew = start(world, "c4-anew", PODS[1], 6)?;
    export(&anew, &namespace, PODS[1])?;
    anew.wait_for_addresses(&namespace, &["10.77.42.11", "10.77.42.12"])?;
    let refused = link(world, &anew, &[])?;
    let message = said(&refused);
    ensure!(!refused.status.success() && message.contains("give --replace"), "{message}");
    let peer = second.api().read(&peer())?;
    ensure!(peer["spec"]["podCIDRs"] == json!(["10.77.41.0/24"]), "{peer}");
    let finding = checked(world, &anew)?;
    let message = finding["message"].as_str().context("a message")?;
    ensure!(finding["ok"] == false, "{finding}");
    ensure!(message.contains("has pods of 10.77.42.0/24"), "{finding}");
    ensure!(message.contains("its clusterUid is"), "{finding}");

    let linked = link(world, &anew, &["--replace"])?;
    ensure!(linked.status.success(), "{}", said(&linked));
    second.wait_for_addresses(&namespace, &["10.77.42.11", "10.77.42.12"])?;
    let former = rotated(world, &anew)?;
    let finding = checked(world, &anew)?;
    let message = finding["message"].as_str().context("a message")?;
    ensure!(!message.contains("podCIDRs") && !message.contains("clusterUid"), "{finding}");
    wait::within(ARRIVAL, "its former token to end", || ends(&former))?;
    world.spare = Some(anew);
    Ok(())
}

/// The two clusters get new tokens. Returns who asks the second one with the cluster's earlier token, which ends within seconds.
fn rotated(world: &World, cluster: &Cluster) -> anyhow::Result<Api> {
    let second = world.second();
    let former = second.account(MAILBOX, ID)?;
    let mut rotate = controller::command_line(world.control.netns())?;
    rotate.arg("rotate").arg(second.administrator()?).arg(cluster.administrator()?);
    let rotated = rotate.args(["-o", "json"]).output()?;
    ensure!(rotated.status.success(), "{}", said(&rotated));
    let done: Value = serde_json::from_slice(&rotated.stdout)?;
    let expire = done.as_array().context("a list")?.iter().filter(|one| one["expires"].is_string());
    ensure!(expire.count() == 2, "{done}");
    let namespace = world.fresh()?;
    export(cluster, &namespace, PODS[1])?;
    second.wait_for_addresses(&namespace, &["10.77.42.11", "10.77.42.12"])?;
    cluster.unexport(&namespace)?;
    for cluster in [second, cluster] {
        cluster.wait_for_nothing(&namespace)?;
    }
    Ok(former)
}

/// Fails while a token reads the mailbox.
fn ends(reader: &Api) -> anyhow::Result<()> {
    let error = reader.get(&exported()).err().context("it reads the mailbox")?;
    ensure!(format!("{error:#}").contains("401"), "{error:#}");
    Ok(())
}

fn exported() -> String {
    format!("/apis/clusterset.mcs-agent.io/v1alpha1/namespaces/{MAILBOX}/exportedservices")
}

/// It is gone for ever: its token ends, and so does what was imported from it into that namespace.
pub(crate) fn forgotten(world: &World, namespace: &str, rest: &[&str]) -> anyhow::Result<()> {
    let second = world.second();
    let reader = second.account(MAILBOX, ID)?;
    reader.get(&exported()).context("it reads the mailbox before")?;
    let forget = |id: &str| {
        let mut command = controller::command_line(world.control.netns())?;
        anyhow::Ok(command.args(["forget", id]).arg(second.administrator()?).output()?)
    };
    let mistyped = forget("c44")?;
    let message = said(&mistyped);
    ensure!(
        !mistyped.status.success() && message.contains("no cluster here knows c44"),
        "{message}"
    );
    let forgotten = forget(ID)?;
    ensure!(forgotten.status.success(), "{}", said(&forgotten));
    // Endpoints of a ClusterPeer that was deleted stay for 10 seconds.
    second.wait_for_addresses(namespace, rest)?;
    // An API server takes a token for some seconds after its account is gone.
    wait::within(ARRIVAL, "its token to end", || ends(&reader))?;
    for object in [peer(), namespaced("v1", "Secret", NAMESPACE, "peer-c4")] {
        ensure!(second.api().read(&object).is_err(), "{object} is left");
    }
    Ok(())
}

fn peer() -> Value {
    json!({
        "apiVersion": "clusterset.mcs-agent.io/v1alpha1", "kind": "ClusterPeer",
        "metadata": { "name": ID },
    })
}
