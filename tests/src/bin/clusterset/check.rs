//! `mcs check`: whether pods of a cluster reach those of a peer.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use mcs_tests::{
    netns::Namespace,
    process,
    server::Server,
    suite::{Suite, tell},
    topology::Subnet,
    wait,
};
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, RBAC},
    connectivity::TARGET,
    controller::{self, NAMESPACE},
    objects::{self, namespaced, service},
    peering,
    world::{POD_RANGES, World},
};

/// Pods of the first cluster, which no other case uses.
const PODS: Subnet = Subnet(10);
const RANGE: &str = "10.77.10.0/24";
/// A pod that listens, and a pod that does not.
const HOSTS: [u8; 2] = [11, 12];
/// Less than three clusters that do not answer take one after the other.
const HANGS: Duration = Duration::from_secs(28);
/// The port of the first cluster's API server.
const PORT: &str = ":6441";
pub(crate) const DEPLOYMENT: &str =
    include_str!("../../../../deploy/kustomize/controller/deployment.yaml");

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("check connects to pods of a peer", connects);
    suite.case("check finds rights that the controller lacks", rights);
    suite.full("a controller that loses its rights says so", loses_rights);
    suite.case("check finds what is missing in clusters, and asks 100 agents within 30 s", faults);
}

/// The nodes that have a made-up agent, and the time that `check` has for them.
const MADE_UP: usize = 100;
const IN_TIME: Duration = Duration::from_secs(30);
/// One of them does not reach pods of the other cluster.
const LOST: usize = 42;
/// The node whose agent never answers.
const SILENT: usize = 77;

fn many_nodes(world: &World) -> anyhow::Result<()> {
    let second = world.second();
    let mut made = Vec::new();
    for number in 0..MADE_UP {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": format!("made-{number}") },
        });
        second.api().apply(&node)?;
        made.push(node);
    }
    second.api().apply(&namespaced("v1", "ServiceAccount", NAMESPACE, "default"))?;
    for number in 0..MADE_UP {
        let mut pod = namespaced("v1", "Pod", NAMESPACE, &format!("agent-{number}"));
        pod["metadata"]["labels"] = json!({ "app.kubernetes.io/name": "mcs-agent" });
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "mcs-agent", "uid": "1",
            "controller": true,
        }]);
        pod["spec"] = json!({
            "nodeName": format!("made-{number}"),
            "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "mcs-agent", "image": "mcs-agent" }],
        });
        second.api().apply(&pod)?;
        let mut status = namespaced("v1", "Pod", NAMESPACE, &format!("agent-{number}"));
        status["status"] =
            json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
        second.api().apply_status(&status)?;
        made.push(pod);
    }
    let kubectl = second.directory().join("made-up");
    fs::create_dir_all(&kubectl)?;
    fs::write(kubectl.join("status"), made_up(true).to_string())?;
    fs::write(kubectl.join("lost"), made_up(false).to_string())?;
    let services = json!({ "frontends": [], "reported": true, "imports": [] });
    fs::write(kubectl.join("services"), services.to_string())?;
    let script = format!(
        "#!/bin/sh\ncd {}\nsleep 0.3\ncase \"$*\" in\n  *services*) cat services;;\n  *agent-{LOST}\\ *) cat lost;;\n  \
         *agent-{SILENT}\\ *) exec sleep 60;;\n  *) cat status;;\nesac\n",
        kubectl.display()
    );
    fs::write(kubectl.join("kubectl"), script)?;
    fs::set_permissions(kubectl.join("kubectl"), fs::Permissions::from_mode(0o755))?;

    let mut command = controller::command_line(&world.node.netns)?;
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", kubectl.display()));
    command.arg("check").arg(second.administrator()?).args(["-o", "json", "--probe=off"]);
    let begin = Instant::now();
    let findings = end(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)?;
    let took = begin.elapsed();
    // Pods go first: the API server deletes those of a node at once then.
    for object in made.iter().rev() {
        second.api().delete(object)?;
    }
    let reach: Vec<_> = findings.iter().filter(|one| one["check"] == "reach").collect();
    ensure!(reach.len() == MADE_UP, "{} rows: {reach:#?}", reach.len());
    let lost: Vec<_> = reach.iter().filter(|one| one["ok"] == false).collect();
    let is_lost = |one: &Value| one["node"] == format!("made-{LOST}");
    ensure!(lost.len() == 1 && is_lost(lost[0]), "{lost:#?}");
    let silent = reach
        .iter()
        .filter(|one| one["skipped"] == true && one["node"] == format!("made-{SILENT}"));
    ensure!(silent.count() == 1, "{reach:#?}");
    let agents = findings.iter().find(|one| one["check"] == "agents").context("no agents")?;
    ensure!(agents["message"].to_string().contains("99 of 100 agents answer"), "{agents}");
    ensure!(took < IN_TIME, "it took {took:?}");
    tell(format!("{MADE_UP} nodes: {took:?}"));
    Ok(())
}

