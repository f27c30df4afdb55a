//! `cargo xtask deploy`: the manifests that are made from the charts.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, bail, ensure};

use mcs_tests::charts::Copies;

use crate::{
    process,
    setup::{self, Purpose},
    workspace::Workspace,
};

mod definitions;
#[cfg(test)]
mod tests;
mod values;

/// Copies of the charts, each file changed.
pub(crate) fn copies(workspace: &Workspace, change: &impl Fn(&str) -> String) -> Result<Copies> {
    let helm = setup::go_program(workspace, "helm")?;
    Copies::new(&helm, &workspace.root.join("deploy/helm"), change)
}

/// A chart below deploy/helm, with the namespace that its manifests name.
#[derive(Clone, Copy)]
struct Chart {
    name: &'static str,
    namespace: &'static str,
}

const AGENT: Chart = Chart { name: "mcs-agent", namespace: "mcs-system" };
const CONTROLLER: Chart = Chart { name: "mcs-controller", namespace: "mcs-controller" };
/// It depends on the others.
const BOTH: Chart = Chart { name: "mcs", namespace: "mcs-system" };
const CHARTS: [Chart; 3] = [AGENT, CONTROLLER, BOTH];

/// The Kubernetes version that templates are rendered for. helm's own default depends on who built it.
const KUBERNETES: &str = "1.36.0";
/// The last line of the chart's README that people write.
const GENERATED: &str = "<!-- `cargo xtask deploy` writes this table from values.yaml. -->\n";

/// Write the types in the controller's chart, and from the charts in deploy/helm the manifests in deploy/kustomize and
/// deploy/dns, and the charts' READMEs
///
/// The types are those that the programs read. The manifests are the charts with their default values, in the namespaces
/// mcs-system and mcs-controller. The READMEs list the values.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only compare, and exit with 1 if they differ; `cargo xtask lint deploy` does so too
    #[arg(long)]
    check: bool,
}

/// The names of the charts.
pub(crate) fn charts() -> impl Iterator<Item = &'static str> {
    CHARTS.iter().map(|chart| chart.name)
}

/// A file below deploy.
struct Manifest {
    chart: Chart,
    path: &'static str,
    part: Part,
    values: &'static [&'static str],
}

/// What of a chart a manifest is.
#[derive(Clone, Copy)]
enum Part {
    Template(&'static str),
    ResourceTypes,
}

const MANIFESTS: &[Manifest] = &[
    template(AGENT, "kustomize/base/namespace.yaml", "namespace", &["namespace.create=true"]),
    template(AGENT, "kustomize/base/rbac.yaml", "rbac", &[]),
    template(AGENT, "kustomize/base/daemonset.yaml", "daemonset", &[]),
    template(AGENT, "kustomize/cleanup/daemonset.yaml", "daemonset", &["cleanup=true"]),
    Manifest {
        chart: CONTROLLER,
        path: "kustomize/controller/crds.yaml",
        part: Part::ResourceTypes,
        values: &[],
    },
    template(
        CONTROLLER,
        "kustomize/controller/namespace.yaml",
        "namespace",
        &["namespace.create=true"],
    ),
    template(CONTROLLER, "kustomize/controller/rbac.yaml", "rbac", &[]),
    template(CONTROLLER, "kustomize/controller/mailbox.yaml", "mailbox", &[]),
    template(CONTROLLER, "kustomize/controller/admission.yaml", "admission", &[]),
    template(CONTROLLER, "kustomize/controller/roles.yaml", "roles", &[]),
    template(CONTROLLER, "kustomize/controller/deployment.yaml", "deployment", &[]),
    template(BOTH, "dns/coredns-rbac.yaml", "dns-rbac", &[]),
    template(BOTH, "dns/coredns-custom.yaml", "dns-custom", &["dns.custom=true"]),
];

const fn template(
    chart: Chart,
    path: &'static str,
    template: &'static str,
    values: &'static [&'static str],
) -> Manifest {
    Manifest { chart, path, part: Part::Template(template), values }
}

