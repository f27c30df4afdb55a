//! A clusterset by `mcs up`: the agent, the controller and names in both clusters, and nothing of them after `mcs down`.

use std::{env, os::unix::fs::PermissionsExt as _};

use anyhow::anyhow;
use mcs_tests::{browser::Browser, charts::Copies, deployed::is_clean_of};

use crate::{faults, pictures, prelude::*};

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
fn makes_a_clusterset(world: &mut World) -> Result {
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
    names_pods_without_ranges(world, &chart)?;
    writes_nothing(world, &chart)?;
    one_fails_alone(world, &chart)?;
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
    if is_full() {
        faults::are_named(world)?;
    }
    leaves_alone(world, &chart)?;
    waits_for_no_helm(world, &chart)?;
    members.iter().try_for_each(|member| answers_by_name(world, member))?;
    let said = run(mcs(world, &["down"])?.arg("--yes"))?;
    ensure!(said.contains("vip-ranges.clusterset.mcs-agent.io"), "{said}");
    in_each(members, |member| is_clean_of(member, NAME))?;
    members.iter().try_for_each(has_no_imports)?;
    in_each(members, |member| member.run(&["delete", "serviceexport,service", SERVICE]).map(drop))?;
    goes_without_id(world)?;
    for (member, without) in members.iter().zip(without) {
        ensure!(corefile(member)? == without?, "{} has another Corefile than before", member.name);
    }
    // Other cases ask by name too.
    run(&mut dns(world, "apply")?).map(drop)
}

/// Where nothing says which ranges pods have, `up` says what to give, and which addresses pods have now.
fn names_pods_without_ranges(world: &World, chart: &Path) -> Result {
    for member in &world.members {
        let nodes = member.kubectl.get(&["nodes"])?;
        let mut nodes = nodes["items"].as_array().into_iter().flatten();
        if nodes.any(|node| node["spec"]["podCIDRs"].is_array()) {
            tell(
                "nodes have the ranges of their pods: what `mcs up` says without ranges is not tried",
            );
            return Ok(());
        }
    }
    let mut up = mcs(world, &["up"])?;
    let output = up.args(["--dry-run", "--chart"]).arg(chart).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(!output.status.success(), "{said}");
    for member in &world.members {
        ensure!(said.contains(&format!("give --pod-cidr {}=CIDR", member.name)), "{said}");
    }
    ensure!(said.contains("Its pods have addresses of "), "{said}");
    Ok(())
}

/// A dry run prints all objects, no credentials, and changes none.
fn writes_nothing(world: &World, chart: &Path) -> Result {
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

/// helm fails in the second cluster, after some seconds in which `up` says what it waits for. The first one is installed and says so, and nothing is linked with the second.
fn one_fails_alone(world: &World, chart: &Path) -> Result {
    let [first, second] = &world.members;
    let directory = world.clusters.directory.join("failing");
    let kubeconfig = second.kubectl.kubeconfig().display().to_string();
    let script = format!(
        "case \"$*\" in *{kubeconfig}*--wait*) sleep 7; echo 'Error: no disk' >&2; exit 1;; esac\nexec {} \"$@\"\n",
        world.clusters.programs.find("helm")?.display()
    );
    let mut command = up(world, chart)?;
    play(&mut command, &directory, "helm", &script)?;
    let output = command.output()?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    ensure!(!output.status.success() && said.contains("no disk"), "{said}");
    let row = |member: &Member, result: &str| {
        let mut lines = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        lines.any(|words| words.starts_with(&[&*member.name, result]))
    };
    ensure!(row(first, "done") && row(second, "FAILED"), "{said}");
    ensure!(said.contains(&format!("{}: the first cluster is proven", first.name)), "{said}");
    ensure!(said.contains(&format!("mcs: waits: {}: helm ", second.name)), "{said}");
    let peers = first.kubectl.get(&["clusterpeers"])?;
    ensure!(peers["items"].as_array().is_some_and(Vec::is_empty), "{peers}");
    Ok(())
}

/// Another `up` finds nothing to do, without the flags of the first: releases and tokens stay.
fn leaves_alone(world: &World, chart: &Path) -> Result {
    let before = world.members.each_ref().map(versions);
    let mut again = mcs(world, &["up"])?;
    let said = run(again.args(["--yes", "--chart"]).arg(chart))?;
    ensure!(said.matches("left as it is: ").count() == 2, "{said}");
    for (member, before) in world.members.iter().zip(before) {
        // Probing pods and their Service are no kinds of these.
        ensure!(versions(member)? == before?, "{} was changed", member.name);
    }
    Ok(())
}

/// A helm that may be at work: `up` and `down` refuse, and its record stays.
fn waits_for_no_helm(world: &World, chart: &Path) -> Result {
    const RECORD: &str = "sh.helm.release.v1.mcs.v9999";
    let member = &world.members[1];
    let labels = "{owner: helm, name: mcs, version: '9999', status: pending-upgrade}";
    let record = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {RECORD}, namespace: mcs-system, labels: {labels}}}\n"
    );
    member.kubectl.apply(&record)?;
    for mut command in [up(world, chart)?, mcs(world, &["down", "--yes"])?] {
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success() && said.contains("helm has worked on"), "{said}");
    }
    let words = ["--namespace", "mcs-system", "secret", RECORD];
    member.kubectl.get(&words).context("the record of a helm that works is gone")?;
    member.kubectl.run(&["--namespace", "mcs-system", "delete", "secret", RECORD]).map(drop)
}

