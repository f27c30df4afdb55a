use std::{
    fs, io,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
};

use aya::programs::{CgroupAttachMode, CgroupSockAddr, ProgramError, links::FdLink};
use aya_obj::generated::bpf_attach_type;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{CgroupRoot, HOOKS, Hook, Pins, pins::remove_file, sys};

/// A hook as the kernel tells it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AttachedHook {
    /// The hook's name.
    pub name: String,
    /// The cgroup's id, or `None` when nothing of ours is attached (or its cgroup is gone).
    pub cgroup_id: Option<u64>,
    /// The program's id, as in `bpftool prog show id`.
    pub program_id: Option<u32>,
}

/// Why a program could not be attached.
#[derive(Debug, Error)]
pub enum AttachError {
    /// bpf(2) refused.
    #[error("cannot attach {hook} to the cgroup {cgroup}")]
    Attach {
        /// The hook.
        hook: &'static str,
        /// The cgroup.
        cgroup: PathBuf,
        /// What aya said.
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

/// Makes `hook` run `program` at `cgroup`: switches the link that an earlier agent pinned, or
/// attaches anew where there is none, or where it leads to another cgroup.
pub(super) fn attach(
    program: &mut CgroupSockAddr,
    hook: &Hook,
    pins: &Pins,
    cgroup: &CgroupRoot,
) -> Result<(), AttachError> {
    let pin = pins.link(hook.name);
    let link_error = |action| {
        let pin = pin.clone();
        move |source| AttachError::Link { action, pin, source }
    };
    let attach_error =
        |source| AttachError::Attach { hook: hook.name, cgroup: cgroup.path.clone(), source };
    let fresh = pins.new_link(hook.name);
    // What an agent left that was killed between the two steps below.
    remove_file(&fresh).map_err(link_error("replace"))?;
    if let Some(link) = open(&pin).map_err(link_error("open"))? {
        let info = sys::cgroup_link_info(link.as_fd()).map_err(link_error("read"))?;
        let attach_type = bpf_attach_type::from(hook.attach_type) as u32;
        if info.is_some_and(|info| info.cgroup_id == cgroup.id && info.attach_type == attach_type) {
            let program = program.fd().map_err(attach_error)?.as_fd();
            return sys::link_update(link.as_fd(), program).map_err(link_error("update"));
        }
    }
    let id = program.attach(&cgroup.directory, CgroupAttachMode::Single).map_err(attach_error)?;
    let link = program.take_link(id).map_err(attach_error)?;
    let link =
        FdLink::try_from(link).map_err(|error| link_error("pin")(io::Error::other(error)))?;
    // Pinned beside and renamed over, so that the hook is never without a program.
    link.pin(&fresh).map_err(|error| link_error("pin")(io::Error::other(error)))?;
    fs::rename(&fresh, &pin).map_err(link_error("replace"))
}

/// Every hook as it stands.
pub(super) fn inspect(pins: &Pins) -> Result<Vec<AttachedHook>, AttachError> {
    HOOKS.iter().map(|hook| inspect_one(pins, hook)).collect()
}

fn inspect_one(pins: &Pins, hook: &Hook) -> Result<AttachedHook, AttachError> {
    let pin = pins.link(hook.name);
    let link_error = |source| AttachError::Link { action: "read", pin: pin.clone(), source };
    let info = match open(&pin).map_err(link_error)? {
        Some(link) => sys::cgroup_link_info(link.as_fd()).map_err(link_error)?,
        None => None,
    };
    Ok(AttachedHook {
        name: hook.name.to_owned(),
        cgroup_id: info.map(|info| info.cgroup_id).filter(|id| *id != 0),
        program_id: info.map(|info| info.program_id),
    })
}

fn open(pin: &Path) -> io::Result<Option<std::os::fd::OwnedFd>> {
    match sys::get_pinned(pin) {
        Ok(link) => Ok(Some(link)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
