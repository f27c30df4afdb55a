//! A mailbox on a hub: an API server that is neither the exporter's nor the importer's.

use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use mcs_tests::{api_server::rights, suite::Suite};
use serde_json::{Value, json};

use crate::{
    check,
    clients::meanwhile,
    controller,
    objects::namespaced,
    peering,
    silence::{follows_again, imported_service, stays},
    world::{POD_RANGES, World},
};

/// The mailbox of the first cluster on the hub.
const MAILBOX: &str = "mcs-c1";

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("link makes the mailboxes of two clusters on a hub", meanwhile(linked));
    suite.case("commands about clusters on a hub refuse without it", refuse_without);
}

/// Links the first two clusters by the third one. Returns what the command has said.
pub(crate) fn link(world: &World) -> anyhow::Result<String> {
    said(&mut link_command(world)?)
}

fn link_command(world: &World) -> anyhow::Result<Command> {
    let mut link = controller::command_line(world.control.netns())?;
    link.arg("link");
    for cluster in [world.first(), world.second()] {
        link.arg(cluster.administrator()?);
    }
    link.arg("--hub").arg(world.clusters[2].administrator()?);
    for (cluster, range) in world.clusters.iter().take(2).zip(POD_RANGES) {
        link.arg("--pod-cidr").arg(format!("{}={range}", cluster.id));
    }
    Ok(link)
}

fn linked(world: &mut World) -> anyhow::Result<()> {
    world.add_third()?;
    let (namespace, before) = imported_service(world)?;
    let output = link_command(world)?.arg("--server=hub=http://hub.example").output()?;
    let refused = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success() && refused.contains("tokens in the clear"), "{refused}");
    let said = link(world)?;
    ensure!(said.contains("mailbox.namespace=mcs-c1 and mailbox.secret=mailbox"), "{said}");
    stays(world, &namespace, &before)?;
    for cluster in world.clusters.iter_mut().take(2) {
        let mailbox = format!("--mailbox=mcs-{}", cluster.id);
        let flags = [&mailbox, "--mailbox-secret=mailbox", "--replica=a"];
        cluster.controller.restart_with(&flags)?;
    }
    stays(world, &namespace, &before)?;
    follows_again(world, &namespace, &before)?;
    let finding = checked(world, &["--mailbox-secret=mailbox"])?;
    ensure!(finding["ok"] == true, "{finding}");
    reads_one_mailbox(world)?;

    let (namespace, before) = imported_service(world)?;
    for cluster in world.clusters.iter_mut().take(2) {
        cluster.controller.restart_with(&[])?;
    }
    peering::connect(world.first(), world.second(), POD_RANGES[1])?;
    peering::connect(world.second(), world.first(), POD_RANGES[0])?;
    stays(world, &namespace, &before)?;
    follows_again(world, &namespace, &before)?;
    publishes_until_nobody_reads(world)
}

/// Commands that would act on the clusters alone refuse, and change nothing: the rights are on the hub. With it they work.
fn refuse_without(world: &mut World) -> anyhow::Result<()> {
    world.add_third()?;
    link(world)?;
    let [first, second] = [world.first(), world.second()];
    let peers = || second.api().get("/apis/clusterset.mcs-agent.io/v1alpha1/clusterpeers/c1");
    let before = peers()?["metadata"]["uid"].take();
    for words in [&["down", "--yes"][..], &["forget", "c1"], &["rotate"], &["unlink"]] {
        let mut command = controller::command_line(world.control.netns())?;
        command.args(words).arg(second.administrator()?);
        if words[0] != "forget" {
            command.arg(first.administrator()?);
        }
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success(), "{words:?}");
        ensure!(said.contains("on a hub") && said.contains("--hub"), "{words:?}: {said}");
        ensure!(peers()?["metadata"]["uid"] == before, "{words:?} has deleted the ClusterPeer");
    }
    let mut rotate = controller::command_line(world.control.netns())?;
    rotate.arg("rotate").arg(first.administrator()?).arg(second.administrator()?);
    let rotated = said(rotate.arg("--hub").arg(world.clusters[2].administrator()?))?;
    ensure!(rotated.contains("mcs-c1/publisher.mcs-controller"), "{rotated}");
    peering::connect(first, second, POD_RANGES[1])?;
    peering::connect(second, first, POD_RANGES[0])
}