/// Nothing that a controller has made is left.
fn has_no_imports(member: &Member) -> Result {
    let ours = "app.kubernetes.io/managed-by=mcs-controller";
    let slices = "endpointslice.kubernetes.io/managed-by=mcs-controller";
    for words in [
        &["serviceimports.multicluster.x-k8s.io", "--all-namespaces", "--selector", ours][..],
        &["endpointslices", "--all-namespaces", "--selector", slices],
        &["leases,endpointslices,exportedservices", "--namespace", "mcs-mailbox"],
        &["serviceaccounts", "--namespace", "mcs-mailbox", "--selector", ours],
        &["secrets", "--namespace", "mcs-controller", "--selector", ours],
        &["clusterpeers"],
    ] {
        let left = member.kubectl.get(words)?;
        ensure!(
            left["items"].as_array().is_some_and(Vec::is_empty),
            "{} has {words:?}: {left}",
            member.name
        );
    }
    Ok(())
}

/// `down` after an `up` that was interrupted before a cluster had its id.
fn goes_without_id(world: &World) -> Result {
    let member = &world.members[0];
    let name = ["clusterproperty.about.k8s.io", "cluster.clusterset.k8s.io"];
    let mut property = member.kubectl.get(&name)?;
    member.kubectl.run(&[&["delete"], &name[..]].concat())?;
    let down = run(mcs(world, &["down"])?.arg("--yes"));
    let metadata = &mut property["metadata"];
    *metadata = serde_json::json!({ "name": name[1], "labels": metadata["labels"] });
    member.kubectl.apply(&property.to_string())?;
    down.map(drop)
}

/// Lets a command find a script in the place of a tool.
fn play(command: &mut Command, directory: &Path, tool: &str, script: &str) -> Result {
    fs::create_dir_all(directory)?;
    let path = directory.join(tool);
    fs::write(&path, format!("#!/bin/sh\n{script}"))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    let path = command.get_envs().find(|(name, _)| *name == "PATH").and_then(|(_, path)| path);
    let path = path.context("no PATH")?.to_owned();
    let path = env::join_paths([directory.to_owned()].into_iter().chain(env::split_paths(&path)))?;
    command.env("PATH", path);
    Ok(())
}

