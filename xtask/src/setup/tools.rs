//! The programs that the demonstration, the suites and the checks call.

use std::{path::Path, process::Command};

use super::{CARGO_DENY, Item, Purpose, Remedy, cargo_tool::CargoTool};
use crate::{
    process,
    workspace::{self, Workspace},
};

/// A file of the package debian-archive-keyring.
pub(crate) const DEBIAN_KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

struct Program {
    name: &'static str,
    package: &'static str,
    version: &'static [&'static str],
    purposes: &'static [Purpose],
}

/// `package`: of Debian. `version`: arguments that print the version; none if there are no such.
const fn program(
    name: &'static str,
    package: &'static str,
    version: &'static [&'static str],
    purposes: &'static [Purpose],
) -> Program {
    Program { name, package, version, purposes }
}

const PROGRAMS: &[Program] = {
    use Purpose::{
        Bench, Browser, Clusters, Cnis, Demo, Kernels, Kind, Lint, Servers, Test, Upstream,
    };
    &[
        program("ip", "iproute2", &["-V"], &[Clusters, Demo, Servers, Test]),
        program("nsenter", "util-linux", &["-V"], &[Clusters, Demo, Servers, Test]),
        program("curl", "curl", &["-V"], &[Demo, Test, Upstream]),
        program("wget", "wget", &["--version"], &[Upstream]),
        program("python3", "python3", &["-V"], &[Test]),
        program("bpftool", "bpftool", &["version"], &[Demo, Test]),
        program("nc", "netcat-openbsd", &["-h"], &[Test, Upstream]),
        program("dig", "dnsutils", &["-v"], &[Test, Upstream]),
        program("tcpdump", "tcpdump", &["--version"], &[Test]),
        program("strace", "strace", &["-V"], &[Test]),
        program("tc", "iproute2", &["-V"], &[Test]),
        program("promtool", "prometheus", &["--version"], &[Test]),
        program("ethtool", "ethtool", &["--version"], &[Test]),
        program("nft", "nftables", &["--version"], &[Clusters, Servers, Test]),
        program("runc", "runc", &["--version"], &[Clusters]),
        program("iptables", "iptables", &["--version"], &[Clusters, Servers]),
        program("clang", "clang", &["--version"], &[Bench]),
        program("clang-19", "clang-19", &["--version"], &[Cnis]),
        program("shellcheck", "shellcheck", &["--version"], &[Lint]),
        program("busybox", "busybox-static", &["--help"], &[Clusters]),
        program("qemu-system-x86_64", "qemu-system-x86", &["--version"], &[Kernels]),
        program("debootstrap", "debootstrap", &["--version"], &[Kind]),
        program("jq", "jq", &["--version"], &[Kind]),
        program("capsh", "libcap2-bin", &[], &[Kind]),
        program("chromium", "chromium", &["--version"], &[Browser]),
        program("depmod", "kmod", &[], &[Kernels]),
        program("modprobe", "kmod", &[], &[Kernels]),
    ]
};

/// The programs of `purposes`.
pub(super) fn programs(purposes: &[Purpose]) -> impl Iterator<Item = Item> {
    let wanted = |program: &&Program| program.purposes.iter().any(|p| purposes.contains(p));
    PROGRAMS.iter().filter(wanted).map(|program| Item {
        name: program.name,
        found: process::find(program.name),
        version: program.version,
        remedy: Remedy::Apt(program.package),
    })
}

/// What Debian's archive is signed with.
pub(super) fn debian_keyring() -> Item {
    let file = Path::new(DEBIAN_KEYRING);
    Item {
        name: "Debian's archive keys",
        found: file.exists().then(|| file.to_owned()),
        version: &[],
        remedy: Remedy::Apt("debian-archive-keyring"),
    }
}

/// A Docker that answers, or a daemon to start.
pub(super) fn docker() -> Item {
    let answered = Command::new("docker").arg("info").output();
    let answers = answered.is_ok_and(|output| output.status.success());
    Item {
        name: "docker",
        found: process::find(if answers { "docker" } else { "dockerd" }),
        version: &["--version"],
        remedy: Remedy::Apt("docker.io"),
    }
}

/// What checks the user-space crates.
pub(super) fn lint(workspace: &Workspace) -> impl Iterator<Item = Item> {
    let components = [("cargo-fmt", "rustfmt"), ("cargo-clippy", "clippy")];
    let components = components.into_iter().map(|(program, component)| Item {
        name: program,
        found: workspace::beside_cargo(program),
        version: &["--version"],
        remedy: Remedy::RustupComponent { component, toolchain: None },
    });
    components.chain([from_crates_io(workspace, &CARGO_DENY)])
}

/// A program of [`CargoTool`].
pub(super) fn from_crates_io(workspace: &Workspace, tool: &'static CargoTool) -> Item {
    Item {
        name: tool.name,
        found: tool.find(workspace),
        version: &["--version"],
        remedy: Remedy::CargoInstall(tool),
    }
}
