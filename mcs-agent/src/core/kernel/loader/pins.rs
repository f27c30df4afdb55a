//! The pins of an agent, and what other processes can do to them and to attachments.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fmt, fs, io,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
};

use mcs_common::maps::{self, Map, Place};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::{Deserialize, Serialize};

use super::{HOOKS, tc::TcPins};
use crate::core::kernel::{
    bpf::{detach_link, open_pin, remove_directory, remove_file},
    flows::FlowPins,
};

/// Where things are pinned: `<bpffs>/mcs/{run,config,state,links}`. (No dots in names: bpffs refuses
/// them.)
#[derive(Clone, Debug)]
pub struct Pins {
    root: PathBuf,
}

/// Where the maps of some programs are pinned: those of new programs have names of their own until no other program
/// runs.
#[derive(Clone, Debug)]
pub struct MapPins {
    pub(super) pins: Pins,
    /// The directory of the config maps.
    pub(super) config: PathBuf,
    /// The other pins that lead to maps of former programs, each with the pin of the new map.
    pub(super) staged: BTreeMap<PathBuf, PathBuf>,
}

impl MapPins {
    /// Those of attached programs.
    pub fn live(pins: Pins) -> Self {
        Self { config: pins.config(), pins, staged: BTreeMap::new() }
    }

    pub(super) fn pin(&self, map: &Map) -> PathBuf {
        match map.place {
            Place::Config => self.config.join(map.name),
            Place::Root | Place::State => self.now(self.pins.pin(map)),
        }
    }

    fn now(&self, pin: PathBuf) -> PathBuf {
        self.staged.get(&pin).cloned().unwrap_or(pin)
    }

    /// Whether the config maps are not those of attached programs.
    pub(super) fn is_staged(&self) -> bool {
        self.config != self.pins.config()
    }

    /// The directory of the config maps.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// The address filter.
    pub fn hints(&self) -> PathBuf {
        self.now(self.pins.hints())
    }

    /// The map that names the owner of the directory.
    pub fn run(&self) -> PathBuf {
        self.now(self.pins.run())
    }

    /// The map with the agent's sign of life.
    pub fn alive(&self) -> PathBuf {
        self.now(self.pins.alive())
    }

    /// The flow table and what belongs to it. Programs of earlier loads may use the other tables.
    pub fn flows(&self) -> io::Result<FlowPins> {
        let FlowPins { table, used, evictions, .. } = FlowPins::in_state(&self.pins.state());
        let [table, used, evictions] = [table, used, evictions].map(|pin| self.now(pin));
        let mut former = self.pins.flow_tables()?;
        former.retain(|other| *other != table);
        Ok(FlowPins { table, used, evictions, former })
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

    /// The pinned flow tables. An agent that was killed while it moved flows to a table of another size leaves several.
    pub fn flow_tables(&self) -> io::Result<Vec<PathBuf>> {
        let pin = self.flows();
        Ok(places(&pin)?.into_iter().map(|place| at(&pin, place)).collect())
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

    /// Removes the maps of loads whose programs may not have taken over, other than config maps.
    pub(super) fn remove_staged(&self) -> io::Result<()> {
        self.remove_maps(1).map(drop)
    }

    fn remove_maps(&self, from: u32) -> io::Result<usize> {
        let mut maps = maps::of(Place::Root).chain(maps::of(Place::State));
        maps.try_fold(0, |removed, map| Ok(removed + remove_places(&self.pin(map), from)?))
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
        let mut maps = self.remove_maps(0)?;
        for directory in self.all_config() {
            maps += Self::remove_config(&directory)?;
        }
        remove_directory(&self.state())?;
        remove_directory(&self.root)?;
        Ok(CleanupSummary { links, maps, foreign: self.root.exists() })
    }
}

/// The places of a map that has this pin: 0 is the pin itself, each other one that of a load whose programs may not have
/// taken over everywhere.
pub(super) fn places(pin: &Path) -> io::Result<BTreeSet<u32>> {
    let (Some(directory), Some(name)) = (pin.parent(), pin.file_name()) else {
        return Ok(BTreeSet::new());
    };
    let place = |file: &OsStr| match file.to_str()?.strip_prefix(name.to_str()?)? {
        "" => Some(0),
        rest => rest.strip_prefix("-new")?.parse().ok(),
    };
    match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        files => Ok(files?.flatten().filter_map(|file| place(&file.file_name())).collect()),
    }
}

/// Where a map that has this pin is pinned at one of its places.
pub(super) fn at(pin: &Path, place: u32) -> PathBuf {
    let mut path = pin.as_os_str().to_owned();
    if place > 0 {
        path.push(format!("-new{place}"));
    }
    path.into()
}

/// Unpins a map at every place from this one on. Returns at how many it was.
pub(super) fn remove_places(pin: &Path, from: u32) -> io::Result<usize> {
    remove_files(places(pin)?.range(from..).map(|place| at(pin, *place)))
}

fn remove_files(mut paths: impl Iterator<Item = PathBuf>) -> io::Result<usize> {
    paths.try_fold(0, |removed, path| Ok(removed + usize::from(remove_file(&path)?)))
}

/// A change that another process made to a pin or an attachment of the agent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tampering {
    /// A pin was removed, or something else is there.
    Pin,
    /// The file system with the pins was unmounted, or our directory in it removed.
    Bpffs,
    /// A program was detached from the cgroup.
    Hook,
    /// The cgroup was removed, and made again.
    Cgroup,
    /// A program was detached from a network device.
    Device,
}

impl Tampering {
    /// Every sort.
    pub const ALL: [Self; 5] = [Self::Pin, Self::Bpffs, Self::Hook, Self::Cgroup, Self::Device];

    /// As metrics and `status` write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pin => "pin",
            Self::Bpffs => "bpffs",
            Self::Hook => "hook",
            Self::Cgroup => "cgroup",
            Self::Device => "device",
        }
    }
}

impl fmt::Display for Tampering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Tampering that the agent has found and repaired.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repair {
    /// Its sort.
    pub tampering: Tampering,
    /// What was found, and what was done: `the pin X was removed; pinned again`.
    pub what: String,
}
