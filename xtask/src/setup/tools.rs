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

const PROGRAMS: &[Program] = {
    use Purpose::{Bench, Browser, Clusters, Demo, Kernels, Kind, Lint, Test};
    &[
        Program {
            name: "ip",
            package: "iproute2",
            version: &["-V"],
            purposes: &[Clusters, Demo, Test],
        },
        Program {
            name: "nsenter",
            package: "util-linux",
            version: &["-V"],
            purposes: &[Clusters, Demo, Test],
        },
        Program { name: "curl", package: "curl", version: &["-V"], purposes: &[Demo, Test] },
        Program { name: "python3", package: "python3", version: &["-V"], purposes: &[Test] },
        Program {
            name: "bpftool",
            package: "bpftool",
            version: &["version"],
            purposes: &[Demo, Test],
        },
        Program { name: "nc", package: "netcat-openbsd", version: &["-h"], purposes: &[Test] },
        Program { name: "dig", package: "dnsutils", version: &["-v"], purposes: &[Test] },
        Program { name: "tcpdump", package: "tcpdump", version: &["--version"], purposes: &[Test] },
        Program { name: "strace", package: "strace", version: &["-V"], purposes: &[Test] },
        Program { name: "tc", package: "iproute2", version: &["-V"], purposes: &[Test] },
        Program {
            name: "promtool",
            package: "prometheus",
            version: &["--version"],
            purposes: &[Test],
        },
        Program { name: "ethtool", package: "ethtool", version: &["--version"], purposes: &[Test] },
        Program {
            name: "nft",
            package: "nftables",
            version: &["--version"],
            purposes: &[Clusters, Test],
        },
        Program { name: "runc", package: "runc", version: &["--version"], purposes: &[Clusters] },
        Program {
            name: "iptables",
            package: "iptables",
            version: &["--version"],
            purposes: &[Clusters],
        },
        Program { name: "clang", package: "clang", version: &["--version"], purposes: &[Bench] },
        Program {
            name: "shellcheck",
            package: "shellcheck",
            version: &["--version"],
            purposes: &[Lint],
        },
        Program {
            name: "busybox",
            package: "busybox-static",
            version: &["--help"],
            purposes: &[Clusters],
        },
        Program {
            name: "qemu-system-x86_64",
            package: "qemu-system-x86",
            version: &["--version"],
            purposes: &[Kernels],
        },
        Program {
            name: "debootstrap",
            package: "debootstrap",
            version: &["--version"],
            purposes: &[Kind],
        },
        Program { name: "jq", package: "jq", version: &["--version"], purposes: &[Kind] },
        Program { name: "capsh", package: "libcap2-bin", version: &[], purposes: &[Kind] },
        Program {
            name: "chromium",
            package: "chromium",
            version: &["--version"],
            purposes: &[Browser],
        },
        Program { name: "depmod", package: "kmod", version: &[], purposes: &[Kernels] },
        Program { name: "modprobe", package: "kmod", version: &[], purposes: &[Kernels] },
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