/// The status of an agent that reaches pods of the first cluster, or not.
fn made_up(reaches: bool) -> Value {
    let silent = if reaches { json!([]) } else { json!(["10.77.1.1:80"]) };
    let way = json!({
        "cluster": "c1", "family": "IPv4", "reachable": reaches, "reached": u8::from(reaches),
        "silent": u8::from(!reaches), "round_trip_micros": null, "silent_endpoints": silent,
    });
    json!({
        "degraded": [], "counters": {}, "start": null,
        "report": {
            "agent": { "version": "1", "pid": 1, "host": "n", "started": 0, "updated": 0 },
            "source": { "name": "Kubernetes", "kinds": [], "problems": [], "skipped": {} },
            "node": { "api_servers": [] }, "rejections": [], "pending": [], "reach": [way],
        },
    })
}

/// The first cluster has faults. Another check asks the agents of the second one meanwhile: both wait most of the time.
fn faults(world: &mut World) -> anyhow::Result<()> {
    let first = world.first();
    let namespace = world.fresh()?;
    // An export without Service.
    first.api().apply(&objects::export(&namespace))?;
    first.wait_for_conditions(&namespace, &["Valid=False/NoService"])?;
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "lonely" } });
    first.api().apply(&node)?;
    let administrator = first.administrator()?;
    let away = first.directory().join("away.kubeconfig");
    let text = fs::read_to_string(&administrator)?;
    fs::write(&away, text.replace(PORT, ":9"))?;

    // Servers that take connections, and never answer.
    let silent = world.node.netns.run(|| TcpListener::bind("127.0.0.1:0"))??;
    let url = text.split(['"', ' ', '\n']).find(|word| word.ends_with(PORT)).context("no URL")?;
    let hanging = first.directory().join("hanging.kubeconfig");
    fs::write(&hanging, text.replace(url, &format!("https://{}", silent.local_addr()?)))?;

    let mut command = controller::command_line(&world.node.netns)?;
    command.arg("check").args([&administrator, &away, &hanging, &hanging, &hanging]);
    command.args(["-o", "json", "--probe=off"]);
    let begin = Instant::now();
    let check = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let check = thread::spawn(move || (end(check), begin.elapsed()));
    let many = many_nodes(world);
    let (findings, took) = check.join().map_err(|_| anyhow::anyhow!("a panic"))?;
    many?;
    let findings = findings?;
    ensure!(took < HANGS, "it took {took:?}");
    let hung =
        findings.iter().filter(|one| one["message"].to_string().contains("no answer within"));
    ensure!(hung.count() == 3, "{findings:#?}");
    first.unexport(&namespace)?;
    first.api().delete(&node)?;
    for (check, expected) in [
        ("exports", format!("{namespace}/{}: NoService", objects::NAME)),
        ("agents", "lonely: no pod of the agent".to_owned()),
        ("api server", "refused".to_owned()),
    ] {
        let found = findings.iter().find(|one| one["check"] == check);
        let found = found.with_context(|| format!("nothing of {check}"))?;
        ensure!(found["ok"] == false, "{found}");
        ensure!(found["message"].to_string().contains(&expected), "{found}");
    }
    Ok(())
}

