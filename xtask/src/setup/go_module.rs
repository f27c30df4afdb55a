//! Programs that come from the Go module proxy.

use std::{
    fs,
    io::{BufRead as _, BufReader, IsTerminal as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use mcs_tests::cluster::OLDEST_KUBERNETES;

use super::{Item, Purpose, Remedy, go};
use crate::{process, workspace::Workspace};

/// How often progress is printed if the output is no terminal.
const INTERVAL: Duration = Duration::from_secs(15);

/// A family of programs, which a directory below tests/programs pins by its go.mod: as its tools, in the versions that
/// it requires. Or one program of such a family.
pub(super) struct GoModule {
    pub(super) name: &'static str,
    /// The family that it is one program of.
    part_of: Option<&'static str>,
    /// The module they are from.
    pub(super) provider: &'static str,
    /// Variables of the programs that hold a version, each with the part of the version that it holds.
    stamps: &'static [(&'static str, Stamp)],
    purposes: &'static [Purpose],
}

/// A part of a version such as `v1.36.3`: all of it, `1` or `36`.
enum Stamp {
    Version,
    Major,
    Minor,
}

/// What most families have in common.
const MODULE: GoModule =
    GoModule { name: "", part_of: None, provider: "", stamps: &[], purposes: &[Purpose::Clusters] };

const KUBERNETES: GoModule = GoModule {
    provider: "k8s.io/kubernetes",
    stamps: &[
        ("k8s.io/component-base/version.gitVersion", Stamp::Version),
        ("k8s.io/component-base/version.gitMajor", Stamp::Major),
        ("k8s.io/component-base/version.gitMinor", Stamp::Minor),
    ],
    ..MODULE
};

/// A kube-proxy that is newer than the newest Kubernetes of the clusters.
pub(super) const NEWEST_KUBE_PROXY: &str = "kube-proxy-newest";

/// Kubernetes' own specs, what runs them, and what their pods run.
pub(super) const UPSTREAM: &str = "kubernetes-e2e";

/// Every family and program.
const MODULES: &[GoModule] = {
    use Purpose::{
        Bench, Clusters, Cnis, Kind, Lint, Neighbours, Release, Remote, Servers, Upstream,
    };
    &[
        GoModule { name: "kubernetes", purposes: &[Clusters, Servers, Neighbours], ..KUBERNETES },
        GoModule {
            name: "kubectl",
            part_of: Some("kubernetes"),
            purposes: &[Remote],
            ..KUBERNETES
        },
        GoModule { name: OLDEST_KUBERNETES, ..KUBERNETES },
        GoModule { name: NEWEST_KUBE_PROXY, purposes: &[Bench], ..KUBERNETES },
        GoModule { name: UPSTREAM, purposes: &[Upstream], ..KUBERNETES },
        // kind and kubeadm. The latter's version is what counts.
        GoModule { name: "kind", purposes: &[Kind], ..KUBERNETES },
        GoModule {
            name: "etcd",
            provider: "go.etcd.io/etcd/server/v3",
            purposes: &[Clusters, Servers, Neighbours],
            ..MODULE
        },
        GoModule {
            name: "containerd",
            provider: "github.com/containerd/containerd/v2",
            stamps: &[("github.com/containerd/containerd/v2/version.Version", Stamp::Version)],
            ..MODULE
        },
        GoModule { name: "coredns", provider: "github.com/coredns/coredns", ..MODULE },
        GoModule { name: "flannel", provider: "github.com/flannel-io/flannel", ..MODULE },
        GoModule {
            name: "mcs-api",
            provider: "sigs.k8s.io/mcs-api",
            purposes: &[Clusters, Servers, Neighbours],
            ..MODULE
        },
        GoModule { name: "kube-proxy-watches", provider: "k8s.io/client-go", ..MODULE },
        GoModule {
            name: "karmada",
            provider: "github.com/karmada-io/karmada",
            purposes: &[Neighbours],
            ..MODULE
        },
        GoModule {
            name: "cilium",
            provider: "github.com/cilium/cilium",
            purposes: &[Neighbours, Cnis],
            ..MODULE
        },
        GoModule {
            name: "cilium-oldest",
            provider: "github.com/cilium/cilium",
            purposes: &[Neighbours],
            ..MODULE
        },
        GoModule {
            name: "helm",
            provider: "helm.sh/helm/v3",
            purposes: &[Clusters, Lint, Release, Remote, Neighbours],
            ..MODULE
        },
        GoModule {
            name: "actionlint",
            provider: "github.com/rhysd/actionlint",
            purposes: &[Lint],
            ..MODULE
        },
    ]
};

/// The modules of `purposes`.
pub(super) fn of(purposes: &[Purpose]) -> impl Iterator<Item = &'static GoModule> {
    let wanted = |module: &&GoModule| module.purposes.iter().any(|p| purposes.contains(p));
    MODULES.iter().filter(wanted)
}

