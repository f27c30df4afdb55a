use bytemuck::{Pod, Zeroable};

/// Value of the array `services`: whose frontend it is.
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

/// Value of the array `clusters`: a source cluster's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct ClusterRecord {
    /// A label value (at most 63 bytes), then zeros.
    pub name: [i8; 64],
}

const _: () = assert!(size_of::<ClusterRecord>() == 64);
crate::pod!(ClusterRecord);

/// Value of the array `run`: the agent that holds this directory, and where it writes its status.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct RunRecord {
    /// The agent's run directory, an absolute path, then zeros.
    pub directory: [i8; 192],
    /// The host name the agent saw (at most 64 bytes, `HOST_NAME_MAX`), then zeros.
    pub host: [i8; 72],
    /// The agent's process id, in its own PID namespace.
    pub pid: u64,
}

const _: () = assert!(size_of::<RunRecord>() == 272);
crate::pod!(RunRecord);

/// Text as the records hold it: signed bytes (what the BTF calls `char`) up to the first zero.
///
/// The last byte is always zero; text that does not fit is cut there.
#[must_use]
pub fn text<const N: usize>(from: &str) -> [i8; N] {
    let mut to = [0; N];
    for (to, from) in to.iter_mut().take(N.saturating_sub(1)).zip(from.bytes()) {
        *to = from.cast_signed();
    }
    to
}
