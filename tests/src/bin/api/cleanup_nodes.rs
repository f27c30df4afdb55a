//! The chart's pre-delete hook against a real API server, with the rights that the chart gives it. Nothing runs pods here: the
//! cases write the status that the controller of `DaemonSet`s would write.

use mcs_tests::agent;

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("the pre-delete hook waits until every node is clean", waits);
    suite.case("the pre-delete hook names the nodes that do not get clean", names_nodes);
}

fn waits(world: &mut World) -> Result {
    let hook = Hook::new(world, 60)?;
    world.east.api.apply(&hook.daemon_set)?;
    let mut child = hook.start(world)?;
    wait::until("the DaemonSet to clean", || {
        let set = world.east.api.get(Hook::PATH)?;
        let pod = &set["spec"]["template"]["spec"];
        ensure!(pod["containers"][0]["args"] == json!(["cleanup", "--wait"]), "{pod}");
        ensure!(pod["initContainers"][0]["args"][0] == "cleanup", "{pod}");
        ensure!(pod["containers"][0]["readinessProbe"].is_null(), "{pod}");
        ensure!(
            set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == "100%",
            "{set}"
        );
        Ok(())
    })?;
    hook.status(world, 2, 1)?;
    ensure!(child.try_wait()?.is_none(), "it ended with a node that is not clean");
    hook.status(world, 2, 2)?;
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{output:?}");
    ensure!(said.ends_with("2 of 2 nodes are clean\n"), "{said}");
    world.east.api.delete(&hook.daemon_set)?;
    // A release without a DaemonSet can be uninstalled too.
    let output = hook.start(world)?.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && said.contains("no node is cleaned"), "{output:?}");
    Ok(())
}

fn names_nodes(world: &mut World) -> Result {
    let hook = Hook::new(world, 1)?;
    world.east.api.apply(&hook.daemon_set)?;
    let template = &hook.daemon_set["spec"]["template"];
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "mcs-system", "name": "mcs-agent-x", "labels": template["metadata"]["labels"]},
        "spec": {"nodeName": "node-a", "automountServiceAccountToken": false,
            "containers": [{"name": "mcs-agent", "image": "x", "args": ["run"]}]},
    });
    world.east.api.apply(&account("default"))?;
    world.east.api.apply(&pod)?;
    let output = hook.start(world)?.wait_with_output()?;
    world.east.api.delete(&hook.daemon_set)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1), "{output:?}");
    let expected = "node-a (pod mcs-agent-x: still runs the agent)";
    ensure!(said.contains(expected) && said.contains("--no-hooks"), "{said}");
    Ok(())
}

/// The hook's Job as a process, and the DaemonSet that it changes.
struct Hook {
    daemon_set: Value,
    arguments: Vec<String>,
    kubeconfig: PathBuf,
}

impl Hook {
    const PATH: &'static str = "/apis/apps/v1/namespaces/mcs-system/daemonsets/mcs-agent";

    /// Grants the rights of the chart to the account of the hook.
    fn new(world: &World, timeout: u32) -> Result<Self> {
        let mut chart = helm(&[&format!("--set=uninstall.timeoutSeconds={}", timeout.max(10))])?;
        let mut take = |name: &str| chart.remove(name).with_context(|| format!("no {name}"));
        let account = take("ServiceAccount mcs-agent-cleanup")?;
        for object in
            [&account, &take("Role mcs-agent-cleanup")?, &take("RoleBinding mcs-agent-cleanup")?]
        {
            world.east.api.apply(object)?;
        }
        let job = take("Job mcs-agent-cleanup")?;
        let arguments = &job["spec"]["template"]["spec"]["containers"][0]["args"];
        let mut arguments: Vec<String> = serde_json::from_value(arguments.clone())?;
        // The chart accepts no time as short as a test needs.
        let given = arguments.iter_mut().find(|argument| argument.starts_with("--timeout="));
        *given.context("no time limit")? = format!("--timeout={timeout}");
        let file = world.run.directory().join("hook.token");
        world.east.write_token(&account, &file)?;
        let kubeconfig = world.run.directory().join("hook.kubeconfig");
        world.east.write_kubeconfig(&kubeconfig, &file)?;
        Ok(Self { daemon_set: take("DaemonSet mcs-agent")?, arguments, kubeconfig })
    }

    fn start(&self, world: &World) -> Result<Child> {
        let mut command: Command = world.network.node.netns.command(agent::binary()?);
        command.args(&self.arguments).env("KUBECONFIG", &self.kubeconfig);
        Ok(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
    }

    /// What the controller says of that many nodes.
    fn status(&self, world: &World, nodes: u32, ready: u32) -> Result {
        let generation = world.east.api.get(Self::PATH)?["metadata"]["generation"].take();
        world.east.api.apply_status(&json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": self.daemon_set["metadata"],
            "status": {
                "observedGeneration": generation, "desiredNumberScheduled": nodes,
                "currentNumberScheduled": nodes, "numberMisscheduled": 0,
                "updatedNumberScheduled": nodes, "numberReady": ready,
            },
        }))
    }
}

fn account(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": "mcs-system", "name": name}})
}