/// Runs the verb.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    setup::ensure(workspace, &[Purpose::Lint])?;
    if args.check {
        check(workspace)?;
        return Ok(ExitCode::SUCCESS);
    }
    for (file, text) in definitions::files(&workspace.root)? {
        write(&file, &text)?;
    }
    let copies = unchanged(workspace)?;
    for manifest in MANIFESTS {
        write(&manifest.file(workspace), &manifest.render(workspace, &copies)?)?;
    }
    for chart in CHARTS {
        let (file, text) = chart.readme(workspace)?;
        write(&file, &text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    println!("{}", file.display());
    Ok(())
}

/// Fails unless the charts are sound, of this version, and what the manifests are made from.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    definitions::check(&workspace.root)?;
    let copies = unchanged(workspace)?;
    for chart in CHARTS {
        chart.check(workspace, &copies)?;
    }
    for manifest in MANIFESTS {
        let file = manifest.file(workspace);
        if fs::read_to_string(&file).ok().as_ref() != Some(&manifest.render(workspace, &copies)?) {
            bail!("{} is not what the chart makes: run `cargo xtask deploy`", file.display());
        }
    }
    Ok(())
}

/// Copies of the charts as they are.
fn unchanged(workspace: &Workspace) -> Result<Copies> {
    copies(workspace, &str::to_owned)
}

impl Chart {
    fn path(&self) -> String {
        format!("deploy/helm/{}", self.name)
    }

    fn check(&self, workspace: &Workspace, copies: &Copies) -> Result<()> {
        let path = self.path();
        let mut lint = helm(workspace)?;
        lint.args(["lint", "--strict", "--quiet", "--kube-version", KUBERNETES]);
        lint.arg(copies.path(self.name));
        process::run(&mut lint)?;
        let chart = fs::read_to_string(workspace.root.join(&path).join("Chart.yaml"))?;
        for field in ["version", "appVersion"] {
            let expected = format!("{field}: {}", env!("CARGO_PKG_VERSION"));
            ensure!(
                chart.lines().any(|line| line == expected),
                "{path}/Chart.yaml has another {field} than the workspace, {}",
                env!("CARGO_PKG_VERSION")
            );
        }
        let image = format!("mcs-agent:{}", env!("CARGO_PKG_VERSION"));
        let names_image = chart.lines().any(|line| line.trim().ends_with(&image));
        ensure!(names_image, "{path}/Chart.yaml lists another image than {image}");
        let (file, text) = self.readme(workspace)?;
        if fs::read_to_string(&file).ok() != Some(text) {
            bail!("{} is not what values.yaml says: run `cargo xtask deploy`", file.display());
        }
        Ok(())
    }

    /// The chart's README, with the table of values.
    fn readme(&self, workspace: &Workspace) -> Result<(PathBuf, String)> {
        let chart = workspace.root.join(self.path());
        let file = chart.join("README.md");
        let text = fs::read_to_string(&file)?;
        let (written, _) = text
            .split_once(GENERATED)
            .with_context(|| format!("{} has no table", file.display()))?;
        let table = values::table(&fs::read_to_string(chart.join("values.yaml"))?)?;
        Ok((file, format!("{written}{GENERATED}\n{table}")))
    }
}

impl Manifest {
    fn file(&self, workspace: &Workspace) -> PathBuf {
        workspace.root.join("deploy").join(self.path)
    }

    fn render(&self, workspace: &Workspace, copies: &Copies) -> Result<String> {
        let Self { chart, part, values, .. } = self;
        let mut template = helm(workspace)?;
        match part {
            Part::ResourceTypes => {
                template.args(["show", "crds"]).arg(copies.path(chart.name));
            }
            Part::Template(name) => {
                template.args(["template", chart.name]).arg(copies.path(chart.name));
                template.args(["--namespace", chart.namespace, "--kube-version", KUBERNETES]);
                template.arg("--show-only").arg(format!("templates/{name}.yaml"));
                template.args(values.iter().flat_map(|value| ["--set", value]));
            }
        }
        printed(&mut template)
    }
}

/// What helm prints, unless it fails.
pub(crate) fn printed(helm: &mut Command) -> Result<String> {
    let output = helm.output().context("cannot start helm")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", process::describe(helm), said.trim());
    String::from_utf8(output.stdout).context("helm prints no UTF-8")
}

/// helm, without what a user has set for work of their own.
pub(crate) fn helm(workspace: &Workspace) -> Result<Command> {
    let mut helm = Command::new(setup::go_program(workspace, "helm")?);
    helm.current_dir(&workspace.root).env_clear().env("HOME", Path::new("/nonexistent"));
    Ok(helm)
}
