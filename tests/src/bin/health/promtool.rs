//! Checks metrics and alerts with promtool of Prometheus.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use mcs_tests::suite::Suite;

use crate::{http::scrape, world::World};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("promtool finds nothing wrong with the metrics", metrics);
    suite.case("promtool finds nothing wrong with the alerts", rules);
    suite.case("alerts fire, and are silent, as their tests say", alerts);
    suite.case("alerts ask for metrics that there are", names);
}

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file)
}

/// Runs promtool, which must be content and, where it is `silent`, have nothing to say.
fn promtool(arguments: &[&str], input: &str, silent: bool) -> anyhow::Result<()> {
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

fn metrics(world: &mut World) -> anyhow::Result<()> {
    promtool(&["check", "metrics"], &scrape(&world.node.netns)?, true)
}

fn rules(_: &mut World) -> anyhow::Result<()> {
    let file = deploy("alerts.yaml").display().to_string();
    promtool(&["check", "rules", "--lint=all", "--lint-fatal", &file], "", false)
}

fn alerts(_: &mut World) -> anyhow::Result<()> {
    let file = deploy("alerts.test.yaml").display().to_string();
    promtool(&["test", "rules", &file], "", false)
}

fn names(world: &mut World) -> anyhow::Result<()> {
    let text = scrape(&world.node.netns)?;
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let series = text.lines().filter_map(|line| line.split(['{', ' ']).next());
    // There is nothing to turn down.
    let served: BTreeSet<&str> = families.chain(series).chain(["mcs_rejections"]).collect();
    let rules = fs::read_to_string(deploy("alerts.yaml"))?;
    let between = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    let asked: BTreeSet<&str> = rules
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .flat_map(|line| line.split(between))
        .filter(|name| {
            ["mcs_", "kubeproxy_", "process_"].iter().any(|prefix| name.starts_with(prefix))
        })
        .collect();
    ensure!(asked.len() > 5, "only {asked:?}");
    let absent: Vec<_> = asked.difference(&served).collect();
    ensure!(absent.is_empty(), "{absent:?}");
    Ok(())
}
