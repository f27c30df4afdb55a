use std::{cell::RefCell, collections::BTreeMap, io, os::fd::AsFd as _};

use super::{
    TcHook,
    pins::{OpenLink, TcPins},
};
use crate::bpf::{TcxLinkInfo, detach_link, tcx_link_info, update_link};

/// The links to devices: pinned, and held, so that one whose pin somebody removes stays attached.
#[derive(Debug)]
pub(super) struct Links {
    pins: TcPins,
    held: RefCell<BTreeMap<(TcHook, u32), OpenLink>>,
}

impl Links {
    pub(super) const fn new(pins: TcPins) -> Self {
        Self { pins, held: RefCell::new(BTreeMap::new()) }
    }

    /// What a link of one of these ids is attached to, and whether it was pinned: the pinned one, or
    /// the one that is held.
    pub(super) fn find(
        &self,
        hook: TcHook,
        device: u32,
        is_there: impl Fn(u32) -> bool,
    ) -> io::Result<Option<(TcxLinkInfo, bool)>> {
        let mut held = self.held.borrow_mut();
        if let Some(link) = self.pins.open(hook, device)?.filter(|link| is_there(link.info.id)) {
            let info = link.info;
            let holds = held.get(&(hook, device)).is_some_and(|held| held.info.id == info.id);
            if !holds {
                held.insert((hook, device), link);
            }
            return Ok(Some((info, true)));
        }
        let Some(link) = held.get(&(hook, device)).filter(|link| is_there(link.info.id)) else {
            return Ok(None);
        };
        let info = tcx_link_info(link.link.as_fd())?;
        Ok(info.map(|info| (info, false)))
    }

    /// Holds a new link, and pins it.
    pub(super) fn put(&self, hook: TcHook, device: u32, link: OpenLink) -> io::Result<()> {
        // Before it is pinned, which may fail: the program runs as long as it is held.
        self.held.borrow_mut().insert((hook, device), link);
        self.pin(hook, device)
    }

    /// Pins the link that is held.
    pub(super) fn pin(&self, hook: TcHook, device: u32) -> io::Result<()> {
        match self.held.borrow().get(&(hook, device)) {
            Some(link) => self.pins.put(hook, device, &link.link),
            None => Ok(()),
        }
    }

    /// Makes the link that is held run another program, in the same place. Returns whether there is
    /// one.
    pub(super) fn update(
        &self,
        hook: TcHook,
        device: u32,
        program: std::os::fd::BorrowedFd<'_>,
    ) -> io::Result<bool> {
        match self.held.borrow().get(&(hook, device)) {
            Some(link) => update_link(link.link.as_fd(), program).map(|()| true),
            None => Ok(false),
        }
    }

    /// Detaches a link. Absent is as good.
    pub(super) fn remove(&self, hook: TcHook, device: u32) -> io::Result<()> {
        if let Some(link) = self.held.borrow_mut().remove(&(hook, device)) {
            // One whose device is gone cannot be detached, and need not.
            let _ = detach_link(link.link.as_fd());
        }
        self.pins.remove(hook, device).map(drop)
    }

    /// Lets go of links whose devices are gone, and of what a killed agent left half done.
    pub(super) fn collect(&self) -> io::Result<()> {
        self.held.borrow_mut().retain(|_, held| {
            let info = tcx_link_info(held.link.as_fd());
            matches!(info, Ok(Some(info)) if info.ifindex != 0)
        });
        self.pins.collect()
    }
}
