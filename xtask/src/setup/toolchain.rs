//! The toolchain of the eBPF programs: a compiler for BPF, a linker that goes with it, and how to call them.

use std::{
    env, iter,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    Item, Remedy,
    cargo_tool::{BPF_LINKER, LLVM},
    compiler::{self, Compiler, Source, TARGET},
};
use crate::workspace::{self, Workspace};

/// Variables of the user's and of cargo's that are about user space.
const FOR_USER_SPACE: &[&str] = &[
    "CARGO_BUILD_",
    "CARGO_ENCODED_",
    "CARGO_INCREMENTAL",
    "CARGO_PROFILE_",
    "CARGO_TARGET_",
    "CARGO_UNSTABLE_",
    "RUSTC",
    "RUSTDOC",
    "RUSTFLAGS",
    "RUSTUP_TOOLCHAIN",
];

/// Packages that building bpf-linker takes, and a file by which each is known.
const LINKER_PACKAGES: &[(&str, &str)] = &[
    ("llvm-22-dev", "/usr/lib/llvm-22/bin/llvm-config"),
    ("libpolly-22-dev", "/usr/lib/llvm-22/lib/libPolly.a"),
    ("zlib1g-dev", "/usr/include/zlib.h"),
    ("libzstd-dev", "/usr/include/zstd.h"),
    ("g++", "/usr/bin/g++"),
];

/// A compiler for BPF and its linker.
pub(crate) struct Toolchain {
    compiler: Compiler,
    linker: PathBuf,
}

impl Toolchain {
    /// A nightly, if a linker for it is here too, else Debian's compiler.
    pub(crate) fn find(workspace: &Workspace) -> Option<Self> {
        let nightlies = workspace::rustup_home().map(|home| Compiler::nightlies(&home));
        let debian = iter::once_with(Compiler::debian_complete).flatten();
        nightlies.into_iter().flatten().chain(debian).find_map(|compiler| {
            let linker = linker_of(&compiler, workspace)?;
            Some(Self { compiler, linker })
        })
    }

    /// `cargo SUBCOMMAND` (of build, clippy and doc) for crates that are compiled for BPF.
    ///
    /// It uses a separate target directory, because another compiler invalidates the contents of the usual one,
    /// and the release profile, because the verifier refuses unoptimised programs.
    pub(crate) fn cargo(&self, workspace: &Workspace, subcommand: &str) -> Command {
        self.cargo_for(env::consts::ARCH, workspace, subcommand)
    }

    /// The same for kernels of an architecture.
    pub(crate) fn cargo_for(
        &self,
        architecture: &str,
        workspace: &Workspace,
        subcommand: &str,
    ) -> Command {
        let compiler = &self.compiler;
        let cargo = match compiler.source {
            Source::Nightly(_) => compiler.companion("cargo"),
            Source::Debian => workspace::cargo(),
        };
        // rustup's cargo would start the clippy of rustup's toolchain.
        let mut command = match subcommand {
            "clippy" => Command::new(compiler.companion("cargo-clippy")),
            _ => Command::new(&cargo),
        };
        workspace.enter(&mut command);
        workspace::remove_env(&mut command, FOR_USER_SPACE);
        command.env("CARGO", cargo);
        command.env("RUSTC", &compiler.rustc);
        command.env("RUSTDOC", compiler.companion("rustdoc"));
        command.env("CARGO_ENCODED_RUSTFLAGS", self.flags(architecture, workspace));
        command.args([subcommand, "--release", "--target", TARGET, "--target-dir"]);
        command.arg(directory_for(architecture, workspace));
        match compiler.source {
            Source::Nightly(_) => command.args(["-Z", "build-std=core"]),
            // For the one unstable feature of aya-ebpf.
            Source::Debian => command.env("RUSTC_BOOTSTRAP", "1"),
        };
        command
    }

    /// Advice if building for BPF fails.
    pub(crate) fn suspicion(&self) -> String {
        format!(
            "the eBPF programs do not build (if bpf-linker rejects its input: {} may be built with an older LLVM than {})",
            self.linker.display(),
            self.compiler.rustc.display(),
        )
    }

    fn flags(&self, architecture: &str, workspace: &Workspace) -> String {
        // bpf-linker derives BTF from the debug information, paths of sources included.
        let flags = [
            format!("-Clinker={}", self.linker.display()),
            format!("--cfg=bpf_target_arch=\"{architecture}\""),
            "-Cdebuginfo=2".to_owned(),
            "-Clink-arg=--btf".to_owned(),
        ];
        flags.into_iter().chain(workspace.remapping()).collect::<Vec<_>>().join("\x1f")
    }
}

/// The target directory of what is compiled for BPF.
pub(crate) fn directory(workspace: &Workspace) -> PathBuf {
    workspace.target.join("ebpf")
}

/// The same for kernels of an architecture: another value of a flag makes cargo compile everything again.
fn directory_for(architecture: &str, workspace: &Workspace) -> PathBuf {
    match architecture {
        env::consts::ARCH => directory(workspace),
        other => workspace.target.join(format!("ebpf-{other}")),
    }
}

/// The directory that [`Toolchain::cargo_for`] leaves programs in.
pub(crate) fn output_for(architecture: &str, workspace: &Workspace) -> PathBuf {
    directory_for(architecture, workspace).join(TARGET).join("release")
}

/// The directory that [`Toolchain::cargo`] leaves programs in.
pub(crate) fn output(workspace: &Workspace) -> PathBuf {
    output_for(env::consts::ARCH, workspace)
}

/// What building for BPF needs, and linting if `lint`.
pub(super) fn items(workspace: &Workspace, lint: bool) -> Vec<Item> {
    let (compiler, mut items) = match Toolchain::find(workspace) {
        Some(Toolchain { compiler, linker }) => {
            let items = vec![compiler.item(), linker_item(Some(linker))];
            (compiler, items)
        }
        None => (Compiler::debian(), missing_parts(workspace)),
    };
    items.extend(lint.then(|| compiler.clippy()));
    items
}

/// Debian's toolchain, of which something is missing.
fn missing_parts(workspace: &Workspace) -> Vec<Item> {
    let linker = BPF_LINKER.find(workspace);
    let packages = if linker.is_some() { &[] } else { LINKER_PACKAGES };
    let packages = packages.iter().map(|&(package, file)| Item {
        name: package,
        found: Some(PathBuf::from(file)).filter(|file| Path::exists(file)),
        version: &[],
        remedy: Remedy::Apt(package),
    });
    compiler::debian_items().into_iter().chain(packages).chain([linker_item(linker)]).collect()
}

fn linker_item(found: Option<PathBuf>) -> Item {
    let remedy = Remedy::CargoInstall(&BPF_LINKER);
    Item { name: "bpf-linker", found, version: &["--version"], remedy }
}

/// The linker in the cache where it can read the compiler's output, else one on `PATH`.
fn linker_of(compiler: &Compiler, workspace: &Workspace) -> Option<PathBuf> {
    let readable = match compiler.source {
        Source::Nightly(_) => compiler.llvm().is_some_and(|llvm| llvm <= LLVM),
        Source::Debian => true,
    };
    let cached = BPF_LINKER.cached(workspace).filter(|_| readable);
    cached.or_else(|| BPF_LINKER.on_path())
}
