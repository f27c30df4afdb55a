//! What the agent needs and can do without: its capabilities, and features of this kernel.

use std::{fs, io, path::Path};

use aya::{
    programs::ProgramType,
    sys::{BpfHelper, is_helper_supported},
};
use aya_obj::generated::bpf_attach_type;
use rustix::{
    system::uname,
    thread::{CapabilitySet, capabilities},
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::core::kernel::bpf::{own_netns_cookie, query_tcx};

/// The features of this kernel, found by trying.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "a kernel has each feature or not")]
pub struct Features {
    /// A refused system call can say ECONNREFUSED (`bpf_set_retval`, 5.18); else it says EPERM.
    pub set_retval: bool,
    /// Programs can be attached to devices by links (tcx, 6.6); else by filters on a clsact qdisc.
    pub tcx: bool,
    /// A process can ask for the cookie of its network namespace (`SO_NETNS_COOKIE`, 5.14); else the programs cannot
    /// translate the sockets of the host alone.
    #[serde(default)]
    pub netns_cookie: bool,
    /// Maps are charged to the cgroup of their maker (5.11); else to the locked memory of a process.
    #[serde(default)]
    pub memory_cgroups: bool,
    /// Programs can ask for the time of the latest tick (`bpf_ktime_get_coarse_ns`, 5.11); else packets of flows read
    /// the clock.
    #[serde(default)]
    pub coarse_clock: bool,
    /// Programs at tracepoints can ask for the cookie of a socket (5.12, with BTF); else passive health sees flows alone.
    #[serde(default)]
    pub socket_tracepoints: bool,
    /// A packet program can run on a CPU while another one waits there, so each task has its own working memory
    /// (`PREEMPT_RT`, 6.18).
    #[serde(default, rename = "interrupts_packets")]
    pub preempts_packets: bool,
}

impl Features {
    /// The features of a kernel that lacks none.
    #[cfg(test)]
    pub(crate) const ALL: Self = Self {
        set_retval: true,
        tcx: true,
        netns_cookie: true,
        memory_cgroups: true,
        coarse_clock: true,
        socket_tracepoints: true,
        preempts_packets: false,
    };

    /// Tries each feature.
    pub fn probe() -> io::Result<Self> {
        Ok(Self {
            set_retval: has_set_retval()?,
            tcx: has_tcx()?,
            netns_cookie: own_netns_cookie().is_ok(),
            memory_cgroups: has_memory_cgroups()?,
            coarse_clock: has_coarse_clock()?,
            socket_tracepoints: numbers(&uname().release().to_string_lossy()) >= (5, 12)
                && Path::new("/sys/kernel/btf/vmlinux").exists(),
            preempts_packets: preempts_packets(
                Path::new("/sys"),
                &uname().release().to_string_lossy(),
                &uname().version().to_string_lossy(),
            ),
        })
    }

    /// The features that this kernel lacks, each with what the agent does instead.
    pub fn fallbacks(self) -> Vec<&'static str> {
        let fallbacks = [
            (self.set_retval, "bpf_set_retval (refused system calls say EPERM)"),
            (self.tcx, "tcx (devices have filters on a clsact qdisc)"),
            (self.netns_cookie, "SO_NETNS_COOKIE (no --socket-lb=host)"),
            (self.memory_cgroups, "memory cgroups of maps (they count as locked memory)"),
            (self.coarse_clock, "bpf_ktime_get_coarse_ns (packets of flows read the clock)"),
            (
                self.socket_tracepoints,
                "socket cookies at tracepoints (passive health sees no sockets)",
            ),
        ];
        fallbacks.into_iter().filter(|(has, _)| !has).map(|(_, fallback)| fallback).collect()
    }
}

/// Whether bottom halves run concurrently on one CPU: with `PREEMPT_RT`, since 6.18 has dropped the lock that serialised
/// them. A kernel with `PREEMPT_RT_NEEDS_BH_LOCK` still has that lock, but does not show it.
fn preempts_packets(sysfs: &Path, release: &str, version: &str) -> bool {
    let is_realtime = version.contains("PREEMPT_RT")
        || fs::read_to_string(sysfs.join("kernel/realtime")).is_ok_and(|text| text.trim() == "1");
    is_realtime && numbers(release) >= (6, 18)
}

/// The first two numbers of a release; 0 for a missing one.
fn numbers(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let mut number = || numbers.next().and_then(Result::ok).unwrap_or_default();
    (number(), number())
}

fn has_set_retval() -> io::Result<bool> {
    can_call(BpfHelper::BPF_FUNC_set_retval)
}

