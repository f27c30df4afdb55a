//! The capabilities that the agent needs.

use rustix::{
    io,
    thread::{CapabilitySet, capabilities},
};
use thiserror::Error;

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
    Unknown(#[from] io::Errno),
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
