//! `mcs services`, `explain`, `trace` and `bundle`: what an operator asks two clusters and the agent of a node, with the rights of
//! kubeconfigs.

use std::{
    env,
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use anyhow::{Context as _, bail, ensure};
use mcs_tests::{agent, process, suite::Suite, wait};
use serde_json::{Value, json};

use crate::{
    cluster::Cluster,
    connectivity::vip,
    controller,
    objects::{self, namespaced, service},
    world::{World, slice_of},
};

/// The nodes of the second cluster: the first has an agent.
const NODES: [&str; 2] = ["asked", "unasked"];

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case(
        "services, explain, trace and bundle ask clusters and the agent of a pod's node",
        asks,
    );
}

/// Clients in the second cluster, the kubeconfigs of both, and what plays kubectl.
struct Operator<'a> {
    world: &'a World,
    namespace: String,
    kubeconfigs: [PathBuf; 2],
    /// With a kubectl that runs the agent's commands.
    path: OsString,
}

impl Operator<'_> {
    fn run(&self, words: &[&str], has_kubectl: bool) -> anyhow::Result<Output> {
        let mut command: Command = controller::command_line(&self.world.node.netns)?;
        command.args(words).args(["--namespace", &self.namespace]);
        for kubeconfig in &self.kubeconfigs {
            command.args((words[0] == "explain").then_some("--kubeconfig")).arg(kubeconfig);
        }
        if has_kubectl {
            command.env("PATH", &self.path);
        }
        Ok(command.output()?)
    }

    /// The document, if it ends with this status.
    fn document(&self, words: &[&str], has_kubectl: bool, status: i32) -> anyhow::Result<Value> {
        let output = self.run(&[words, &["--output", "json"]].concat(), has_kubectl)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let found: Value = serde_json::from_slice(&output.stdout).context(said)?;
        ensure!(output.status.code() == Some(status), "{}: {found:#}", output.status);
        Ok(found)
    }
}

/// The codes of findings.
fn codes(found: &Value) -> Vec<&str> {
    let findings = found["findings"].as_array().into_iter().flatten();
    findings.filter_map(|one| one["code"].as_str()).collect()
}

fn asks(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let [first, second] = [world.first(), world.second()];
    let mut exported = service(&namespace);
    exported["spec"]["ipFamilyPolicy"] = json!("SingleStack");
    first.export(&exported, Some(&slice_of(&namespace, 0, 2)))?;
    second.wait_for_addresses(&namespace, &["10.77.9.17", "10.77.9.18"])?;
    let made = make_pods(second, &namespace)?;
    let operator = Operator {
        world,
        kubeconfigs: [first.administrator()?, second.administrator()?],
        path: play_kubectl(world, second.directory())?,
        namespace,
    };
    let result = [services, explain, trace, bundle].iter().try_for_each(|ask| ask(&operator));
    for object in &made {
        second.api().delete(object)?;
    }
    first.unexport(&operator.namespace)?;
    second.wait_for_nothing(&operator.namespace)?;
    result
}

fn services(operator: &Operator<'_>) -> anyhow::Result<()> {
    wait::until("an import that its node serves", || {
        let found = operator.document(&["services"], true, 3)?;
        let rows = found["services"].as_array().context("no services")?;
        ensure!(rows.len() == 2, "{found:#}");
        for row in rows {
            ensure!(row["ready"] == json!({"c1": {"total": 2, "ready": 2}}), "{row:#}");
            ensure!(row["import"] == "Ready" && row["problems"] == json!([]), "{row:#}");
        }
        ensure!(rows[1]["nodes"]["serving"] == json!([NODES[0]]), "{found:#}");
        ensure!(rows[1]["nodes"]["unknown"] == json!([NODES[1]]), "{found:#}");
        ensure!(found["unasked"] == json!(["c2: node unasked has no agent"]), "{found:#}");
        Ok(())
    })?;
    // A controller that has just begun does not know whether its peer is fresh.
    wait::until("peers that are read", || {
        let output = operator.run(&["services", "--no-nodes"], false)?;
        let text = String::from_utf8(output.stdout)?;
        ensure!(output.status.success() && text.contains("c1 2/2"), "{text}");
        Ok(())
    })
}

