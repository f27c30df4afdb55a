//! Where everything is pinned, and the removal of all pins.

use std::{
    fs, io,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
};

use mcs_common::maps::{self, Map, Place};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::{HOOKS, tc::TcPins};
use crate::bpf::{detach_link, open_pin, remove_directory, remove_file};

/// Where things are pinned: `<bpffs>/mcs/{run,config,state,links}`. (No dots in names: bpffs refuses
/// them.)
#[derive(Clone, Debug)]
pub struct Pins {
    root: PathBuf,
}

/// Where the maps of some programs are pinned: those of new programs have names of their own until no other program
/// runs.
#[derive(Clone, Debug)]
pub(super) struct MapPins {
    pub(super) pins: Pins,
    /// The directory of the config maps.
    pub(super) config: PathBuf,
    pub(super) hints: PathBuf,
}

impl MapPins {
    pub(super) fn pin(&self, map: &Map) -> PathBuf {
        match map.place {
            Place::Config => self.config.join(map.name),
            Place::Root if map.name == maps::HINTS => self.hints.clone(),
            Place::Root | Place::State => self.pins.pin(map),
        }
    }
}

/// What [`Pins::clean`] removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CleanupSummary {
    /// Programs detached.
    pub links: usize,
    /// Maps unpinned.
    pub maps: usize,
    /// Whether files of others are left in the directory.
    pub foreign: bool,
}

impl Pins {
    /// The pins under a bpffs mount, or under a directory of one.
    pub fn new(bpffs: &Path) -> Self {
        Self { root: bpffs.join("mcs") }
    }

    /// The directory that all pins are in.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where a map of attached programs is pinned.
    pub(super) fn pin(&self, map: &Map) -> PathBuf {
        match map.place {
            Place::Config => self.config().join(map.name),
            Place::State => self.state().join(map.name),
            Place::Root => self.root.join(map.name),
        }
    }

    /// The map that names the owner of this directory.
    pub fn run(&self) -> PathBuf {
        self.root.join(maps::RUN)
    }

    /// The map with the agent's sign of life.
    pub fn alive(&self) -> PathBuf {
        self.root.join(maps::ALIVE)
    }

    /// The maps that the agent writes.
    pub fn config(&self) -> PathBuf {
        self.root.join("config")
    }

    /// Config maps that take the place of the live ones once the programs run with them.
    pub(super) fn new_config(&self) -> PathBuf {
        self.root.join("config-new")
    }

    /// Config maps that the programs no longer read.
    pub(super) fn old_config(&self) -> PathBuf {
        self.root.join("config-old")
    }

    /// Every directory of config maps that a program may read.
    pub fn all_config(&self) -> [PathBuf; 3] {
        [self.config(), self.new_config(), self.old_config()]
    }

    /// The address filter.
    pub fn hints(&self) -> PathBuf {
        self.root.join(maps::HINTS)
    }

    /// A new address filter, which takes the place of [`Pins::hints`] once the programs run with it.
    pub(super) fn new_hints(&self) -> PathBuf {
        self.root.join("hints-new")
    }

    /// Whether an earlier agent has left maps that the programs write.
    pub fn has_state(&self) -> bool {
        maps::of(Place::State).any(|map| self.pin(map).exists())
    }

    /// The maps that the programs write.
    pub fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    /// The flow table.
    pub fn flows(&self) -> PathBuf {
        self.state().join(maps::FLOWS)
    }

    /// A flow table of another size, whose flows are moved to the one in [`Pins::flows`]. Programs
    /// that an earlier agent attached write it.
    pub fn old_flows(&self) -> PathBuf {
        self.state().join("flows-old")
    }

    fn links(&self) -> PathBuf {
        self.root.join("links")
    }

    /// The attachment of one hook.
    pub(super) fn link(&self, hook: &str) -> PathBuf {
        self.links().join(hook)
    }

    /// Where an object is pinned that is about to replace another one.
    pub(super) fn scratch(&self) -> PathBuf {
        self.root.join("new")
    }

    /// Makes the directories.
    pub(super) fn create(&self) -> io::Result<()> {
        for directory in [self.state(), self.links()] {
            fs::create_dir_all(directory)?;
        }
        Ok(())
    }

    /// The attachments to devices.
    pub(super) fn tc(&self) -> TcPins {
        TcPins::new(&self.links())
    }

    /// Whether a hook has an attachment.
    pub(super) fn has_links(&self) -> bool {
        HOOKS.iter().any(|hook| self.link(hook.name).exists()) || self.tc().has_links()
    }

    /// Detaches every hook: those that show the VIP last. An absent link counts as success.
    pub(super) fn remove_links(&self) -> io::Result<usize> {
        let pins = HOOKS.iter().rev().map(|hook| self.link(hook.name));
        let mut removed = 0;
        for pin in pins.chain([self.scratch()]) {
            // Without this the kernel detaches the link some time after its pin is gone. Before 5.9 there is no such
            // call, so an error is ignored.
            if let Ok(link) = open_pin(&pin) {
                let _ = detach_link(link.as_fd());
            }
            removed += usize::from(remove_file(&pin)?);
        }
        Ok(removed)
    }

    /// Removes a directory of config maps. An absent one counts as success.
    pub(super) fn remove_config(directory: &Path) -> io::Result<usize> {
        let names = maps::of(Place::Config).map(|map| map.name);
        let removed = remove_files(names.map(|name| directory.join(name)))?;
        remove_directory(directory)?;
        Ok(removed)
    }

    /// Removes a directory of config maps that no program reads. What others or a later version pinned there moves to the
    /// live directory: else the next growth could not put its former maps here.
    pub(super) fn remove_former_config(&self, directory: &Path) -> io::Result<()> {
        Self::remove_config(directory)?;
        let live = self.config();
        if !live.exists() {
            return Ok(());
        }
        for file in fs::read_dir(directory).into_iter().flatten().flatten() {
            let to = live.join(file.file_name());
            if let Err(error) = renameat_with(CWD, file.path(), CWD, &to, RenameFlags::NOREPLACE) {
                let from = file.path();
                tracing::warn!(from = %from.display(), "cannot move a file of others: {error}");
            }
        }
        remove_directory(directory)
    }

    /// Removes every pin of the agent and nothing else: first the links, so that no program runs without its maps.
    pub fn clean(&self) -> io::Result<CleanupSummary> {
        let links = self.remove_links()? + self.tc().clean()?;
        remove_directory(&self.links())?;
        let own = maps::of(Place::Root).chain(maps::of(Place::State)).map(|map| self.pin(map));
        let mut maps = remove_files(own.chain([self.new_hints(), self.old_flows()]))?;
        for directory in self.all_config() {
            maps += Self::remove_config(&directory)?;
        }
        remove_directory(&self.state())?;
        remove_directory(&self.root)?;
        Ok(CleanupSummary { links, maps, foreign: self.root.exists() })
    }
}

fn remove_files(mut paths: impl Iterator<Item = PathBuf>) -> io::Result<usize> {
    paths.try_fold(0, |removed, path| Ok(removed + usize::from(remove_file(&path)?)))
}
