//! The programs of the packet path on network devices: by tcx, whose links are pinned, or by
//! filters on a clsact qdisc, which stay by themselves and are found again by their name.

mod attacher;
mod classifiers;
mod clsact;
mod hook;
mod pins;
mod tcx;

use std::{fmt, io};

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use attacher::{
    AttachOutcome, AttachedProgram, DetachOutcome, DevicePrograms, TcAttacher, detach_all,
};
pub use classifiers::Classifiers;
pub use hook::TcHook;
pub use pins::TcLink;

pub(super) use pins::TcPins;

use crate::core::kernel::netlink::NetlinkError;

/// How programs are attached to devices.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mechanism {
    /// Links of tcx (Linux 6.6).
    Tcx,
    /// Filters on a clsact qdisc.
    Clsact,
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        })
    }
}

/// Why a program cannot be attached to a device, or detached.
#[derive(Debug, Error)]
pub enum TcError {
    /// A call of bpf(2), or of bpffs, failed.
    #[error("cannot {action}")]
    Bpf {
        /// The attempt.
        action: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A netlink request failed.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// An ingress qdisc has the place of clsact.
    #[error(
        "an ingress qdisc is where clsact would have to be: remove it (tc qdisc del dev DEVICE \
         ingress), or use --tc-attach=tcx (Linux 6.6)"
    )]
    IngressQdisc,
    /// Filters of another kind have every priority.
    #[error("no priority is left for {hook} among the {direction} filters")]
    NoPriority {
        /// The program.
        hook: &'static str,
        /// The side of the device.
        direction: &'static str,
    },
    /// The kernel refuses the program.
    #[error(
        "the kernel does not take the program {program} that the device needs ({said}): the agent's log has the verifier's \
         words, and --tc-devices=!DEVICE leaves a pod's device alone"
    )]
    Refused {
        /// The program.
        program: &'static str,
        /// What the kernel said.
        said: String,
    },
    /// There is no such program.
    #[error("no program {program} can be loaded")]
    NotLoaded {
        /// Its name.
        program: &'static str,
    },
}

impl TcError {
    fn bpf(action: impl Into<String>, source: io::Error) -> Self {
        Self::Bpf { action: action.into(), source }
    }

    /// Whether the device is gone.
    pub fn is_no_device(&self) -> bool {
        match self {
            Self::Bpf { source, .. } => source.raw_os_error() == Some(libc::ENODEV),
            Self::Netlink(error) => error.is_no_device(),
            _ => false,
        }
    }
}