fn explain(operator: &Operator<'_>) -> anyhow::Result<()> {
    let found = operator.document(&["explain", "client", objects::NAME], true, 0)?;
    ensure!(found["pod"]["cluster"] == "c2" && found["pod"]["node"] == NODES[0], "{found:#}");
    ensure!(found["agent"] == format!("{}/agent", operator.namespace), "{found:#}");
    ensure!(found["explained"]["served"] == true && codes(&found).is_empty(), "{found:#}");
    let imports: Vec<_> = found["clusters"].as_array().into_iter().flatten().collect();
    ensure!(imports.iter().all(|one| one["import"] == "Ready"), "{found:#}");
    let client = format!("{}/client", operator.namespace);
    let output = operator.run(&["explain", &client, objects::NAME], true)?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(text.contains(" is served\n") && text.contains("\n  c1: export Exported, "), "{text}");
    let long: Vec<_> = text.lines().filter(|line| line.chars().count() > 80).collect();
    ensure!(long.is_empty(), "too long: {long:?}");

    // Every cluster and node, without a pod.
    let found = operator.document(&["explain", objects::NAME], true, 3)?;
    ensure!(found["pod"].is_null() && codes(&found) == ["agent-unasked"], "{found:#}");
    let [first, second] = &found["clusters"].as_array().context("no clusters")?[..] else {
        bail!("{found:#}")
    };
    ensure!(first["nodes"].is_null() && second["ready"]["c1"]["ready"] == 2, "{found:#}");
    ensure!(second["nodes"]["serving"] == json!([NODES[0]]), "{found:#}");
    let found = operator.document(&["explain", "nothing"], true, 1)?;
    ensure!(codes(&found)[..2] == ["not-imported"; 2], "{found:#}");

    let wrong = format!("{}:43", objects::NAME);
    let found = operator.document(&["explain", "client", &wrong], true, 1)?;
    ensure!(codes(&found["explained"]).contains(&"unknown-port"), "{found:#}");
    let found = operator.document(&["explain", "client", "nothing"], true, 1)?;
    ensure!(codes(&found)[0] == "not-imported", "{found:#}");
    let found = operator.document(&["explain", "lonely", objects::NAME], true, 1)?;
    ensure!(codes(&found) == ["no-agent"] && found["explained"].is_null(), "{found:#}");
    let found = operator.document(&["explain", "client", objects::NAME], false, 3)?;
    ensure!(codes(&found) == ["agent-unasked"], "{found:#}");
    let output = operator.run(&["explain", "clie", objects::NAME], true)?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(1) && said.contains("did you mean client?"), "{said}");
    Ok(())
}

/// A process in the cgroup of pod `client` connects while the operator traces.
fn trace(operator: &Operator<'_>) -> anyhow::Result<()> {
    let (world, namespace) = (operator.world, &operator.namespace);
    let second = world.second();
    let pod = second.api().get(&format!("/api/v1/namespaces/{namespace}/pods/client"))?;
    let uid = pod["metadata"]["uid"].as_str().context("no uid")?;
    let cgroup = world.dataplane()?.cgroup(1).join(format!("kubepods/pod{uid}"));
    fs::create_dir_all(&cgroup)?;
    let script = format!(
        "echo $$ > {}/cgroup.procs && exec timeout 0.2 bash -c 'exec 3<> /dev/tcp/{}/42'",
        cgroup.display(),
        vip(second, namespace)?
    );
    let service = format!("{namespace}/{}", objects::NAME);
    let pod = format!("{namespace}/client");
    for (words, output) in [
        (&[service.as_str(), "--count=1"][..], "json"),
        (&["--pod", pod.as_str(), "--count=1"], "table"),
    ] {
        let mut command = controller::command_line(&world.node.netns)?;
        command
            .arg("trace")
            .args(words)
            .args(["--for=60s", "--output", output])
            .arg("--kubeconfig");
        command.arg(&operator.kubeconfigs[1]).env("PATH", &operator.path);
        let mut traces = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        wait::until("a decision", || {
            // Whether it reaches a backend does not matter.
            world.node.netns.command("sh").args(["-c", &script]).status()?;
            ensure!(traces.try_wait()?.is_some(), "it goes on");
            Ok(())
        })?;
        let ended = traces.wait_with_output()?;
        let text = String::from_utf8(ended.stdout)?;
        ensure!(ended.status.success(), "{text}{}", String::from_utf8_lossy(&ended.stderr));
        if output == "table" {
            ensure!(text.lines().count() == 2 && text.contains(NODES[0]), "{text}");
            // It is no terminal, where names would be cut.
            ensure!(text.contains(&service) && text.trim_end().ends_with(&pod), "{text}");
            continue;
        }
        let event: Value = serde_json::from_str(&text)?;
        for (name, expected) in [
            ("k8s.cluster.name", "c2"),
            ("k8s.node.name", NODES[0]),
            ("k8s.namespace.name", namespace.as_str()),
            ("k8s.pod.name", "client"),
            ("k8s.pod.uid", uid),
            ("mcs.import", service.as_str()),
            ("mcs.source_cluster", "c1"),
            ("mcs.verdict", "translated"),
        ] {
            ensure!(event[name] == expected, "{name}: {event:#}");
        }
    }
    for made in [cgroup.as_path(), cgroup.parent().context("no parent")?] {
        wait::until("an empty cgroup", || Ok(fs::remove_dir(made)?))?;
    }
    Ok(())
}

