use std::os::fd::AsFd as _;

use aya_obj::generated::{BPF_F_AFTER, BPF_F_BEFORE};

use super::{
    TcError, TcHook,
    hook::{Classifier, Position, attach_type},
    pins::{OpenLink, TcPins},
};
use crate::{
    loader::sys::{self, TcxEntry, TcxLinkInfo},
    netlink::Direction,
};

/// The programs on one side of a device, in the order in which they run. None where the device has
/// just gone.
pub(super) fn query(device: u32, direction: Direction) -> Result<Vec<TcxEntry>, TcError> {
    match sys::query_tcx(device, attach_type(direction)) {
        Ok(entries) => Ok(entries),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(Vec::new()),
        Err(error) => {
            Err(TcError::bpf(format!("list the {} programs of tcx", direction.name()), error))
        }
    }
}

/// Our link of a hook, if it is really there: an index names another device in another network
/// namespace.
pub(super) fn find(
    pins: &TcPins,
    hook: TcHook,
    device: u32,
    entries: &[TcxEntry],
) -> Result<Option<TcxLinkInfo>, TcError> {
    let link = open(pins, hook, device)?.map(|link| link.info);
    Ok(link.filter(|link| entries.iter().any(|entry| entry.link_id == link.id)))
}

fn open(pins: &TcPins, hook: TcHook, device: u32) -> Result<Option<OpenLink>, TcError> {
    pins.open(hook, device)
        .map_err(|error| TcError::bpf(format!("read the link of {}", hook.name()), error))
}

/// Attaches a program by a new link, which is pinned.
pub(super) fn attach(
    pins: &TcPins,
    hook: TcHook,
    device: u32,
    classifier: &Classifier,
) -> Result<(), TcError> {
    let flags = match hook.position() {
        Position::First => BPF_F_BEFORE,
        Position::Last => BPF_F_AFTER,
    };
    let program = classifier.program.as_fd();
    let link = sys::create_tcx_link(program, device, attach_type(hook.direction()), flags)
        .map_err(|error| TcError::bpf(format!("attach {} by tcx", hook.name()), error))?;
    pins.put(hook, device, &link)
        .map_err(|error| TcError::bpf(format!("pin the link of {}", hook.name()), error))
}

/// Makes the link of a hook run this program, in the same place.
pub(super) fn update(
    pins: &TcPins,
    hook: TcHook,
    device: u32,
    classifier: &Classifier,
) -> Result<(), TcError> {
    let Some(link) = open(pins, hook, device)? else {
        return attach(pins, hook, device, classifier);
    };
    sys::link_update(link.link.as_fd(), classifier.program.as_fd())
        .map_err(|error| TcError::bpf(format!("switch the link of {}", hook.name()), error))
}
