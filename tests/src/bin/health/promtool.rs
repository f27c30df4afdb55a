//! Checks metrics and alerts with promtool of Prometheus.

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("promtool finds nothing wrong with the metrics", metrics);
    suite.case("promtool finds nothing wrong with the alerts", rules);
    suite.case("alerts fire, and are silent, as their tests say", alerts);
}

/// The path of a file below `deploy`.
pub(crate) fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file)
}

/// Runs promtool, which must be content and, where it is `silent`, have nothing to say.
pub(crate) fn promtool(arguments: &[&str], input: &str, silent: bool) -> Result {
    let mut child = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run promtool")?;
    child.stdin.take().context("no input")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    ensure!(output.status.success(), "{}: {said}", output.status);
    ensure!(!silent || said.is_empty(), "{said}");
    Ok(())
}

fn metrics(world: &mut World) -> Result {
    promtool(&["check", "metrics"], &scrape(&world.network.node.netns)?, true)
}

fn rules(_: &mut World) -> Result {
    let files = ["mcs-agent", "mcs-controller"]
        .map(|chart| deploy(&format!("helm/{chart}/monitoring/alerts.yaml")).display().to_string());
    let [agent, controller] = &files;
    promtool(&["check", "rules", "--lint=all", "--lint-fatal", agent, controller], "", false)
}

fn alerts(_: &mut World) -> Result {
    let files = ["alerts.test.yaml", "controller-alerts.test.yaml"]
        .map(|name| deploy(name).display().to_string());
    let [agent, controller] = &files;
    promtool(&["test", "rules", agent, controller], "", false)
}
