//! `cargo xtask deploy`: the manifests that are made from the chart.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{
    process,
    setup::{self, Purpose},
    workspace::Workspace,
};

mod values;

const CHART: &str = "deploy/helm/mcs-agent";
/// The Kubernetes version that templates are rendered for. helm's own default depends on who built it.
const KUBERNETES: &str = "1.36.0";
/// The last line of the chart's README that people write.
const GENERATED: &str = "<!-- `cargo xtask deploy` writes this table from values.yaml. -->\n";
const NAMESPACE: &str = "mcs-system";

/// Write the manifests in deploy/kustomize and the chart's README, from the chart in deploy/helm
///
/// The manifests are the chart with its default values, in the namespace mcs-system. The README lists the values.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only compare, and exit with 1 if they differ; `cargo xtask lint deploy` does so too
    #[arg(long)]
    check: bool,
}

/// A file below deploy/kustomize.
struct Manifest {
    path: &'static str,
    template: &'static str,
    values: &'static [&'static str],
}

const MANIFESTS: &[Manifest] = &[
    Manifest {
        path: "base/namespace.yaml",
        template: "namespace",
        values: &["namespace.create=true"],
    },
    Manifest { path: "base/rbac.yaml", template: "rbac", values: &[] },
    Manifest { path: "base/daemonset.yaml", template: "daemonset", values: &[] },
    Manifest { path: "cleanup/daemonset.yaml", template: "daemonset", values: &["cleanup=true"] },
];

/// Runs the verb.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    setup::ensure(workspace, &[Purpose::Lint])?;
    if args.check {
        check(workspace)?;
        return Ok(ExitCode::SUCCESS);
    }
    for manifest in MANIFESTS {
        let file = manifest.file(workspace);
        let text = manifest.render(workspace)?;
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        println!("{}", file.display());
    }
    let (file, text) = readme(workspace)?;
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    println!("{}", file.display());
    Ok(ExitCode::SUCCESS)
}

/// Fails unless the chart is sound, of this version, and what the manifests are made from.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let mut lint = helm(workspace)?;
    process::run(lint.args(["lint", "--strict", "--quiet", "--kube-version", KUBERNETES, CHART]))?;
    let chart = fs::read_to_string(workspace.root.join(CHART).join("Chart.yaml"))?;
    for field in ["version", "appVersion"] {
        let expected = format!("{field}: {}", env!("CARGO_PKG_VERSION"));
        ensure!(
            chart.lines().any(|line| line == expected),
            "{CHART}/Chart.yaml has another {field} than the workspace, {}",
            env!("CARGO_PKG_VERSION")
        );
    }
    for manifest in MANIFESTS {
        let file = manifest.file(workspace);
        if fs::read_to_string(&file).ok().as_ref() != Some(&manifest.render(workspace)?) {
            bail!("{} is not what the chart makes: run `cargo xtask deploy`", file.display());
        }
    }
    let (file, text) = readme(workspace)?;
    if fs::read_to_string(&file).ok() != Some(text) {
        bail!("{} is not what values.yaml says: run `cargo xtask deploy`", file.display());
    }
    Ok(())
}

/// The chart's README, with the table of values.
fn readme(workspace: &Workspace) -> Result<(PathBuf, String)> {
    let chart = workspace.root.join(CHART);
    let file = chart.join("README.md");
    let text = fs::read_to_string(&file)?;
    let (written, _) =
        text.split_once(GENERATED).with_context(|| format!("{} has no table", file.display()))?;
    let table = values::table(&fs::read_to_string(chart.join("values.yaml"))?)?;
    Ok((file, format!("{written}{GENERATED}\n{table}")))
}

impl Manifest {
    fn file(&self, workspace: &Workspace) -> PathBuf {
        workspace.root.join("deploy/kustomize").join(self.path)
    }

    fn render(&self, workspace: &Workspace) -> Result<String> {
        let mut template = helm(workspace)?;
        template.args(["template", "mcs-agent", CHART, "--namespace", NAMESPACE]);
        template.args(["--kube-version", KUBERNETES]);
        template.arg("--show-only").arg(format!("templates/{}.yaml", self.template));
        template.args(self.values.iter().flat_map(|value| ["--set", value]));
        let output = template.output().context("cannot start helm")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {}", process::describe(&template), said.trim());
        String::from_utf8(output.stdout).context("a manifest is not UTF-8")
    }
}

/// helm, without what a user has set for work of their own.
fn helm(workspace: &Workspace) -> Result<Command> {
    let mut helm = Command::new(setup::go_program(workspace, "helm")?);
    helm.current_dir(&workspace.root).env_clear().env("HOME", Path::new("/nonexistent"));
    Ok(helm)
}
