//! The links of tcx, pinned and held open.

use std::{cell::RefCell, collections::BTreeMap, io, os::fd::AsFd as _};

use super::{
    TcHook,
    pins::{OpenLink, TcPins},
};
use crate::bpf::{TcxLinkInfo, detach_link, tcx_link_info, update_link};

/// The links to devices. They are pinned, and also kept open, so that a link whose pin somebody removes stays attached.
#[derive(Debug)]
pub(super) struct Links {
    pins: TcPins,
    open: RefCell<BTreeMap<(TcHook, u32), OpenLink>>,
}

impl Links {
    pub(super) const fn new(pins: TcPins) -> Self {
        Self { pins, open: RefCell::new(BTreeMap::new()) }
    }

    /// The pinned link, or else the open one, if `is_there` knows its id. Returns what it is attached to, and whether it
    /// is pinned.
    pub(super) fn find(
        &self,
        hook: TcHook,
        device: u32,
        is_there: impl Fn(u32) -> bool,
    ) -> io::Result<Option<(TcxLinkInfo, bool)>> {
        let mut open = self.open.borrow_mut();
        if let Some(link) = self.pins.open(hook, device)?.filter(|link| is_there(link.info.id)) {
            let info = link.info;
            let is_open = open.get(&(hook, device)).is_some_and(|link| link.info.id == info.id);
            if !is_open {
                open.insert((hook, device), link);
            }
            return Ok(Some((info, true)));
        }
        let Some(link) = open.get(&(hook, device)).filter(|link| is_there(link.info.id)) else {
            return Ok(None);
        };
        let info = tcx_link_info(link.link.as_fd())?;
        Ok(info.map(|info| (info, false)))
    }

    /// Keeps a new link open, and pins it.
    pub(super) fn put(&self, hook: TcHook, device: u32, link: OpenLink) -> io::Result<()> {
        // Before it is pinned, which may fail: the program runs while the link is open.
        self.open.borrow_mut().insert((hook, device), link);
        self.pin(hook, device)
    }

    /// Pins the open link.
    pub(super) fn pin(&self, hook: TcHook, device: u32) -> io::Result<()> {
        match self.open.borrow().get(&(hook, device)) {
            Some(link) => self.pins.put(hook, device, &link.link),
            None => Ok(()),
        }
    }

    /// Makes the open link run another program, in the same place. Returns whether there is one.
    pub(super) fn update(
        &self,
        hook: TcHook,
        device: u32,
        program: std::os::fd::BorrowedFd<'_>,
    ) -> io::Result<bool> {
        match self.open.borrow().get(&(hook, device)) {
            Some(link) => update_link(link.link.as_fd(), program).map(|()| true),
            None => Ok(false),
        }
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