fn bundle(operator: &Operator<'_>) -> anyhow::Result<()> {
    let directory = operator.world.second().directory().join("bundle");
    fs::create_dir(&directory)?;
    let archive = directory.join("bundle.tar.gz");
    let mut command = controller::command_line(&operator.world.node.netns)?;
    command.arg("bundle").args(&operator.kubeconfigs).arg("/nonexistent/third.conf");
    command.args(["--mask-addresses", "--output"]).arg(&archive).env("PATH", &operator.path);
    let output = command.output()?;
    ensure!(output.status.code() == Some(3), "{output:?}");
    process::run(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&directory), "")?;
    let read = |file: &str| {
        let path = directory.join("mcs-bundle").join(file);
        fs::read_to_string(&path).with_context(|| file.to_owned())
    };
    let failures = read("failures.txt")?;
    // No kubelet runs.
    for part in ["third.conf", "c2/agents/logs/agent-mcs-agent.txt"] {
        ensure!(failures.contains(part), "{part}: {failures}");
    }
    let imports = read("c2/objects/serviceimports.json")?;
    let report = read(&format!("c2/agents/{}/report.json", NODES[0]))?;
    let slices = read("c2/objects/endpointslices.json")?;
    ensure!(imports.contains(&operator.namespace) && report.contains("\"imports\""), "{imports}");
    for text in [&imports, &report, &slices] {
        ensure!(!text.contains("10.77.9.") && text.contains("ip-"), "{text}");
        serde_json::from_str::<Value>(text)?;
    }
    ensure!(read("c1/status.json")?.contains("\"exports\""), "no status");
    // These clusters have no DNS, and their controllers tell Events.
    serde_json::from_str::<Value>(&read("c2/objects/events.json")?)?;
    Ok(())
}

/// Two nodes, a client on each, and an agent's pod on the first. Returns what has to be deleted.
fn make_pods(cluster: &Cluster, namespace: &str) -> anyhow::Result<Vec<Value>> {
    let api = cluster.api();
    api.apply(&namespaced("v1", "ServiceAccount", namespace, "default"))?;
    let mut made = Vec::new();
    for node in NODES {
        made.push(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": node } }));
    }
    for (name, node, container) in
        [("client", NODES[0], "web"), ("lonely", NODES[1], "web"), ("agent", NODES[0], "mcs-agent")]
    {
        let mut pod = namespaced("v1", "Pod", namespace, name);
        if name == "agent" {
            pod["metadata"]["labels"] = json!({ "app.kubernetes.io/name": "mcs-agent" });
            pod["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "mcs-agent",
                "uid": "2f4a1f0e-0000-4000-8000-000000000000", "controller": true,
            }]);
        }
        pod["spec"] = json!({
            "nodeName": node, "containers": [{ "name": container, "image": "none" }],
            "terminationGracePeriodSeconds": 0,
        });
        made.push(pod);
    }
    for object in &made {
        wait::until("the account of pods", || api.apply(object))?;
        if object["kind"] == "Pod" {
            let mut status = object.clone();
            status.as_object_mut().map(|fields| fields.remove("spec"));
            status["status"] = json!({
                "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }],
            });
            api.apply_status(&status)?;
        }
    }
    Ok(made)
}

/// A kubectl that runs the words for a pod's container here, with the agent of the second cluster.
fn play_kubectl(world: &World, directory: &Path) -> anyhow::Result<OsString> {
    let bpffs = world.dataplane()?.bpffs(1);
    let directory = directory.join("kubectl");
    fs::create_dir(&directory)?;
    let kubectl = directory.join("kubectl");
    let script = format!(
        "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift 2\nexec {} \"$@\" --bpffs {}\n",
        agent::binary()?.display(),
        bpffs.display()
    );
    fs::write(&kubectl, script)?;
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755))?;
    let rest = env::var_os("PATH").unwrap_or_default();
    Ok(env::join_paths([directory].into_iter().chain(env::split_paths(&rest)))?)
}
