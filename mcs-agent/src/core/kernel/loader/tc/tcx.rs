//! Attaching to a device by links of tcx, which are pinned and held open.

use std::{cell::RefCell, collections::BTreeMap, io, os::fd::AsFd as _};

use aya_obj::generated::{BPF_F_AFTER, BPF_F_BEFORE};

use super::{
    TcError, TcHook,
    classifiers::Classifier,
    hook::{Position, attach_type},
    pins::{OpenLink, TcPins},
};
use crate::core::kernel::{
    bpf::{
        TcxEntry, TcxLinkInfo, attach_by_tcx, detach_link, query_tcx, tcx_link_info, update_link,
    },
    netlink::Direction,
};

/// The links to devices. They are pinned, and also kept open, so that a link whose pin somebody removes stays attached.
#[derive(Debug)]
pub(super) struct TcxLinks {
    pins: TcPins,
    open: RefCell<BTreeMap<(TcHook, u32), OpenLink>>,
}

/// The programs on one side of a device, in the order in which they run; none if the device was just removed.
pub(super) fn query(device: u32, direction: Direction) -> Result<Vec<TcxEntry>, TcError> {
    match query_tcx(device, attach_type(direction)) {
        Ok(entries) => Ok(entries),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(Vec::new()),
        Err(error) => {
            Err(TcError::bpf(format!("list the {} programs of tcx", direction.name()), error))
        }
    }
}

impl TcxLinks {
    pub(super) const fn new(pins: TcPins) -> Self {
        Self { pins, open: RefCell::new(BTreeMap::new()) }
    }

    /// The pinned link of a hook, or else the open one, if it is among `entries`: an index names another device in another
    /// network namespace. Returns what it is attached to, and whether it is pinned.
    pub(super) fn find(
        &self,
        hook: TcHook,
        device: u32,
        entries: &[TcxEntry],
    ) -> Result<Option<(TcxLinkInfo, bool)>, TcError> {
        let is_there = |link: &OpenLink| entries.iter().any(|entry| entry.link_id == link.info.id);
        let mut open = self.open.borrow_mut();
        let pinned = self.pins.open(hook, device).map_err(failed("read", hook))?;
        if let Some(link) = pinned.filter(is_there) {
            let info = link.info;
            let held = open.get(&(hook, device));
            if held.is_none_or(|held| held.info.id != info.id) {
                open.insert((hook, device), link);
            }
            return Ok(Some((info, true)));
        }
        let Some(link) = open.get(&(hook, device)).filter(|link| is_there(link)) else {
            return Ok(None);
        };
        let info = tcx_link_info(link.link.as_fd()).map_err(failed("read", hook))?;
        Ok(info.map(|info| (info, false)))
    }

    /// Attaches a program by a new link, which is pinned.
    pub(super) fn attach(
        &self,
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
        // Before it is pinned, which may fail: the program runs while the link is open.
        self.open.borrow_mut().insert((hook, device), OpenLink { link, info });
        self.pin(hook, device)
    }

    /// Pins the open link.
    pub(super) fn pin(&self, hook: TcHook, device: u32) -> Result<(), TcError> {
        match self.open.borrow().get(&(hook, device)) {
            Some(link) => self.pins.put(hook, device, &link.link).map_err(failed("pin", hook)),
            None => Ok(()),
        }
    }

    /// Makes the link of a hook run this program, in the same place.
    pub(super) fn update(
        &self,
        hook: TcHook,
        device: u32,
        classifier: &Classifier,
    ) -> Result<(), TcError> {
        if let Some(link) = self.open.borrow().get(&(hook, device)) {
            return update_link(link.link.as_fd(), classifier.program.as_fd())
                .map_err(failed("switch", hook));
        }
        self.attach(hook, device, classifier)
    }

    /// Detaches a link. An absent one counts as success.
    pub(super) fn remove(&self, hook: TcHook, device: u32) -> io::Result<()> {
        if let Some(link) = self.open.borrow_mut().remove(&(hook, device)) {
            // A link whose device is gone cannot be detached, and need not be.
            let _ = detach_link(link.link.as_fd());
        }
        self.pins.remove(hook, device).map(drop)
    }

    /// Closes links whose devices are gone, and removes what a killed agent left half done.
    pub(super) fn collect(&self) -> io::Result<()> {
        self.open.borrow_mut().retain(|_, link| {
            let info = tcx_link_info(link.link.as_fd());
            matches!(info, Ok(Some(info)) if info.ifindex != 0)
        });
        self.pins.collect()
    }
}

fn failed(action: &'static str, hook: TcHook) -> impl FnOnce(io::Error) -> TcError {
    move |error| TcError::bpf(format!("{action} the link of {}", hook.name()), error)
}
