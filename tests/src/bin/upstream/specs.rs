//! Runs Kubernetes' specs by ginkgo, and tells what came of each.

use std::env;

use comfy_table::{Table, presets::NOTHING};
use mcs_tests::prelude::*;
use serde::Deserialize;

use crate::{images, world::World};

/// The specs of this suite, with the runs of each.
const SPECS: &str = include_str!("specs.txt");
/// The range of Services that a spec adds (`test/e2e/network/service_cidrs.go`). A spec of kube-proxy's own work has an external address in
/// it, so that the two have different runs.
pub(crate) const ANOTHER_RANGE: &str = "203.0.113.0/24";

/// Processes of ginkgo. Specs wait most of the time.
const PROCESSES: u8 = 8;

/// Who serves what.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    WithoutProxy,
    BesideProxy,
    ByPackets,
    Elsewhere,
}

impl Run {
    /// Its letter in the list of specs.
    const fn letter(self) -> char {
        match self {
            Self::WithoutProxy => 'a',
            Self::BesideProxy => 'b',
            Self::ByPackets => 'c',
            Self::Elsewhere => 'd',
        }
    }

    /// Its specs.
    fn specs(self) -> Vec<&'static str> {
        let lines = SPECS.lines().filter(|line| !line.starts_with('#'));
        let specs = lines.filter_map(|line| line.split_once(' '));
        let specs = specs.filter(|(runs, _)| runs.contains(self.letter()));
        specs.map(|(_, name)| name.trim()).collect()
    }
}

/// A report of ginkgo.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Report {
    spec_reports: Vec<Spec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Spec {
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_text: String,
    state: String,
    /// In nanoseconds.
    run_time: u64,
    failure: Option<Failure>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    message: String,
}

impl Spec {
    fn name(&self) -> String {
        let texts = self.container_hierarchy_texts.iter().flatten().map(String::as_str);
        texts.chain([self.leaf_node_text.as_str()]).collect::<Vec<_>>().join(" ")
    }
}

/// The names of all images that specs know.
pub(crate) fn images() -> Result<String> {
    let program = images::program("kubernetes-e2e")?;
    process::run(Command::new(program).arg("--list-images"), "")
}

/// Runs the specs of a run. Each of them has to pass.
pub(crate) fn run(world: &World, run: Run) -> Result {
    let specs = run.specs();
    let name = format!("upstream-{}", run.letter());
    let (report, log) = (format!("{name}.json"), world.directory.join(format!("{name}.log")));
    // ginkgo knows suites by the ends of their names.
    let suite = world.directory.join("e2e.test");
    if !suite.exists() {
        std::os::unix::fs::symlink(images::program("kubernetes-e2e")?, &suite)?;
    }
    let output = File::create(&log)?;
    let kubectl = world.programs.find("kubectl")?;
    let mut ginkgo = Command::new(images::program("ginkgo")?);
    ginkgo.current_dir(&world.directory).env_clear().env("HOME", &world.directory);
    ginkgo.env("PATH", env::var_os("PATH").unwrap_or_default());
    ginkgo.arg(format!("--procs={PROCESSES}")).args(["--no-color", "--timeout=1h"]);
    ginkgo.arg(format!("--json-report={report}"));
    ginkgo.args(specs.iter().map(|spec| format!("--focus={}$", escape(spec))));
    ginkgo.arg(&suite).args(["--", "--provider=local", "--num-nodes=6", "--minStartupPods=0"]);
    ginkgo.arg(format!("--kubectl-path={}", kubectl.display()));
    ginkgo.arg(format!("--kubeconfig={}", world.cluster.kubeconfig().display()));
    ginkgo.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let begin = Instant::now();
    // Its status says what the report says in detail.
    let status = ginkgo.status().context("cannot start ginkgo")?;
    let text = fs::read_to_string(world.directory.join(&report));
    let text = text.with_context(|| format!("{status}, no report; see {}", log.display()))?;
    let reports: Vec<Report> = serde_json::from_str(&text)?;
    let reports: BTreeMap<_, _> = reports
        .into_iter()
        .flat_map(|report| report.spec_reports)
        .map(|spec| (spec.name(), spec))
        .collect();
    judge(&specs, &reports, begin.elapsed())
}

fn judge(specs: &[&str], reports: &BTreeMap<String, Spec>, time: Duration) -> Result {
    let mut table = Table::new();
    table.load_style(NOTHING);
    let (mut passed, mut failures) = (0, Vec::new());
    for &name in specs {
        let (state, seconds) = match reports.get(name) {
            None => ("absent", 0),
            Some(spec) => (spec.state.as_str(), Duration::from_nanos(spec.run_time).as_secs()),
        };
        table.add_row([state.to_owned(), format!("{seconds} s"), name.to_owned()]);
        if state == "passed" {
            passed += 1;
            continue;
        }
        let failure = reports.get(name).and_then(|spec| spec.failure.as_ref());
        let message = failure.map_or("no such spec ran", |failure| failure.message.as_str());
        failures.push(format!("{state}: {name}: {message}"));
    }
    table.trim_fmt().lines().for_each(tell);
    tell(format!("{passed} of {} specs passed in {} s", specs.len(), time.as_secs()));
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

/// A name as a regular expression that matches it. ginkgo looks for it in a longer text, which ends with the name.
fn escape(name: &str) -> String {
    let mut escaped = String::new();
    for character in name.chars() {
        if r"\.+*?()|[]{}^$".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}
