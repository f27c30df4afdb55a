//! Attaching to a device by links of tcx.

use std::os::fd::AsFd as _;

use aya_obj::generated::{BPF_F_AFTER, BPF_F_BEFORE};

use super::{
    TcError, TcHook,
    hook::{Classifier, Position, attach_type},
    links::Links,
    pins::OpenLink,
};
use crate::{
    bpf::{TcxEntry, TcxLinkInfo, attach_by_tcx, query_tcx, tcx_link_info},
    netlink::Direction,
};

/// The programs on one side of a device, in the order in which they run. None where the device has
/// just gone.
pub(super) fn query(device: u32, direction: Direction) -> Result<Vec<TcxEntry>, TcError> {
    match query_tcx(device, attach_type(direction)) {
        Ok(entries) => Ok(entries),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(Vec::new()),
        Err(error) => {
            Err(TcError::bpf(format!("list the {} programs of tcx", direction.name()), error))
        }
    }
}

/// Our link of a hook, if it is really there: an index names another device in another network
/// namespace. Tells whether it was pinned.
pub(super) fn find(
    links: &Links,
    hook: TcHook,
    device: u32,
    entries: &[TcxEntry],
) -> Result<Option<(TcxLinkInfo, bool)>, TcError> {
    let is_there = |id| entries.iter().any(|entry| entry.link_id == id);
    links
        .find(hook, device, is_there)
        .map_err(|error| TcError::bpf(format!("read the link of {}", hook.name()), error))
}

/// Pins a link again that is held.
pub(super) fn pin(links: &Links, hook: TcHook, device: u32) -> Result<(), TcError> {
    links
        .pin(hook, device)
        .map_err(|error| TcError::bpf(format!("pin the link of {}", hook.name()), error))
}

/// Attaches a program by a new link, which is pinned.
pub(super) fn attach(
    links: &Links,
    hook: TcHook,
    device: u32,
    classifier: &Classifier,
) -> Result<(), TcError> {
    let flags = match hook.position() {
        Position::First => BPF_F_BEFORE,
        Position::Last => BPF_F_AFTER,
    };
    let program = classifier.program.as_fd();
    let error = |error| TcError::bpf(format!("attach {} by tcx", hook.name()), error);
    let link =
        attach_by_tcx(program, device, attach_type(hook.direction()), flags).map_err(error)?;
    let Some(info) = tcx_link_info(link.as_fd()).map_err(error)? else { return Ok(()) };
    links
        .put(hook, device, OpenLink { link, info })
        .map_err(|error| TcError::bpf(format!("pin the link of {}", hook.name()), error))
}

/// Makes the link of a hook run this program, in the same place.
pub(super) fn update(
    links: &Links,
    hook: TcHook,
    device: u32,
    classifier: &Classifier,
) -> Result<(), TcError> {
    let switched = links
        .update(hook, device, classifier.program.as_fd())
        .map_err(|error| TcError::bpf(format!("switch the link of {}", hook.name()), error))?;
    if switched { Ok(()) } else { attach(links, hook, device, classifier) }
}
