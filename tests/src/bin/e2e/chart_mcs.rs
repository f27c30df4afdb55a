//! A clusterset by `mcs up`: the agent, the controller and names in both clusters, and nothing of them after `mcs down`.

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
    browser::Browser,
    charts::Copies,
    process,
    suite::{Suite, is_full, skip, tell},
    wait,
};
use serde_json::Value;

use crate::{
    ask,
    clients::{Client, Place},
    member::{Member, NAMESPACE, PATIENCE},
    pictures,
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
    suite.case("mcs up makes a clusterset, and mcs down takes it away", makes_a_clusterset);
}

/// `up` proves what it has made, and a second one changes nothing. `check` finds nothing missing. `down` leaves nothing on the
/// nodes, and the Corefile as it was.
fn makes_a_clusterset(world: &mut World) -> anyhow::Result<()> {
    if world.members.iter().any(|member| member.node.is_none()) {
        return Err(skip("nodes are elsewhere, and so is the image of the controller"));
    }
    let helm = world.clusters.programs.find("helm")?;
    let charts = Copies::new(&helm, CHARTS.as_ref(), &str::to_owned)?;
    let chart = charts.path(NAME);
    let World { members, release, .. } = &*world;
    in_each(members, |member| release.remove(member))?;
    // From a Corefile without the block on.
    run(&mut dns(world, "undo")?)?;
    let without = members.each_ref().map(corefile);
    writes_nothing(world, &chart)?;
    let begin = Instant::now();
    let said = run(&mut up(world, &chart)?)?;
    tell(format!(
        "{:.1} s until every node reaches a service of both clusters by name",
        begin.elapsed().as_secs_f64()
    ));
    for member in members {
        let nodes = member.kubectl.get(&["nodes"])?["items"].as_array().map_or(0, Vec::len);
        let proof = format!("{}: {nodes} of {nodes} nodes connect to mcs-canary", member.name);
        ensure!(said.contains(&proof), "{said}");
    }
    in_each(members, |member| {
        member.service(SERVICE)?;
        member.export(SERVICE)
    })?;
    members.iter().try_for_each(|member| answers_by_name(world, member))?;
    check(world)?;
    asks(world, &members[0])?;
    let again = run(&mut up(world, &chart)?)?;
    ensure!(again.contains("CoreDNS has the block for clusterset.local"), "{again}");
    members.iter().try_for_each(|member| answers_by_name(world, member))?;
    in_each(members, |member| member.run(&["delete", "serviceexport,service", SERVICE]).map(drop))?;
    run(mcs(world, &["down"])?.arg("--yes"))?;
    in_each(members, |member| uninstall::is_clean_of(member, NAME))?;
    for (member, without) in members.iter().zip(without) {
        ensure!(corefile(member)? == without?, "{} has another Corefile than before", member.name);
    }
    // Other cases ask by name too.
    run(&mut dns(world, "apply")?).map(drop)
}

/// A dry run prints all objects, no credentials, and changes none.
fn writes_nothing(world: &World, chart: &Path) -> anyhow::Result<()> {
    let before = world.members.each_ref().map(versions);
    let said = run(up(world, chart)?.args(["--dry-run", "-o", "yaml"]))?;
    for (member, before) in world.members.iter().zip(before) {
        ensure!(versions(member)? == before?, "{} was changed", member.name);
    }
    let documents: Vec<&str> = said.split("\n---\n").collect();
    for kind in
        ["DaemonSet", "Deployment", "CustomResourceDefinition", "RoleBinding", "ClusterPeer"]
    {
        let line = format!("\nkind: {kind}\n");
        let count = documents.iter().filter(|one| format!("\n{one}\n").contains(&line)).count();
        ensure!(count > 1, "{count} objects of kind {kind}: {said}");
    }
    ensure!(said.matches("# context: ").count() == 2, "{said}");
    ensure!(said.contains("multicluster clusterset.local"), "{said}");
    ensure!(said.contains("mcs-controller/peer-") && !said.contains("kind: Secret"), "{said}");
    Ok(())
}