/// The versions of all objects of kinds that nothing but an operator changes.
fn versions(member: &Member) -> Result<BTreeSet<String>> {
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

fn corefile(member: &Member) -> Result<Value> {
    let words = ["configmap", "coredns", "--namespace", "kube-system"];
    Ok(member.kubectl.get(&words)?["data"].take())
}

/// `mcs up`, which takes a chart from a directory.
fn up(world: &World, chart: &Path) -> Result<Command> {
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
        let ranges: Vec<_> = cluster.pods().iter().map(ToString::to_string).collect();
        up.arg(format!("--pod-cidr={}={}", member.name, ranges.join(",")));
    }
    Ok(up)
}

/// What a command that succeeds has printed.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    process::run(command, "")
}

/// Does the same in both clusters at once.
fn in_each(members: &[Member; 2], work: impl Fn(&Member) -> Result + Sync) -> Result {
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

fn dns(world: &World, verb: &str) -> Result<Command> {
    mcs(world, &["dns", verb])
}

fn asks(world: &World, member: &Member) -> Result {
    let of_one = |verb: &str| {
        let mut command = tool(world)?;
        command.arg(verb).arg("--kubeconfig").arg(member.kubectl.kubeconfig());
        Ok(command)
    };
    let client = Client::new(member, Place::Pod);
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
pub(crate) fn mcs(world: &World, words: &[&str]) -> Result<Command> {
    let mut command = tool(world)?;
    command.args(words).args(world.members.iter().map(|member| member.kubectl.kubeconfig()));
    Ok(command)
}

/// `mcs`, which finds helm and kubectl.
pub(crate) fn tool(world: &World) -> Result<Command> {
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
pub(crate) fn answers_by_name(world: &World, member: &Member) -> Result {
    let client = Client::new(member, Place::Pod);
    let to = format!("{SERVICE}.{NAMESPACE}.svc.clusterset.local:{TCP}");
    let servers: Vec<BTreeSet<_>> = world
        .members
        .iter()
        .map(|member| Ok(member.servers()?.into_iter().collect()))
        .collect::<Result<_>>()?;
    wait::within(PATIENCE, &format!("servers of both clusters to answer {client}"), || {
        let answers = client.ask_often("tcp", &to, 20)?;
        let by: BTreeSet<_> = answers.iter().map(|answer| answer.by.ip()).collect();
        ensure!(servers.iter().all(|of_one| !of_one.is_disjoint(&by)), "only {by:?} answer");
        Ok(())
    })
}

/// Fails unless everything is there, and a pod of each cluster has reached pods of the other one.
fn check(world: &World) -> Result {
    let output = mcs(world, &["check"])?.args(["-o", "json"]).output()?;
    let findings = process::json_list(&output)?;
    for finding in &findings {
        // Kubernetes before 1.33 does not say which addresses Services have.
        let is_unknown = finding["check"] == "addresses" && finding["cluster"] == "c2";
        ensure!(finding["ok"] == true, "{finding}");
        // Agents have to try some pods first.
        let is_begun = finding["check"] == "reach";
        ensure!(is_unknown || is_begun || finding["skipped"].is_null(), "{finding}");
    }
    let pods: Vec<_> = findings.iter().filter(|one| one["check"] == "pods").collect();
    for finding in &pods {
        tell(format!("{}: {}", finding["cluster"], finding["message"]));
        let probes = finding["probes"].as_array().context("no probes")?;
        ensure!(probes.iter().all(|probe| probe["outcome"] == "answered"), "{finding}");
        let node = finding["node"].as_str().context("no node")?;
        let names_it = finding["message"].to_string().contains(&format!("from node {node}"));
        ensure!(names_it, "{finding}");
    }
    // A pod of each cluster has tried it, and the agent of each node.
    let of = |check: &str, is_pod: bool| {
        let of_check = findings.iter().filter(|one| one["check"] == check);
        let is_of = |one: &&Value| one["message"].to_string().contains(" from node ") == is_pod;
        of_check.filter(is_of).count()
    };
    ensure!(of("by name", true) == 2, "{findings:?}");
    for check in ["by name", "by address", "large answers"] {
        ensure!(of(check, false) >= 2, "{check}: {findings:?}");
    }
    ensure!(pods.len() == 2 && output.status.success(), "{findings:?}");
    Ok(())
}
