//! Compilers for BPF.
//!
//! Compiling for BPF takes a `core` for that target. rustup's nightly makes one from rust-src with `-Z build-std`;
//! Debian's rustc-web comes with one.

use std::{
    cmp::Reverse,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{Item, Remedy};
use crate::{process, version::Version};

/// The target triple of eBPF objects for this machine's kernel.
pub(super) const TARGET: &str =
    if cfg!(target_endian = "big") { "bpfeb-unknown-none" } else { "bpfel-unknown-none" };

const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_LIBRARIES: &str = "/usr/lib/rustlib";

/// A compiler for BPF.
pub(super) struct Compiler {
    pub(super) source: Source,
    pub(super) rustc: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A rustup toolchain, by name.
    Nightly(String),
    Debian,
}

impl Compiler {
    /// Where Debian's compiler is, or will be once it is installed.
    pub(super) fn debian() -> Self {
        Self { source: Source::Debian, rustc: PathBuf::from(DEBIAN_RUSTC) }
    }

    /// Debian's compiler, if it is here with `core` for BPF.
    pub(super) fn debian_complete() -> Option<Self> {
        debian_items().iter().all(|item| item.found.is_some()).then(Self::debian)
    }

    /// Each nightly under `rustup_home` that has rust-src, the undated one first, then the newest.
    pub(super) fn nightlies(rustup_home: &Path) -> Vec<Self> {
        let toolchains = fs::read_dir(rustup_home.join("toolchains")).into_iter().flatten();
        let mut names: Vec<_> = toolchains
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.starts_with("nightly"))
            .collect();
        names.sort_unstable_by_key(|name| Reverse(name.clone()));
        names.into_iter().filter_map(|name| Self::nightly(rustup_home, name)).collect()
    }

    /// A nightly without rust-src can be installed too, so its name alone proves nothing.
    fn nightly(rustup_home: &Path, name: String) -> Option<Self> {
        let sysroot = rustup_home.join("toolchains").join(&name);
        let has_source = sysroot.join("lib/rustlib/src/rust/library").is_dir();
        let rustc = sysroot.join("bin/rustc");
        has_source.then_some(Self { source: Source::Nightly(name), rustc })
    }

    /// `program` of the same toolchain.
    pub(super) fn companion(&self, program: &str) -> PathBuf {
        self.rustc.with_file_name(program)
    }

    /// The major version of the compiler's LLVM; a linker built with an older one can't read its output.
    pub(super) fn llvm(&self) -> Option<u32> {
        let text = process::printed(Command::new(&self.rustc).arg("-vV")).ok()?;
        let version = text.lines().find_map(|line| line.strip_prefix("LLVM version:"))?;
        Some(Version::find(version)?.major())
    }

    pub(super) fn item(&self) -> Item {
        rustc_item(Some(self.rustc.clone()))
    }

    /// The linter that goes with this compiler.
    pub(super) fn clippy(&self) -> Item {
        let program = self.companion("cargo-clippy");
        let found = process::is_executable(&program).then_some(program);
        let remedy = match &self.source {
            Source::Nightly(name) => {
                Remedy::RustupComponent { component: "clippy", toolchain: Some(name.clone()) }
            }
            Source::Debian => Remedy::Apt("rust-web-clippy"),
        };
        Item { name: "clippy for BPF", found, version: &["--version"], remedy }
    }
}

/// What makes Debian's compiler one for BPF.
pub(super) fn debian_items() -> [Item; 2] {
    let core = Item {
        name: "core for BPF",
        found: debian_core(),
        version: &[],
        remedy: Remedy::Apt("libstd-rust-web-dev-bpf"),
    };
    [rustc_item(debian_rustc()), core]
}

fn rustc_item(found: Option<PathBuf>) -> Item {
    let remedy = Remedy::Apt("rustc-web");
    Item { name: "rustc for BPF", found, version: &["--version"], remedy }
}

/// Debian's compiler, if it is recent enough for this workspace.
fn debian_rustc() -> Option<PathBuf> {
    let version = Version::ask(Command::new(DEBIAN_RUSTC).arg("--version"))?;
    let wanted = Version::find(env!("CARGO_PKG_RUST_VERSION"))?;
    (version >= wanted).then(|| PathBuf::from(DEBIAN_RUSTC))
}

fn debian_core() -> Option<PathBuf> {
    let directory = Path::new(DEBIAN_LIBRARIES).join(TARGET);
    directory.is_dir().then_some(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nightly_counts_only_with_its_source() {
        let home = tempfile::tempdir().unwrap();
        let names = [
            "nightly-2026-08-01-x86_64-unknown-linux-gnu",
            "nightly-2026-10-01-x86_64-unknown-linux-gnu",
            "nightly-x86_64-unknown-linux-gnu",
            "stable-x86_64-unknown-linux-gnu",
        ];
        for name in names {
            let source = "lib/rustlib/src/rust/library";
            fs::create_dir_all(home.path().join("toolchains").join(name).join(source)).unwrap();
        }
        let bare = "toolchains/nightly-2026-11-01-x86_64-unknown-linux-gnu/bin";
        fs::create_dir_all(home.path().join(bare)).unwrap();

        let found = Compiler::nightlies(home.path());
        let found: Vec<_> = found.into_iter().map(|compiler| compiler.source).collect();
        let expected = [names[2], names[1], names[0]];
        assert_eq!(found, expected.map(|name| Source::Nightly(name.to_owned())));
    }

    #[test]
    fn without_rustup_there_is_no_nightly() {
        let home = tempfile::tempdir().unwrap();
        assert!(Compiler::nightlies(home.path()).is_empty());
    }
}
