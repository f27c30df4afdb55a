//! A second release of the chart on some of the nodes.

use mcs_tests::deployed::{agents::NAMESPACE, traces};

use crate::prelude::*;

/// The second release, and its DaemonSet.
const RELEASE: &str = "canary";
const DAEMON_SET: &str = "canary-mcs-agent";
/// The label of its nodes.
const POOL: &str = "mcs-agent/pool";

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case(
        "a canary release on one of two nodes under load: upgrades and uninstalls of either leave the other's node alone",
        takes_over,
    );
}

fn takes_over(world: &mut World) -> Result {
    let (importer, exporter) = world.directions()[0];
    let [canary, main] = importer.nodes()[..] else {
        return Err(skip(format!(
            "the suite takes two nodes of {} on this machine",
            importer.name
        )));
    };
    let name = "canary".to_owned();
    let target = Target { vips: importer.service(&name)?, name };
    world.release.ensure(importer)?;
    target.publish(importer, &[exporter])?;
    let mut loads = Vec::new();
    for client in Client::all(importer) {
        client.reach(&target, exporter)?;
        // kube-proxy serves the derived Service while a node has no agent.
        loads.push(client.load(&target, &[importer, exporter])?);
    }
    let pool = Pool { world, importer, exporter, target: &target, canary, main };
    pool.install()?;
    pool.upgrade()?;
    pool.uninstall_main()?;
    pool.uninstall_canary()?;
    world.release.install(importer, &[])?;
    let answers = loads.into_iter().map(Load::end).sum::<Result<u64>>()?;
    tell(format!("{answers} answers"));
    target.withdraw(importer)?;
    importer.run(&["delete", "service", &target.name]).map(drop)
}

/// Two nodes of a cluster, with a release each.
struct Pool<'a> {
    world: &'a World,
    importer: &'a Member,
    exporter: &'a Member,
    target: &'a Target,
    canary: Node,
    main: Node,
}

impl Pool<'_> {
    /// Installs both, and moves a node from one to the other.
    fn install(&self) -> Result {
        self.install_main(&[])?;
        self.install_canary(&[])?;
        has_nodes(self.importer, DAEMON_SET, 0)?;
        self.label(&format!("{POOL}=canary"))?;
        has_nodes(self.importer, NAME, 1)?;
        has_nodes(self.importer, DAEMON_SET, 1)?;
        let words = ["exec", &format!("daemonset/{DAEMON_SET}"), "--namespace", NAMESPACE];
        let ask = [&words[..], &["--", "mcs-agent", "status"]].concat();
        let status = self.importer.kubectl.run(&ask)?;
        tell(format!("{RELEASE}: {}", status.lines().next().unwrap_or_default()));
        Ok(())
    }

    /// Upgrades one after the other.
    fn upgrade(&self) -> Result {
        let changed = ["podAnnotations.example\\.com/changed=yes"];
        let (canary, main) = (self.pod(RELEASE)?, self.pod(NAME)?);
        self.install_main(&changed)?;
        ensure!(self.pod(RELEASE)? == canary, "an upgrade of {NAME} replaces the pod of {RELEASE}");
        let upgraded = self.pod(NAME)?;
        ensure!(upgraded != main, "{NAME} has the pod from before its upgrade");
        self.install_canary(&changed)?;
        has_nodes(self.importer, DAEMON_SET, 1)?;
        wait::within(PATIENCE, "another pod of the canary release", || {
            ensure!(self.pod(RELEASE)? != canary, "it is the one from before the upgrade");
            Ok(())
        })?;
        ensure!(self.pod(NAME)? == upgraded, "an upgrade of {RELEASE} replaces the pod of {NAME}");
        Ok(())
    }

    /// Uninstalls the main release. The hook cleans its node alone.
    fn uninstall_main(&self) -> Result {
        let canary = self.pod(RELEASE)?;
        self.world.release.uninstall(self.importer, NAME)?;
        let found = traces(self.main)?;
        ensure!(found.is_empty(), "{} still has {found:?}", self.main);
        self.client(self.main).reach(self.target, self.importer)?;
        let found = traces(self.canary)?;
        ensure!(found.len() >= 3, "{} has {found:?} while its agent runs", self.canary);
        self.client(self.canary).reach(self.target, self.exporter)?;
        ensure!(
            self.pod(RELEASE)? == canary,
            "an uninstall of {NAME} replaces the pod of {RELEASE}"
        );
        Ok(())
    }

    /// Installs the main release again, gives it the canary's node, and uninstalls the canary.
    fn uninstall_canary(&self) -> Result {
        self.install_main(&[])?;
        self.label(&format!("{POOL}-"))?;
        has_nodes(self.importer, DAEMON_SET, 0)?;
        has_nodes(self.importer, NAME, 2)?;
        self.world.release.uninstall(self.importer, RELEASE)?;
        ensure!(agents::pods(self.importer)?.len() == 2, "pods of {RELEASE} are left");
        for node in [self.canary, self.main] {
            self.client(node).reach(self.target, self.exporter)?;
        }
        Ok(())
    }

    fn install_main(&self, values: &[&str]) -> Result {
        // `PATH[0]=...` of a value that is a list.
        let term = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.\
                    nodeSelectorTerms[0].matchExpressions[0]";
        let outside = [
            format!("{term}.key={POOL}"),
            format!("{term}.operator=NotIn"),
            format!("{term}.values={{canary}}"),
        ];
        let outside = outside.each_ref().map(String::as_str);
        self.world.release.install(self.importer, &[&outside[..], values].concat())
    }

    fn install_canary(&self, values: &[&str]) -> Result {
        let inside = [&format!("nodeSelector.{POOL}=canary"), "uninstall.cleanup=false"];
        let values = [&inside[..], values].concat();
        self.world.release.install_beside(self.importer, RELEASE, &values)
    }

    fn label(&self, label: &str) -> Result {
        let words = ["label", "node", &self.canary.to_string(), label];
        self.importer.kubectl.run(&words).map(drop)
    }

    /// The uid of the only agent of a release.
    fn pod(&self, release: &str) -> Result<String> {
        let of_release =
            |pod: &Value| pod["metadata"]["labels"]["app.kubernetes.io/instance"] == release;
        let pods: Vec<_> = agents::pods(self.importer)?.into_iter().filter(of_release).collect();
        let [pod] = &pods[..] else { anyhow::bail!("{release} has {} pods", pods.len()) };
        pod["metadata"]["uid"].as_str().map(str::to_owned).context("a pod without a uid")
    }

    fn client(&self, node: Node) -> Client<'_> {
        Client::new(self.importer, Place::Node(node))
    }
}

/// Waits until that many nodes have a pod of the DaemonSet, and no other one has.
fn has_nodes(member: &Member, daemon_set: &str, nodes: u64) -> Result {
    wait::within(PATIENCE, &format!("{daemon_set} on {nodes} nodes"), || {
        let words = ["daemonset", daemon_set, "--namespace", NAMESPACE];
        let status = member.kubectl.get(&words)?["status"].take();
        for field in ["desiredNumberScheduled", "currentNumberScheduled", "numberReady"] {
            ensure!(status[field] == nodes, "{status}");
        }
        ensure!(status["numberMisscheduled"] == 0, "{status}");
        Ok(())
    })
}
