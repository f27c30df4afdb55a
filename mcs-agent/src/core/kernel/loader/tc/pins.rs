//! Pins of the attachments to devices.

use std::{
    cmp::Reverse,
    fs, io,
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{TcHook, hook::attach_type};
use crate::core::kernel::bpf::{
    TcxLinkInfo, detach_link, open_link, remove_directory, remove_file, replace_pin, tcx_link_info,
};

/// The end of the name of a pin that is about to replace another one.
const NEW: &str = "-new";

/// A pinned link, according to the kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TcLink {
    /// The program.
    pub hook: &'static str,
    /// The index of the device that it was made for.
    pub device: u32,
    /// Whether it is still attached there.
    pub attached: bool,
    /// Its own id, as in `bpftool link show id`.
    pub link_id: u32,
    /// The program's id, as in `bpftool prog show id`.
    pub program_id: u32,
}

/// The pins of attachments to devices: links of tcx as `tc/<hook>-<index>`. A directory `clsact/<namespace>-<index>`
/// marks a clsact qdisc that the agent has added. A directory `auto` says that `--tc=auto` has looked at all devices: every
/// program there is one that it attached or left.
#[derive(Clone, Debug)]
pub(crate) struct TcPins {
    links: PathBuf,
    marks: PathBuf,
    auto: PathBuf,
}

/// A device in any network namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct QdiscHost {
    /// The inode of its network namespace.
    pub(super) netns: u64,
    /// Its index there.
    pub(super) device: u32,
}

/// An open link.
#[derive(Debug)]
pub(super) struct OpenLink {
    pub(super) link: OwnedFd,
    pub(super) info: TcxLinkInfo,
}

/// A pin of the agent.
struct Pin {
    hook: TcHook,
    device: u32,
    is_new: bool,
    path: PathBuf,
}

impl TcPins {
    /// The pins below the directory of links.
    pub(crate) fn new(links: &Path) -> Self {
        Self { links: links.join("tc"), marks: links.join("clsact"), auto: links.join("auto") }
    }

    fn link(&self, hook: TcHook, device: u32) -> PathBuf {
        self.links.join(format!("{}-{device}", hook.name()))
    }

    fn mark(&self, host: QdiscHost) -> PathBuf {
        self.marks.join(format!("{}-{}", host.netns, host.device))
    }

    fn list(&self) -> io::Result<Vec<Pin>> {
        let pin = |name: &String| {
            let (rest, is_new) = match name.strip_suffix(NEW) {
                Some(rest) => (rest, true),
                None => (name.as_str(), false),
            };
            let (hook, device) = rest.split_once('-')?;
            let path = self.links.join(name);
            Some(Pin { hook: TcHook::named(hook)?, device: device.parse().ok()?, is_new, path })
        };
        Ok(names(&self.links)?.iter().filter_map(pin).collect())
    }

    /// The link that is pinned for a hook of a device, if it is one for such a hook.
    pub(super) fn open(&self, hook: TcHook, device: u32) -> io::Result<Option<OpenLink>> {
        let link = open(&self.link(hook, device))?;
        Ok(link.filter(|link| link.info.attach_type == attach_type(hook.direction()) as u32))
    }

    /// Pins a link, in the place of one that is pinned already.
    pub(super) fn put(&self, hook: TcHook, device: u32, link: &OwnedFd) -> io::Result<()> {
        make(&self.links)?;
        let fresh = self.links.join(format!("{}-{device}{NEW}", hook.name()));
        replace_pin(link.as_fd(), &self.link(hook, device), &fresh)
    }

    /// Detaches a link. An absent one counts as success.
    pub(super) fn remove(&self, hook: TcHook, device: u32) -> io::Result<bool> {
        detach(&self.link(hook, device))
    }

    /// Removes the pins of links whose devices are gone, and what a killed agent left half done.
    pub(super) fn collect(&self) -> io::Result<()> {
        for pin in self.list()? {
            if pin.is_new || open(&pin.path)?.is_some_and(|link| link.info.ifindex == 0) {
                remove_file(&pin.path)?;
            }
        }
        Ok(())
    }

    /// Every pinned link.
    pub(crate) fn links(&self) -> io::Result<Vec<TcLink>> {
        let mut links = Vec::new();
        for Pin { hook, device, path, .. } in self.list()? {
            if let Some(OpenLink { info, .. }) = open(&path)? {
                let attached = info.ifindex == device;
                links.push(TcLink {
                    hook: hook.name(),
                    device,
                    attached,
                    link_id: info.id,
                    program_id: info.program_id,
                });
            }
        }
        links.sort_by_key(|link| (link.device, link.hook));
        Ok(links)
    }

    /// Whether any link is pinned.
    pub(crate) fn has_links(&self) -> bool {
        self.list().is_ok_and(|links| !links.is_empty())
    }

    /// Detaches every link: those that show the VIP last.
    pub(super) fn remove_links(&self) -> io::Result<usize> {
        let mut pins = self.list()?;
        pins.sort_by_key(|pin| Reverse(pin.hook));
        let mut removed = 0;
        for pin in pins {
            removed += usize::from(detach(&pin.path)?);
        }
        Ok(removed)
    }

    /// Marks the clsact qdisc of a device as added by the agent.
    pub(super) fn set_mark(&self, host: QdiscHost) -> io::Result<()> {
        make(&self.marks)?;
        make(&self.mark(host))
    }

    /// Removes that mark.
    pub(super) fn remove_mark(&self, host: QdiscHost) -> io::Result<()> {
        remove_directory(&self.mark(host))
    }

    /// The devices whose clsact qdisc the agent has added.
    pub(super) fn marked(&self) -> io::Result<Vec<QdiscHost>> {
        let host = |name: &String| {
            let (netns, device) = name.split_once('-')?;
            Some(QdiscHost { netns: netns.parse().ok()?, device: device.parse().ok()? })
        };
        Ok(names(&self.marks)?.iter().filter_map(host).collect())
    }

    /// Whether `--tc=auto` attached or left the programs on devices.
    pub(super) fn is_auto(&self) -> bool {
        self.auto.is_dir()
    }

    /// Notes whether it did.
    pub(super) fn set_auto(&self, is_auto: bool) -> io::Result<()> {
        if is_auto { make(&self.auto) } else { remove_directory(&self.auto) }
    }

    /// Detaches every link and removes every pin and mark.
    pub(crate) fn clean(&self) -> io::Result<usize> {
        let removed = self.remove_links()?;
        for host in self.marked()? {
            self.remove_mark(host)?;
        }
        for directory in [&self.links, &self.marks, &self.auto] {
            remove_directory(directory)?;
        }
        Ok(removed)
    }
}

/// Makes a directory, but not its parent: a missing parent means that the file system was unmounted.
fn make(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn detach(pin: &Path) -> io::Result<bool> {
    if let Some(link) = open(pin)? {
        // A link whose device is gone cannot be detached, and need not be.
        let _ = detach_link(link.link.as_fd());
    }
    remove_file(pin)
}

/// Opens a pinned link; `None` if there is no link of tcx.
fn open(pin: &Path) -> io::Result<Option<OpenLink>> {
    let Some(link) = open_link(pin)? else { return Ok(None) };
    Ok(tcx_link_info(link.as_fd())?.map(|info| OpenLink { link, info }))
}

/// The names in a directory; none if it does not exist.
fn names(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}
