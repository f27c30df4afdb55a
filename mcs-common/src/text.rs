//! Text in maps, for the command line and bpftool: names of services and clusters, and the running agent.

use bytemuck::{Pod, Zeroable};

/// Value of the array `services`: the ServiceImport that frontends belong to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct ServiceRecord {
    /// A DNS label (at most 63 bytes), then zeros.
    pub namespace: [i8; 64],
    /// A DNS label (at most 63 bytes), then zeros.
    pub name: [i8; 64],
}

const _: () = assert!(size_of::<ServiceRecord>() == 128);
crate::pod!(ServiceRecord);

/// Value of the array `clusters`: the name of a source cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct ClusterRecord {
    /// The name, or its end and a hash if it is longer than 63 bytes, then zeros.
    pub name: [i8; 64],
}

const _: () = assert!(size_of::<ClusterRecord>() == 64);
crate::pod!(ClusterRecord);

/// Value of the array `run`: the running agent, and the directory of its status.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct RunRecord {
    /// The agent's run directory, an absolute path, then zeros.
    pub directory: [i8; 192],
    /// The host name in the agent's UTS namespace (at most 64 bytes, `HOST_NAME_MAX`), then zeros.
    pub host: [i8; 72],
    /// The agent's process id, in its own PID namespace.
    pub pid: u64,
    /// 1 if the agent keeps the pinned `hints` right, else 0. The value of versions without `hints` ends before this.
    pub keeps_hints: u64,
    /// 1 if the programs of the agent keep the slots of sockets right, else 0, as with `--socket-lb=off`. The value of
    /// versions without slots ends before this.
    pub keeps_slots: u64,
}

const _: () = assert!(size_of::<RunRecord>() == 288);
crate::pod!(RunRecord);

/// Converts text for a record: signed bytes (`char` in BTF), followed by zeros.
///
/// The last byte is always zero. Longer text is cut.
#[must_use]
pub fn text<const N: usize>(from: &str) -> [i8; N] {
    let mut to = [0; N];
    for (to, from) in to.iter_mut().take(N.saturating_sub(1)).zip(from.bytes()) {
        *to = from.cast_signed();
    }
    to
}
