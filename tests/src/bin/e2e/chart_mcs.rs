//! A clusterset with the chart `mcs` alone: the agent, the controller and CoreDNS in both clusters.

use std::{
    collections::BTreeSet,
    env,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Instant,
};

use anyhow::{Context as _, anyhow, ensure};
use mcs_tests::{
    charts::Copies,
    process,
    suite::{Suite, skip, tell},
    wait,
};
use serde_json::{Value, json};

use crate::{
    agents::NAMESPACE as SYSTEM,
    clients::{Client, Place},
    member::{Member, NAMESPACE, PATIENCE},
    target::TCP,
    uninstall,
    world::World,
};

const CHARTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/helm");
/// The release.
const NAME: &str = "mcs";
/// A service of both clusters.
const SERVICE: &str = "clusterset";
/// The variable with the path of `mcs`.
const COMMAND_LINE: &str = "MCS_CLI";

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("the chart mcs and one link make a clusterset", makes_a_clusterset);
}

/// `check` finds nothing missing, and an uninstall leaves nothing on the nodes.
fn makes_a_clusterset(world: &mut World) -> anyhow::Result<()> {
    if world.members.iter().any(|member| member.node.is_none()) {
        return Err(skip("nodes are elsewhere, and so is the image of the controller"));
    }
    let helm = world.clusters.programs.find("helm")?;
    let charts = Copies::new(&helm, CHARTS.as_ref(), &str::to_owned)?;
    let chart = charts.path(NAME);
    let begin = Instant::now();
    let World { members, release, .. } = &*world;
    in_each(members, |member| {
        release.remove(member)?;
        install(member, &helm, &chart)
    })?;
    link(world)?;
    in_each(members, |member| {
        member.service(SERVICE)?;
        member.apply(&[json!({
            "apiVersion": "multicluster.x-k8s.io/v1beta1",
            "kind": "ServiceExport",
            "metadata": { "namespace": NAMESPACE, "name": SERVICE },
        })])
    })?;
    members.iter().try_for_each(|member| answers_by_name(world, member))?;
    tell(format!("{:.1} s until both clusters answer", begin.elapsed().as_secs_f64()));
    check(world)?;
    in_each(members, |member| install(member, &helm, &chart))?;
    members.iter().try_for_each(|member| answers_by_name(world, member))?;
    in_each(members, |member| {
        member.run(&["delete", "serviceexport,service", SERVICE])?;
        let mut uninstall = member.helm(&helm);
        uninstall.args(["uninstall", NAME, "--namespace", SYSTEM, "--wait", "--timeout", "120s"]);
        process::run(&mut uninstall, "")?;
        uninstall::is_clean_of(member, NAME)
    })
}

/// Does the same in both clusters at once.
fn in_each(
    members: &[Member; 2],
    work: impl Fn(&Member) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<()> {
    let work = &work;
    thread::scope(|scope| {
        let threads = members
            .each_ref()
            .map(|member| scope.spawn(move || work(member).with_context(|| member.name.clone())));
        threads.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| anyhow!("a thread has panicked")).flatten()
        })
    })
}

/// Installs the chart as it is documented, or upgrades it.
fn install(member: &Member, helm: &Path, chart: &Path) -> anyhow::Result<()> {
    let mut helm = member.helm(helm);
    helm.args(["upgrade", "--install", NAME]).arg(chart);
    helm.args(["--namespace", SYSTEM, "--create-namespace", "--wait", "--timeout", "120s"]);
    // The clusters have their ids already.
    helm.args(["--take-ownership", "--set", "clusterProperties.create=true"]);
    helm.args(["--set", &format!("global.clusterId={}", member.name)]);
    helm.args(["--set", "mcs-agent.uninstall.drainSeconds=20"]);
    process::run(&mut helm, "").map(drop)
}

/// `mcs VERB` with the kubeconfigs of both clusters.
fn mcs(world: &World, verb: &str) -> anyhow::Result<Command> {
    let program = env::var_os(COMMAND_LINE).map(PathBuf::from);
    let program = program
        .with_context(|| format!("{COMMAND_LINE} is not set: run `cargo xtask test e2e`"))?;
    let mut command = Command::new(program);
    command.arg(verb).args(world.members.iter().map(|member| member.kubectl.kubeconfig()));
    Ok(command)
}

fn link(world: &World) -> anyhow::Result<()> {
    let mut link = mcs(world, "link")?;
    for member in &world.members {
        let cluster = member.node.context("a node of this machine")?.cluster;
        for range in cluster.pods() {
            link.arg("--pod-cidr").arg(format!("{}={range}", member.name));
        }
    }
    process::run(&mut link, "").map(drop)
}

/// Waits until servers of both clusters answer a pod.
fn answers_by_name(world: &World, member: &Member) -> anyhow::Result<()> {
    let client = Client::new(world, member, Place::Pod);
    let to = format!("{SERVICE}.{NAMESPACE}.svc.clusterset.local:{TCP}");
    let servers: Vec<BTreeSet<_>> = world
        .members
        .iter()
        .map(|member| Ok(member.servers()?.into_iter().collect()))
        .collect::<anyhow::Result<_>>()?;
    wait::within(PATIENCE, &format!("servers of both clusters to answer {client}"), || {
        let answers = client.ask_often("tcp", &to, 20)?;
        let by: BTreeSet<_> = answers.iter().map(|answer| answer.by.ip()).collect();
        ensure!(servers.iter().all(|of_one| !of_one.is_disjoint(&by)), "only {by:?} answer");
        Ok(())
    })
}

/// Fails unless everything is there, and a pod of each cluster has reached pods of the other one.
fn check(world: &World) -> anyhow::Result<()> {
    let output = mcs(world, "check")?.args(["-o", "json"]).output()?;
    let findings: Vec<Value> = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    for finding in &findings {
        // The image of CoreDNS here has no version.
        let is_known = finding["skipped"].is_null() || finding["check"] == "dns version";
        ensure!(finding["ok"] == true && is_known, "{finding}");
    }
    let pods: Vec<_> = findings.iter().filter(|one| one["check"] == "pods").collect();
    for finding in &pods {
        tell(format!("{}: {}", finding["cluster"], finding["message"]));
        let probes = finding["probes"].as_array().context("no probes")?;
        ensure!(probes.iter().all(|probe| probe["outcome"] == "answered"), "{finding}");
    }
    ensure!(pods.len() == 2 && output.status.success(), "{findings:?}");
    Ok(())
}