fn rights(world: &mut World) -> anyhow::Result<()> {
    let administrator = world.second().administrator()?;
    let finding = |namespace: &str| {
        let flags = ["--probe=off", "--namespace", namespace];
        let findings = end(command(world, &administrator, &flags)?)?;
        findings.into_iter().find(|one| one["check"] == "rights").context("nothing of rights")
    };
    let found = finding(NAMESPACE)?;
    ensure!(found["ok"] == true, "{found}");
    let found = finding("elsewhere")?;
    ensure!(found["ok"] == false, "{found}");
    ensure!(found["message"].to_string().contains("create serviceimports"), "{found}");
    let findings = end(command(world, &world.second().onlooker()?, &["--probe=off"])?)?;
    let found =
        findings.iter().find(|one| one["check"] == "rights").context("nothing of rights")?;
    ensure!(found["skipped"] == true && found["ok"] == true, "{found}");
    ensure!(found["message"].to_string().contains("you may not create resource"), "{found}");
    Ok(())
}

fn loses_rights(world: &mut World) -> anyhow::Result<()> {
    let second = world.second();
    let binding = format!("/apis/{RBAC}/clusterrolebindings/{NAMESPACE}");
    let mut binding = second.api().get(&binding)?;
    second.api().delete(&binding)?;
    let says = |what: &str| {
        wait::within(Duration::from_mins(1), "a line in the log", || {
            let logged = second.controller.logged()?;
            ensure!(logged.contains(what), "nothing");
            Ok(())
        })
    };
    let result = says("the API server does not allow this controller to watch serviceexports, ");
    binding["metadata"] = json!({ "name": NAMESPACE });
    second.api().apply(&binding)?;
    result?;
    says("the API server allows again all that the controller needs")
}

fn connects(world: &mut World) -> anyhow::Result<()> {
    let pods = world.node.link(&world.run, "probed", PODS, &HOSTS)?;
    let _server = Server::tcp(&pods, (PODS.v4(HOSTS[0]), TARGET).into())?;
    // Nobody says so if this one does not answer.
    world.node.netns.ip(&format!(
        "route add {} via {}\nroute add unreachable {}\n",
        PODS.v4(13),
        PODS.v4(HOSTS[0]),
        PODS.v4(14)
    ))?;
    let mut peer = peering::peer(world.first(), POD_RANGES[0]);
    peer["spec"]["podCIDRs"] = json!([POD_RANGES[0], RANGE]);
    world.second().api().apply(&peer)?;

    let namespace = world.fresh()?;
    world.first().export(&service(&namespace), Some(&slice(&namespace, &HOSTS)))?;
    world.second().wait_for_addresses(&namespace, &["10.77.10.11", "10.77.10.12"])?;
    let administrator = world.second().administrator()?;
    let finding = check(world, "here", &administrator, 2)?;
    ensure!(finding["ok"] == true, "{finding}");
    ensure!(outcomes(&finding) == ["answered", "refused"], "{finding}");

    world.first().api().apply(&slice(&namespace, &[11, 12, 13, 14]))?;
    let all = ["10.77.10.11", "10.77.10.12", "10.77.10.13", "10.77.10.14"];
    world.second().wait_for_addresses(&namespace, &all)?;
    let expected = ["answered", "refused", "timeout", "unreachable"];
    let finding = check(world, "here", &administrator, 4)?;
    let message = finding["message"].as_str().context("a message")?;
    ensure!(finding["ok"] == false, "{finding}");
    ensure!(outcomes(&finding) == expected, "{finding}");
    ensure!(message.contains("10.77.10.13:4242 in zone a-13 does not answer"), "{finding}");
    ensure!(message.contains("let the nodes of each cluster route"), "{finding}");
    tell(message);

    world.second().api().apply_yaml(DEPLOYMENT)?;
    world.second().api().apply(&namespaced("v1", "ServiceAccount", NAMESPACE, "default"))?;
    let finding = check(world, "pod", &administrator, 4)?;
    ensure!(outcomes(&finding) == expected, "{finding}");
    ensure!(probes(world.second())?.is_empty(), "the pod is still there");

    let finding = check(world, "pod", &world.second().onlooker()?, 0)?;
    ensure!(finding["skipped"] == true && finding["ok"] == true, "{finding}");
    ensure!(finding["message"].to_string().contains("may not create pods"), "{finding}");

    world.first().unexport(&namespace)?;
    world.second().wait_for_nothing(&namespace)?;
    world.second().api().apply(&peering::peer(world.first(), POD_RANGES[0]))
}