/// The versions of all objects of kinds that nothing but an operator changes.
fn versions(member: &Member) -> anyhow::Result<BTreeSet<String>> {
    const KINDS: &str = "configmaps,secrets,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,\
                         customresourcedefinitions,daemonsets,namespaces";
    let all = member.kubectl.get(&[KINDS, "--all-namespaces"])?;
    let all = all["items"].as_array().context("a list")?;
    let generation = |object: &Value| {
        let metadata = &object["metadata"];
        // The status of a DaemonSet changes by itself.
        let version = if object["kind"] == "DaemonSet" { "generation" } else { "resourceVersion" };
        format!("{} {}", metadata["uid"], metadata[version])
    };
    Ok(all.iter().map(generation).collect())
}

fn corefile(member: &Member) -> anyhow::Result<Value> {
    let words = ["configmap", "coredns", "--namespace", "kube-system"];
    Ok(member.kubectl.get(&words)?["data"].take())
}

/// `mcs up`, which takes a chart from a directory.
fn up(world: &World, chart: &Path) -> anyhow::Result<Command> {
    let mut up = mcs(world, &["up"])?;
    for value in [
        "mcs-agent.uninstall.drainSeconds=20",
        "mcs-agent.page.enabled=true",
        "mcs-controller.page.enabled=true",
    ] {
        up.args(["--set", value]);
    }
    up.args(["--yes", "--chart"]).arg(chart);
    for member in &world.members {
        let cluster = member.node.context("a node of this machine")?.cluster;
        for range in cluster.pods() {
            up.arg("--pod-cidr").arg(format!("{}={range}", member.name));
        }
    }
    Ok(up)
}

/// What a command that succeeds has printed.
fn run(command: &mut Command) -> anyhow::Result<String> {
    process::run(command, "")
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

fn dns(world: &World, verb: &str) -> anyhow::Result<Command> {
    mcs(world, &["dns", verb])
}

fn asks(world: &World, member: &Member) -> anyhow::Result<()> {
    let of_one = |verb: &str| {
        let mut command = tool(world)?;
        command.arg(verb).arg("--kubeconfig").arg(member.kubectl.kubeconfig());
        Ok(command)
    };
    let client = Client::new(world, member, Place::Pod);
    ask::answers(of_one, &client, SERVICE)?;
    if !is_full() {
        return Ok(());
    }
    match Browser::find() {
        Ok(browser) => {
            pictures::take(of_one, &browser, &world.members, &client, &world.clusters.directory)
        }
        Err(error) => {
            tell(format!("no pictures: {error:#}"));
            Ok(())
        }
    }
}

/// `mcs` with these words and the kubeconfigs of both clusters.
fn mcs(world: &World, words: &[&str]) -> anyhow::Result<Command> {
    let mut command = tool(world)?;
    command.args(words).args(world.members.iter().map(|member| member.kubectl.kubeconfig()));
    Ok(command)
}

/// `mcs`, which finds helm and kubectl.
fn tool(world: &World) -> anyhow::Result<Command> {
    let program = env::var_os(COMMAND_LINE).map(PathBuf::from);
    let program = program
        .with_context(|| format!("{COMMAND_LINE} is not set: run `cargo xtask test e2e`"))?;
    let tools = ["helm", "kubectl"].map(|tool| world.clusters.programs.find(tool));
    let mut path = Vec::new();
    for tool in tools {
        path.push(tool?.parent().context("a program lies in a directory")?.to_owned());
    }
    path.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let mut command = Command::new(program);
    command.env("PATH", env::join_paths(path)?);
    Ok(command)
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
    let output = mcs(world, &["check"])?.args(["-o", "json"]).output()?;
    let findings = process::json_list(&output)?;
    for finding in &findings {
        ensure!(finding["ok"] == true && finding["skipped"].is_null(), "{finding}");
    }
    let pods: Vec<_> = findings.iter().filter(|one| one["check"] == "pods").collect();
    for finding in &pods {
        tell(format!("{}: {}", finding["cluster"], finding["message"]));
        let probes = finding["probes"].as_array().context("no probes")?;
        ensure!(probes.iter().all(|probe| probe["outcome"] == "answered"), "{finding}");
    }
    let named = findings.iter().filter(|one| one["check"] == "by name").count();
    ensure!(named == 2, "{findings:?}");
    ensure!(pods.len() == 2 && output.status.success(), "{findings:?}");
    Ok(())
}