/// The modules of `purposes`, and what building them needs.
pub(super) fn items(workspace: &Workspace, purposes: &[Purpose]) -> Vec<Item> {
    let modules: Vec<_> = of(purposes).map(|module| module.item(workspace)).collect();
    let complete = modules.iter().all(|item| item.found.is_some());
    let go = if complete { Vec::new() } else { go::items(workspace) };
    go.into_iter().chain(modules).collect()
}

/// The directory with the source of a module, in the version that the go.mod in `family` requires.
pub(super) fn download(workspace: &Workspace, family: &Path, module: &str) -> Result<PathBuf> {
    let mut go = go::command(&go::find(workspace).context("there is no go")?);
    let described = output(go.current_dir(family).args(["mod", "download", "-json", module]))?;
    let described: serde_json::Value = serde_json::from_str(&described)?;
    Ok(described["Dir"].as_str().with_context(|| format!("{module} has no source"))?.into())
}

impl GoModule {
    /// The directory of the programs, if they are built as the repository has it now: for one program also that of its family.
    pub(super) fn find(&self, workspace: &Workspace) -> Option<PathBuf> {
        let family = MODULES.iter().find(|module| self.part_of == Some(module.name));
        family.and_then(|family| family.built(workspace)).or_else(|| self.built(workspace))
    }

    fn built(&self, workspace: &Workspace) -> Option<PathBuf> {
        let pinned = Pinned::read(&self.source(workspace), self.provider).ok()?;
        let cached = self.directory(workspace, &pinned);
        let built = fs::read_to_string(cached.join("recipe")).ok()?;
        (built == self.recipe(&pinned)).then(|| cached.join("bin"))
    }

    fn item(&'static self, workspace: &Workspace) -> Item {
        let remedy = Remedy::GoBuild(self);
        Item { name: self.name, found: self.find(workspace), version: &[], remedy }
    }

    /// Builds the programs into the cache.
    pub(super) fn install(&self, workspace: &Workspace) -> Result<()> {
        if self.find(workspace).is_some() {
            // With its family, a moment ago.
            return Ok(());
        }
        let source = self.source(workspace);
        let pinned = Pinned::read(&source, self.provider)?;
        let directory = self.directory(workspace, &pinned);
        let Self { name, .. } = self;
        let version = &pinned.version;
        eprintln!("setup: building {name} {version} into {}", directory.display());
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        let bin = directory.join("bin");
        fs::create_dir_all(&bin)?;
        let program = go::find(workspace).context("there is no go")?;
        let go = || {
            let mut command = go::command(&program);
            command.current_dir(&source);
            command
        };
        // This fetches the modules too.
        let package = self.package();
        let packages = output(go().args(["list", "-deps", &package]))?.lines().count();
        let flags = format!("-ldflags={}", self.linker_flags(&pinned));
        let mut build = go();
        build.args(["build", "-v", "-trimpath", "-buildvcs=false", &flags, "-o"]);
        watch(build.arg(bin.join("")).arg(package), name, packages)?;
        // Written last, so that it exists only if the build is complete.
        Ok(fs::write(directory.join("recipe"), self.recipe(&pinned))?)
    }

    /// Whether it is a controller or a CNI of others, whose source is needed too.
    pub(super) fn is_of_others(&self) -> bool {
        self.purposes.iter().all(|purpose| matches!(purpose, Purpose::Neighbours | Purpose::Cnis))
    }

    /// The directory below tests/programs that pins it.
    pub(super) fn family(&self) -> &'static str {
        self.part_of.unwrap_or(self.name)
    }

    fn source(&self, workspace: &Workspace) -> PathBuf {
        workspace.root.join("tests/programs").join(self.family())
    }

    /// What go builds.
    fn package(&self) -> String {
        match self.part_of {
            Some(_) => format!("{}/cmd/{}", self.provider, self.name),
            None => "tool".to_owned(),
        }
    }

    fn directory(&self, workspace: &Workspace, pinned: &Pinned) -> PathBuf {
        workspace.cache.join(format!("{}-{}", self.name, pinned.version))
    }

    /// All that the programs follow from.
    fn recipe(&self, pinned: &Pinned) -> String {
        format!("{}\n{}", self.linker_flags(pinned), pinned.files)
    }

    fn linker_flags(&self, pinned: &Pinned) -> String {
        let mut numbers = pinned.version.trim_start_matches('v').split('.');
        let [major, minor] = [(); 2].map(|()| numbers.next().unwrap_or_default());
        let variables = self.stamps.iter().map(|(variable, stamp)| {
            let value = match stamp {
                Stamp::Version => &pinned.version,
                Stamp::Major => major,
                Stamp::Minor => minor,
            };
            format!(" -X {variable}={value}")
        });
        ["-s -w".to_owned()].into_iter().chain(variables).collect()
    }
}

