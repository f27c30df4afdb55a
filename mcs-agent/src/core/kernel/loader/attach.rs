//! Attaching the socket programs to a cgroup, by pinned links.

use std::{
    io,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
};

use aya::programs::{Program, ProgramError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{CgroupRoot, HOOKS, Hook, Pins};
use crate::core::kernel::bpf::{
    BpfObject, attach_to_cgroup, cgroup_link_info, open_link, update_link,
};

/// The attachment of a hook, according to the kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AttachedHook {
    /// The hook's name.
    pub name: String,
    /// The cgroup's id; `None` if no program of ours is attached, or its cgroup was removed.
    pub cgroup_id: Option<u64>,
    /// The program's id, as in `bpftool prog show id`.
    pub program_id: Option<u32>,
}

/// Why a program could not be attached.
#[derive(Debug, Error)]
pub enum AttachError {
    /// The program is not loaded, or bpf(2) made no link.
    #[error("cannot attach {hook} to the cgroup {cgroup}")]
    Attach {
        /// The hook.
        hook: &'static str,
        /// The cgroup.
        cgroup: PathBuf,
        /// What aya or the kernel said.
        source: ProgramError,
    },
    /// The link cannot be pinned, replaced or read.
    #[error("cannot {action} the link pinned at {pin}")]
    Link {
        /// What was tried.
        action: &'static str,
        /// Where.
        pin: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Makes `hook` run `program` at `cgroup`. It updates the link that this agent holds, or that an earlier one has
/// pinned. If there is none, or it is attached elsewhere, it makes a new one. Returns the link that the caller
/// pins and holds from now on; `None` if the caller keeps `held`.
///
/// An updated link keeps its place among programs of others. With a second link in a better place, both would run for a
/// moment, and a socket that connects then would lose its VIP: the second one finds a backend, as of a direct connection.
pub(super) fn attach(
    program: &Program,
    hook: &Hook,
    pins: &Pins,
    cgroup: &CgroupRoot,
    held: Option<&BpfObject>,
) -> Result<Option<BpfObject>, AttachError> {
    let pin = pins.link(hook.name);
    let link_error = |action| {
        let pin = pin.clone();
        move |source| AttachError::Link { action, pin, source }
    };
    let attach_error =
        |source| AttachError::Attach { hook: hook.name, cgroup: cgroup.path.clone(), source };
    let found = match held {
        Some(_) => None,
        None => open(&pin).map_err(link_error("open"))?,
    };
    if let Some(link) = held.or(found.as_ref())
        && is_attached(link, hook, cgroup).map_err(link_error("read"))?
    {
        let program = program.fd().map_err(attach_error)?.as_fd();
        update_link(link.as_fd(), program).map_err(link_error("update"))?;
        return Ok(found);
    }
    let program = program.fd().map_err(attach_error)?.as_fd();
    attach_to_cgroup(program, cgroup.directory.as_fd(), hook.attach_type, hook.translates())
        .and_then(BpfObject::of_link)
        .map(Some)
        .map_err(|error| attach_error(ProgramError::IOError(error)))
}

/// Whether a link is attached where it belongs.
pub(super) fn is_attached(link: &BpfObject, hook: &Hook, cgroup: &CgroupRoot) -> io::Result<bool> {
    let attach_type = hook.attach_type as u32;
    let info = cgroup_link_info(link.as_fd())?;
    Ok(info.is_some_and(|info| info.cgroup_id == cgroup.id && info.attach_type == attach_type))
}

/// The attachment of every hook.
pub(super) fn inspect(pins: &Pins) -> Result<Vec<AttachedHook>, AttachError> {
    HOOKS.iter().map(|hook| inspect_one(pins, hook)).collect()
}

fn inspect_one(pins: &Pins, hook: &Hook) -> Result<AttachedHook, AttachError> {
    let pin = pins.link(hook.name);
    let link_error = |source| AttachError::Link { action: "read", pin: pin.clone(), source };
    let info = match open(&pin).map_err(link_error)? {
        Some(link) => cgroup_link_info(link.as_fd()).map_err(link_error)?,
        None => None,
    };
    Ok(AttachedHook {
        name: hook.name.to_owned(),
        cgroup_id: info.map(|info| info.cgroup_id).filter(|id| *id != 0),
        program_id: info.map(|info| info.program_id),
    })
}

/// Opens the link that is pinned at a path; `None` if there is none.
fn open(pin: &Path) -> io::Result<Option<BpfObject>> {
    open_link(pin)?.map(BpfObject::of_link).transpose()
}