/// Tries a helper of the same release, since no call shows how maps are charged.
fn has_memory_cgroups() -> io::Result<bool> {
    has_coarse_clock()
}

fn has_coarse_clock() -> io::Result<bool> {
    can_call(BpfHelper::BPF_FUNC_ktime_get_coarse_ns)
}

/// Whether programs of the socket path can call a helper.
fn can_call(helper: BpfHelper) -> io::Result<bool> {
    is_helper_supported(ProgramType::CgroupSockAddr, helper).map_err(io::Error::other)
}

/// Asks for the programs of the loopback device, whose index is 1 in every network namespace.
fn has_tcx() -> io::Result<bool> {
    const LOOPBACK: u32 = 1;
    match query_tcx(LOOPBACK, bpf_attach_type::BPF_TCX_INGRESS) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The capabilities that loading and attaching take on Linux 5.10 and newer, each with another one that includes
/// it.
const NEEDED: [(&str, CapabilitySet, CapabilitySet); 3] = [
    ("CAP_BPF", CapabilitySet::BPF, CapabilitySet::SYS_ADMIN),
    ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN, CapabilitySet::empty()),
    ("CAP_PERFMON", CapabilitySet::PERFMON, CapabilitySet::SYS_ADMIN),
];

/// Why this process cannot load and attach programs.
#[derive(Debug, Error)]
pub enum CapabilityError {
    /// Some capabilities are missing.
    #[error(
        "this process lacks {0}, without which programs cannot be loaded and attached: run it as \
         root, or in a container with BPF, NET_ADMIN and PERFMON among its added capabilities"
    )]
    Missing(String),
    /// The kernel does not return the capabilities.
    #[error("cannot read the capabilities of this process")]
    Unknown(#[from] rustix::io::Errno),
}

/// Fails if this process lacks a capability. Without this check the kernel would only return EPERM, or a log of the
/// verifier.
pub fn ensure_capable() -> Result<(), CapabilityError> {
    let missing = missing(capabilities(None)?.effective);
    if missing.is_empty() { Ok(()) } else { Err(CapabilityError::Missing(missing.join(", "))) }
}

fn missing(held: CapabilitySet) -> Vec<&'static str> {
    let lacks = |needed: &&(_, CapabilitySet, CapabilitySet)| !held.intersects(needed.1 | needed.2);
    NEEDED.iter().filter(lacks).map(|(name, ..)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_realtime_kernel_without_the_lock_is_known() {
        let with = |realtime: Option<&str>, release, version| {
            let sysfs = tempfile::tempdir().unwrap();
            fs::create_dir(sysfs.path().join("kernel")).unwrap();
            if let Some(realtime) = realtime {
                fs::write(sysfs.path().join("kernel/realtime"), realtime).unwrap();
            }
            preempts_packets(sysfs.path(), release, version)
        };
        assert!(with(None, "6.18.0-rt1-amd64", "#1 SMP PREEMPT_RT Debian 6.18.3-1 (2026-01-02)"));
        assert!(with(Some("1\n"), "7.2.1", "#1 SMP"));
        // The lock, or no realtime kernel.
        assert!(!with(Some("1\n"), "6.12.48-rt", "#1 SMP PREEMPT_RT"));
        assert!(!with(None, "6.18.44", "#1 SMP PREEMPT_DYNAMIC @0"));
        assert!(!with(Some("0\n"), "6.18.44", "#1 SMP PREEMPT_DYNAMIC @0"));
        assert!(!with(Some("1\n"), "unknown", ""));
    }

    #[test]
    fn what_is_lacking_is_told() {
        assert!(Features::ALL.fallbacks().is_empty());
        let fallbacks = Features { tcx: false, ..Features::ALL }.fallbacks();
        assert_eq!(fallbacks, ["tcx (devices have filters on a clsact qdisc)"]);
    }

    #[test]
    fn what_is_missing_is_named() {
        type Set = CapabilitySet;
        let cases = [
            (Set::all(), vec![]),
            (Set::BPF | Set::NET_ADMIN | Set::PERFMON, vec![]),
            (Set::SYS_ADMIN | Set::NET_ADMIN, vec![]),
            (Set::NET_ADMIN | Set::PERFMON, vec!["CAP_BPF"]),
            (Set::BPF | Set::SYS_ADMIN, vec!["CAP_NET_ADMIN"]),
            (Set::BPF | Set::NET_ADMIN, vec!["CAP_PERFMON"]),
            (Set::NET_RAW, vec!["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"]),
        ];
        for (held, expected) in cases {
            assert_eq!(missing(held), expected, "{held:?}");
        }
    }
}