/// What the files of a family pin.
struct Pinned {
    /// The version of the provider.
    version: String,
    /// Their text.
    files: String,
}

impl Pinned {
    fn read(source: &Path, provider: &str) -> Result<Self> {
        let names = ["go.mod", "go.sum", "main.go"];
        let present = names.map(|name| source.join(name)).into_iter().filter(|file| file.exists());
        let read = |file: PathBuf| {
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
        };
        let files = present.map(read).collect::<Result<String>>()?;
        let version = version(&files, provider)
            .with_context(|| format!("{} does not require {provider}", source.display()))?;
        Ok(Self { version: version.to_owned(), files })
    }
}

/// The version of a module that a go.mod requires.
fn version<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let line = line.trim().trim_start_matches("require ");
        line.strip_prefix(module)?.strip_prefix(' ')?.split(' ').next()
    })
}

/// Runs a command, and shows how many of at most `packages` packages it has named.
fn watch(command: &mut Command, name: &str, packages: usize) -> Result<()> {
    let mut child = command.stderr(Stdio::piped()).spawn().context("cannot start go")?;
    let stderr = child.stderr.take().context("no standard error")?;
    let terminal = std::io::stderr().is_terminal();
    let (mut built, mut said, mut trouble) = (0_usize, Instant::now(), Vec::new());
    for line in BufReader::new(stderr).lines() {
        let line = line?;
        // A package's path is one word; all else is a complaint.
        if line.contains(' ') || line.starts_with('#') {
            trouble.push(line);
            continue;
        }
        built += 1;
        if terminal {
            eprint!("\rsetup: {name}: {built} of at most {packages} packages");
        } else if said.elapsed() > INTERVAL {
            said = Instant::now();
            eprintln!("setup: {name}: {built} of at most {packages} packages");
        }
    }
    if terminal && built > 0 {
        eprintln!();
    }
    let status = child.wait()?;
    ensure!(status.success(), "{name} does not build, {status}:\n{}", trouble.join("\n"));
    Ok(())
}

/// What a command prints on standard output; an error with what it says if it fails.
fn output(command: &mut Command) -> Result<String> {
    let output = command.output().context("cannot start go")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", process::describe(command), said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_requirement() {
        let go_mod = "\
module a.b/c

tool a.b/c/v2/cmd/d

require a.b/e v1.0.0

require (
\ta.b/c v0.1.0 // indirect
\ta.b/c/v2 v2.0.1 // indirect
)

replace a.b/f => a.b/f v0.3.0
";
        let cases = [
            ("a.b/c", Some("v0.1.0")),
            ("a.b/c/v2", Some("v2.0.1")),
            ("a.b/e", Some("v1.0.0")),
            ("a.b", None),
        ];
        for (module, expected) in cases {
            assert_eq!(version(go_mod, module), expected, "{module}");
        }
    }

    #[test]
    fn every_module_is_pinned() {
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/programs");
        for module in MODULES {
            let pinned = Pinned::read(&programs.join(module.family()), module.provider).unwrap();
            assert!(pinned.version.starts_with('v'), "{}", module.name);
        }
    }

    #[test]
    fn kubeadm_and_specs_are_of_the_kubernetes_that_clusters_run() {
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/programs");
        let pinned =
            |family| Pinned::read(&programs.join(family), KUBERNETES.provider).unwrap().version;
        for family in ["kind", UPSTREAM] {
            assert_eq!(pinned(family), pinned("kubernetes"), "{family}");
        }
    }

    #[test]
    fn clusters_elsewhere_need_helm_and_kubectl_alone() {
        let modules: Vec<_> =
            of(&[Purpose::Remote]).map(|module| (module.name, module.package())).collect();
        let kubectl = "k8s.io/kubernetes/cmd/kubectl";
        assert_eq!(modules, [("kubectl", kubectl.to_owned()), ("helm", "tool".to_owned())]);
        let go_mod = include_str!("../../../tests/programs/kubernetes/go.mod");
        assert!(go_mod.lines().any(|line| line.trim() == kubectl), "no tool of the family");
    }

    #[test]
    fn the_charts_take_the_oldest_kubernetes_that_clusters_run() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let source = root.join("tests/programs").join(OLDEST_KUBERNETES);
        let pinned = Pinned::read(&source, KUBERNETES.provider).unwrap().version;
        let minor = pinned.trim_start_matches('v').rsplit_once('.').unwrap().0;
        for chart in ["mcs-agent", "mcs-controller"] {
            let file = root.join("deploy/helm").join(chart).join("Chart.yaml");
            let text = fs::read_to_string(file).unwrap();
            let expected = format!("kubeVersion: \">={minor}.0-0\"");
            assert!(text.lines().any(|line| line == expected), "{chart} lacks {expected}");
        }
    }
}
