//! Installing what is missing.

use std::{
    collections::BTreeSet,
    fmt,
    io::{self, IsTerminal as _, Write as _},
    panic,
    process::Command,
    thread,
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};

use super::{cargo_tool::CargoTool, go, go_module::GoModule, kernel::Source};
use crate::{process, workspace::Workspace};

/// How something missing gets here.
pub(super) enum Remedy {
    /// A package of Debian or Ubuntu.
    Apt(&'static str),
    /// A program from crates.io.
    CargoInstall(&'static CargoTool),
    /// A Go that is recent enough, by one that need not be.
    GoToolchain,
    /// Programs from the Go module proxy.
    GoBuild(&'static GoModule),
    /// A kernel of Debian's or Ubuntu's, unpacked and not installed.
    Kernel(&'static Source),
    /// A component of a rustup toolchain, by default of the one that runs xtask.
    RustupComponent { component: &'static str, toolchain: Option<String> },
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apt(package) => write!(f, "package {package}"),
            Self::CargoInstall(tool) => write!(f, "cargo install {}", tool.name),
            Self::GoToolchain => f.write_str("module golang.org/toolchain"),
            Self::GoBuild(module) => write!(f, "go build in tests/programs/{}", module.family()),
            Self::Kernel(source) => write!(f, "a package of {}", source.suite()),
            Self::RustupComponent { component, .. } => write!(f, "rustup component {component}"),
        }
    }
}

/// Applies every remedy: packages first and together, because the others build on them; these side by side.
pub(super) fn apply(workspace: &Workspace, remedies: &[&Remedy]) -> Result<()> {
    let package = |remedy: &&Remedy| match remedy {
        Remedy::Apt(package) => Some(*package),
        _ => None,
    };
    let packages: BTreeSet<_> = remedies.iter().filter_map(package).collect();
    if !packages.is_empty() {
        apt(&packages.into_iter().collect::<Vec<_>>())?;
    }
    // Each of these waits for downloads and for one CPU, for most of its time.
    let by_cargo = |remedy: &Remedy| {
        matches!(remedy, Remedy::CargoInstall(_) | Remedy::RustupComponent { .. })
    };
    let by_go = |remedy: &Remedy| matches!(remedy, Remedy::GoToolchain | Remedy::GoBuild(_));
    let kernels = |remedy: &Remedy| matches!(remedy, Remedy::Kernel(_));
    let install = |of: &dyn Fn(&Remedy) -> bool| -> Result<()> {
        let mut remedies = remedies.iter().filter(|remedy| of(remedy));
        remedies.try_for_each(|remedy| {
            let start = Instant::now();
            remedy.apply(workspace)?;
            eprintln!("setup: {remedy}: {} s", start.elapsed().as_secs());
            Ok(())
        })
    };
    thread::scope(|scope| {
        let threads = [
            scope.spawn(|| install(&by_cargo)),
            scope.spawn(|| install(&by_go)),
            scope.spawn(|| install(&kernels)),
        ];
        let ended =
            threads.map(|thread| thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic)));
        ended.into_iter().collect()
    })
}

impl Remedy {
    /// Installs it, unless it is a package.
    fn apply(&self, workspace: &Workspace) -> Result<()> {
        match self {
            Self::Apt(_) => Ok(()),
            Self::CargoInstall(tool) => tool.install(workspace),
            Self::GoToolchain => go::install(workspace),
            Self::GoBuild(module) => module.install(workspace),
            Self::Kernel(source) => source.install(workspace),
            Self::RustupComponent { component, toolchain } => {
                rustup(component, toolchain.as_deref())
            }
        }
    }
}

fn rustup(component: &str, toolchain: Option<&str>) -> Result<()> {
    eprintln!("setup: adding rustup component {component}");
    let mut add = Command::new("rustup");
    add.args(["component", "add", component]);
    add.args(toolchain.map(|name| ["--toolchain", name]).into_iter().flatten());
    process::run(&mut add)
}

fn apt(packages: &[&str]) -> Result<()> {
    let list = packages.join(" ");
    ensure!(
        process::find("apt-get").is_some(),
        "packages are missing, and there is no apt-get to install them: {list}. Without Debian's compiler the eBPF \
         programs need a rustup nightly (`rustup toolchain install nightly --component rust-src`) and bpf-linker 0.13 \
         or newer on PATH; of the other packages, install the equivalent",
    );
    let terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
    eprintln!("setup: packages to install with apt-get: {list}");
    if terminal && !agreed()? {
        bail!("not installed: {list}");
    }
    let get = Privilege::find(terminal).with_context(|| {
        format!("installing packages takes root, and there is no sudo: as root, run apt-get install {list}")
    })?;
    // A broken third-party source fails the update, and often matters to none of these packages.
    if let Err(error) = process::run(get.command().args(["update", "--quiet=2"])) {
        eprintln!("setup: going on although the package lists may be old: {error:#}");
    }
    let install = ["install", "--quiet", "--yes", "--no-install-recommends"];
    process::run(get.command().args(install).args(packages)).context(
        "apt-get failed; the eBPF compiler, rustc-web 1.95 or newer, is in Debian 12's security updates",
    )
}

fn agreed() -> Result<bool> {
    eprint!("Install them now? [Y/n] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(is_yes(&answer))
}

/// An empty line agrees; the end of the input does not.
fn is_yes(answer: &str) -> bool {
    matches!(answer.to_lowercase().as_str(), "\n" | "y\n" | "yes\n")
}

/// How apt-get becomes root.
enum Privilege {
    Root,
    Sudo { may_ask: bool },
}

impl Privilege {
    fn find(terminal: bool) -> Option<Self> {
        if rustix::process::geteuid().is_root() {
            return Some(Self::Root);
        }
        process::find("sudo").map(|_| Self::Sudo { may_ask: terminal })
    }

    fn command(&self) -> Command {
        let mut command = match self {
            Self::Root => Command::new("env"),
            Self::Sudo { may_ask } => {
                let mut sudo = Command::new("sudo");
                sudo.args((!may_ask).then_some("--non-interactive")).arg("env");
                sudo
            }
        };
        command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_line_or_a_yes_agrees() {
        for yes in ["\n", "y\n", "Y\n", "yes\n"] {
            assert!(is_yes(yes), "{yes:?}");
        }
        for no in ["", "n\n", "no\n", "what?\n"] {
            assert!(!is_yes(no), "{no:?}");
        }
    }
}