/// Endpoints in zones of their own: those come first, whatever else the cluster has imported.
fn slice(namespace: &str, hosts: &[u8]) -> Value {
    let addresses: Vec<_> = hosts.iter().map(|host| PODS.v4(*host).to_string()).collect();
    let mut slice = objects::slice(namespace, &addresses, objects::PORTS);
    for (number, host) in hosts.iter().enumerate() {
        slice["endpoints"][number]["zone"] = json!(format!("a-{host}"));
    }
    slice
}

fn outcomes(finding: &Value) -> Vec<&str> {
    let probes = finding["probes"].as_array().into_iter().flatten();
    probes.filter_map(|probe| probe["outcome"].as_str()).collect()
}

/// What `check` says about the pods of the first cluster, of which it has to probe `count`. This process runs the pod that `check`
/// creates, since there is no kubelet.
fn check(world: &World, from: &str, kubeconfig: &Path, count: usize) -> anyhow::Result<Value> {
    let mut child = command(world, kubeconfig, &["--probe", from])?;
    let mut has_run = false;
    wait::until("the end of check", || {
        if !has_run && let Some(pod) = probes(world.second())?.first() {
            play_kubelet(world, world.second(), pod)?;
            has_run = true;
        }
        child.try_wait()?.context("it runs")
    })?;
    let findings = end(child)?;
    let mut of_pods = findings.into_iter().filter(|one| one["check"] == "pods");
    let finding = of_pods.find(|one| one["peer"] == "c1").context("nothing of pods")?;
    ensure!(outcomes(&finding).len() == count, "{finding}");
    Ok(finding)
}

/// What `check` finds in one cluster without connecting to pods.
pub(crate) fn of(world: &World, cluster: &Cluster) -> anyhow::Result<Vec<Value>> {
    end(command(world, &cluster.administrator()?, &["--probe=off"])?)
}

fn command(world: &World, kubeconfig: &Path, flags: &[&str]) -> anyhow::Result<Child> {
    let mut command = controller::command_line(&world.node.netns)?;
    command.arg("check").arg(kubeconfig).args(["-o", "json"]).args(flags);
    Ok(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
}

/// What a `check` has found.
pub(crate) fn end(check: Child) -> anyhow::Result<Vec<Value>> {
    process::json_list(&check.wait_with_output()?)
}

/// The pods of `check` in a cluster.
pub(crate) fn probes(cluster: &Cluster) -> anyhow::Result<Vec<Value>> {
    let selector = "labelSelector=app.kubernetes.io/name%3Dmcs-probe";
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?{selector}");
    Ok(cluster.api().get(&path)?["items"].as_array().cloned().unwrap_or_default())
}

/// Runs a pod, and reports its end as a kubelet does.
pub(crate) fn play_kubelet(world: &World, cluster: &Cluster, pod: &Value) -> anyhow::Result<()> {
    let name = pod["metadata"]["name"].as_str().context("a name")?;
    let file = cluster.directory().join(name);
    run(&world.node.netns, &pod["spec"]["containers"][0], &file)?;
    let mut status = namespaced("v1", "Pod", NAMESPACE, name);
    let terminated = json!({ "exitCode": 1, "message": fs::read_to_string(&file)? });
    status["status"] = json!({
        "phase": "Failed",
        "containerStatuses": [{
            "name": "probe", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "terminated": terminated },
        }],
    });
    cluster.api().apply_status(&status)
}

fn run(netns: &Namespace, container: &Value, message: &Path) -> anyhow::Result<()> {
    let words: Vec<_> =
        container["command"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let (program, arguments) = words.split_first().context("a command")?;
    ensure!(*program == "mcs-controller", "it runs {program}");
    let path = container["terminationMessagePath"].as_str().context("a path")?;
    let message = message.display().to_string();
    let mut command = controller::command(netns)?;
    command.args(arguments.iter().map(|argument| argument.replace(path, &message)));
    command.stdout(Stdio::null()).status()?;
    Ok(())
}