/// The second cluster reads the first one by an account for this mailbox alone, which somebody has made. Another `link` ends it.
fn reads_one_mailbox(world: &World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    let (second, hub) = (world.second(), &world.clusters[2]);
    let read = |group: &str, resource: &str| json!({ "apiGroups": [group], "resources": [resource], "verbs": ["list", "watch"] });
    let rules = json!([
        read("clusterset.mcs-agent.io", "exportedservices"),
        read("discovery.k8s.io", "endpointslices"),
        read("coordination.k8s.io", "leases"),
    ]);
    hub.api().apply(&rights::role(Some(MAILBOX), "mcs-mailbox-reader", &rules))?;
    let mut secret = namespaced("v1", "Secret", controller::NAMESPACE, "peer-c1");
    secret["metadata"]["labels"] = json!({ "app.kubernetes.io/managed-by": "mcs-controller" });
    secret["stringData"] = json!({ "kubeconfig": hub.credentials_in(MAILBOX, second.id)? });
    second.api().apply(&secret)?;
    let mut peer = peering::peer(world.first(), POD_RANGES[0]);
    peer["spec"]["mailbox"] = json!(MAILBOX);
    second.api().apply(&peer)?;
    stays(world, &namespace, &before)?;
    follows_again(world, &namespace, &before).context("with an account for one mailbox")?;
    let (namespace, before) = imported_service(world)?;
    link(world)?;
    stays(world, &namespace, &before)?;
    follows_again(world, &namespace, &before).context("after link ran again")?;
    ensure!(second.api().read(&secret).is_err(), "the former Secret is still there");
    hub.api().delete(&namespaced("v1", "ServiceAccount", MAILBOX, second.id))
}

/// `unlink --hub` takes the right to publish only from a cluster that nobody reads. It unlinks the first and the third
/// cluster, and the second one still reads the first.
fn publishes_until_nobody_reads(world: &World) -> anyhow::Result<()> {
    let hub = &world.clusters[2];
    let in_mailbox = |api: &str, kind: &str, name: &str| {
        let metadata = json!({"namespace": MAILBOX, "name": name});
        json!({"apiVersion": api, "kind": kind, "metadata": metadata})
    };
    let publisher = in_mailbox("v1", "ServiceAccount", "publisher.mcs-controller");
    let unlink = |other: &[&str]| -> anyhow::Result<String> {
        let mut unlink = controller::command_line(world.control.netns())?;
        unlink.arg("unlink").arg(world.first().administrator()?).args(other);
        said(unlink.arg("--hub").arg(hub.administrator()?))
    };
    let third = hub.administrator()?.display().to_string();
    let said = unlink(&[&third])?;
    ensure!(said.contains("its mailbox is read by c2"), "{said}");
    hub.api().read(&publisher)?;
    unlink(&["--gone", "c2"])?;
    ensure!(hub.api().read(&publisher).is_err(), "the first cluster may still publish");
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "mcs-hub-reader-c1" },
    });
    ensure!(hub.api().read(&binding).is_err(), "the first cluster may still read");
    peering::connect(world.first(), world.second(), POD_RANGES[1])?;
    peering::connect(world.first(), hub, POD_RANGES[2])?;
    peering::connect(hub, world.first(), POD_RANGES[0])
}

/// What a command that succeeds has printed.
fn said(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    ensure!(output.status.success(), "{said}");
    Ok(said)
}

/// What `check` says of the controller of the first cluster.
fn checked(world: &World, flags: &[&str]) -> anyhow::Result<Value> {
    let mut command = controller::command_line(world.control.netns())?;
    command.arg("check").arg(world.first().administrator()?);
    command.args(["-o", "json", "--probe=off"]).args(flags);
    let findings = check::end(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)?;
    let mut findings = findings.into_iter();
    findings.find(|one| one["check"] == "controller").context("nothing of the controller")
}
