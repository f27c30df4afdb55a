//! Loading the embedded object, and moving attached programs and pinned maps to it.

use std::{
    collections::BTreeMap,
    fs, io,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use aya::{
    Ebpf,
    maps::Map as AnyMap,
    programs::{Program, ProgramError},
};
use mcs_common::maps::{self, Entries, Map, Place};
use rustix::process::{Resource, Rlimit, setrlimit};

use super::{
    CgroupRoot, HOOKS, Hook, LoadOptions, Pins, Repair, Tampering,
    attach::{self, AttachedHook, Tracepoints},
    bpffs,
    layout::{self, Sizes},
    load::{self, LoadError, pin_error},
    pins::{MapPins, remove_places},
    program_log::ProgramLog,
    stage::{finish_commit, stage},
    tc::{Classifiers, TcLink},
};
use crate::core::{
    kernel::bpf::{BpfObject, PinState},
    model::Capacity,
};

/// The object that `cargo xtask build` embedded.
static OBJECT: Option<&[u8]> = include!(concat!(env!("OUT_DIR"), "/object.rs"));

/// The loaded programs, with their maps and links.
pub struct Programs {
    ebpf: Arc<Mutex<Ebpf>>,
    classifiers: Classifiers,
    /// Where the maps are pinned now.
    at: MapPins,
    maps: Vec<(&'static Map, BpfObject)>,
    /// The attachments, by hook.
    links: BTreeMap<&'static str, BpfObject>,
    tracepoints: Tracepoints,
    log: Option<ProgramLog>,
}

impl Programs {
    /// Loads the programs with the pinned maps, or with new ones. The caller completes the address filter before
    /// [`Programs::attach`].
    ///
    /// Where a pinned map has another shape (another capacity, another version, a damaged pin) and programs may be running
    /// with it, this makes a new one. The attached programs use the old maps until [`Programs::attach`].
    pub fn load(options: &LoadOptions) -> Result<Self, LoadError> {
        allow_locked_memory();
        let at = stage(&options.pins, options.sizes())?;
        let object = OBJECT.ok_or(LoadError::NoObject)?;
        fs::create_dir_all(&at.config).map_err(pin_error("make", &at.config))?;
        let mut ebpf = load::load(object, options, &at)
            .map_err(|source| LoadError::Maps { path: at.config.clone(), source: source.into() })?;
        for hook in &HOOKS {
            program(&mut ebpf, hook.name)
                .and_then(load_hook)
                .map_err(|source| LoadError::Program { program: hook.name, source })?;
        }
        let ebpf = Arc::new(Mutex::new(ebpf));
        let classifiers = Classifiers::new(Arc::clone(&ebpf), &options.needed)?;
        let hold = |map: &'static Map| {
            let pin = at.pin(map);
            Ok((map, BpfObject::open(&pin).map_err(pin_error("hold", &pin))?))
        };
        Ok(Self {
            maps: maps::ALL.iter().map(hold).collect::<Result<_, LoadError>>()?,
            ebpf,
            classifiers,
            at,
            links: BTreeMap::new(),
            tracepoints: Tracepoints::default(),
            log: None,
        })
    }

    /// Takes the programs for devices. A second call returns none.
    pub fn take_classifiers(&mut self) -> Classifiers {
        std::mem::take(&mut self.classifiers)
    }

    /// Where the maps of these programs are pinned now.
    pub const fn pins(&self) -> &MapPins {
        &self.at
    }

    /// Whether the config maps are new, and the attached programs use others. The caller fills the new maps, then
    /// calls [`Programs::attach`] and [`Programs::commit`].
    pub fn is_staged(&self) -> bool {
        self.at.is_staged()
    }

    /// Takes the links of the former programs. [`Programs::attach`] updates them.
    pub fn take_links(&mut self, former: &mut Self) {
        self.links = std::mem::take(&mut former.links);
        self.tracepoints = std::mem::take(&mut former.tracepoints);
    }

    /// Attaches every program: updates the links that this agent holds or an earlier one left, or makes new ones.
    pub fn attach(&mut self, cgroup: &CgroupRoot) -> Result<(), LoadError> {
        HOOKS.iter().try_for_each(|hook| self.attach_one(hook, cgroup))
    }

    /// Attaches the programs of these tracepoints, and detaches those of others. Such programs stay attached when config maps
    /// grow: they read none of them.
    pub fn set_tracepoints(
        &mut self,
        wanted: &[&'static str],
        others: &[&'static str],
    ) -> Result<(), LoadError> {
        let rejected = |(program, source)| LoadError::Program { program, source };
        self.tracepoints.set(&mut locked(&self.ebpf), wanted, others).map_err(rejected)
    }

    fn attach_one(&mut self, hook: &'static Hook, cgroup: &CgroupRoot) -> Result<(), LoadError> {
        let mut ebpf = locked(&self.ebpf);
        let program = program(&mut ebpf, hook.name)
            .map_err(|source| LoadError::Program { program: hook.name, source })?;
        let held = self.links.get(hook.name);
        let new = attach::attach(program, hook, &self.at.pins, cgroup, held)?;
        if let Some(link) = new {
            // Before it is pinned, which may fail: the program runs while the link is open.
            let former = self.links.insert(hook.name, link);
            self.pin_link(hook)?;
            drop(former);
        }
        Ok(())
    }

    fn pin_link(&self, hook: &Hook) -> Result<(), LoadError> {
        let Some(link) = self.links.get(hook.name) else { return Ok(()) };
        let pin = self.at.pins.link(hook.name);
        if link.state_of(&pin) == PinState::Intact {
            return Ok(());
        }
        link.pin(&pin, &self.at.pins.scratch()).map_err(pin_error("pin", &pin))
    }

    /// Attaches again the programs that are no longer attached to this cgroup.
    pub fn repair_hooks(&mut self, cgroup: &CgroupRoot) -> Result<Vec<Repair>, LoadError> {
        let mut repairs = Vec::new();
        for hook in &HOOKS {
            let Some(link) = self.links.get(hook.name) else { continue };
            let pin = self.at.pins.link(hook.name);
            if attach::is_attached(link, hook, cgroup).map_err(pin_error("read", &pin))? {
                continue;
            }
            let what = format!("{} was detached from {}", hook.name, cgroup.path.display());
            self.attach_one(hook, cgroup)?;
            repairs.push(Repair {
                tampering: Tampering::Hook,
                what: format!("{what}; attached again"),
            });
        }
        Ok(repairs)
    }

    /// Pins again the maps and links whose pins were removed or replaced.
    pub fn repair_pins(&self) -> Result<Vec<Repair>, LoadError> {
        let maps = self.maps.iter().map(|(map, held)| (self.at.pin(map), held));
        let links = self.links.iter().map(|(hook, link)| (self.at.pins.link(hook), link));
        let mut repairs = Vec::new();
        for (pin, held) in maps.chain(links) {
            let was = match held.state_of(&pin) {
                PinState::Intact => continue,
                PinState::Removed => "removed",
                PinState::Replaced => "replaced by something else",
            };
            held.pin(&pin, &self.at.pins.scratch()).map_err(pin_error("pin", &pin))?;
            let what = format!("the pin {} was {was}; pinned again", pin.display());
            repairs.push(Repair { tampering: Tampering::Pin, what });
        }
        Ok(repairs)
    }

    /// The hooks, each with the id of its program.
    pub fn program_ids(&self) -> Vec<(&'static Hook, u32)> {
        let ebpf = locked(&self.ebpf);
        let id = |hook: &'static Hook| Some((hook, ebpf.program(hook.name)?.info().ok()?.id()));
        HOOKS.iter().filter_map(id).collect()
    }

    /// Moves new maps to the pins of the old ones, which no program uses any more, and removes what earlier loads staged.
    pub fn commit(&mut self) -> Result<(), LoadError> {
        self.settle(|_| true)?;
        if self.is_staged() {
            self.commit_config()?;
        }
        self.at
            .pins
            .remove_staged()
            .map_err(pin_error("remove what is staged in", self.at.pins.root()))
    }

    /// Moves a new map that names the owner to the pin of the old one: no program reads it.
    pub fn commit_run(&mut self) -> Result<(), LoadError> {
        self.settle(|map| map.name == maps::RUN)
    }

    /// Pins staged maps in the place of the old ones. They keep their other pins: a load after a kill would find some of those
    /// that belong together here, and some there.
    fn settle(&mut self, is_meant: impl Fn(&Map) -> bool) -> Result<(), LoadError> {
        for (map, held) in self.maps.iter().filter(|(map, _)| is_meant(map)) {
            let pin = self.at.pins.pin(map);
            if self.at.staged.contains_key(&pin) {
                held.pin(&pin, &self.at.pins.scratch()).map_err(pin_error("pin", &pin))?;
                self.at.staged.remove(&pin);
            }
        }
        Ok(())
    }

    fn commit_config(&mut self) -> Result<(), LoadError> {
        let pins = &self.at.pins;
        let (live, new, old) = (pins.config(), pins.new_config(), pins.old_config());
        match fs::rename(&live, &old) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(pin_error("move", &live)(error));
            }
            _ => {}
        }
        fs::rename(&new, &live).map_err(pin_error("move", &new))?;
        self.at.config = live;
        pins.remove_former_config(&old).map_err(pin_error("remove", &old))
    }

    /// Maps that are not pinned: ring buffers, and arrays of values of each CPU.
    pub fn unpinned_maps(&self, names: &[&str]) -> io::Result<Vec<OwnedFd>> {
        let ebpf = locked(&self.ebpf);
        let open = |name: &&str| match ebpf.map(name) {
            Some(AnyMap::RingBuf(map) | AnyMap::PerCpuArray(map)) => {
                map.fd().as_fd().try_clone_to_owned()
            }
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        names.iter().map(open).collect()
    }

    /// Copies the log of the programs to the log of this process, by a task of the current runtime that
    /// ends with the programs. [`LoadOptions::log_programs`] is set.
    pub fn follow_log(&mut self) -> Result<(), LoadError> {
        self.log = Some(ProgramLog::follow(&mut locked(&self.ebpf))?);
        Ok(())
    }
}

impl Pins {
    /// Detaches every program of the socket path.
    pub fn detach(&self) -> Result<(), LoadError> {
        self.remove_links().map(drop).map_err(pin_error("detach what is in", self.root()))
    }

    /// The attachment of every hook.
    pub fn hooks(&self) -> Result<Vec<AttachedHook>, LoadError> {
        Ok(attach::inspect(self)?)
    }

    /// Every pinned link to a device.
    pub fn tc_links(&self) -> Result<Vec<TcLink>, LoadError> {
        self.tc().links().map_err(pin_error("read the links in", self.root()))
    }

    /// The capacity that the pinned config maps were made for; `None` if one is missing. The caller holds the
    /// lock of the directory, since this finishes first what a killed agent left half done.
    pub fn capacity(&self) -> Result<Option<Capacity>, LoadError> {
        finish_commit(self)?;
        layout::capacity(&self.config()).map_err(pin_error("look at the maps in", &self.config()))
    }

    /// Removes the new maps of a failed [`Programs::load`]. The next load removes what this cannot remove.
    pub fn discard_new(&self) {
        let _ = Self::remove_config(&self.new_config());
        let _ = remove_places(&self.hints(), 1);
    }

    /// Removes the table of connected sockets: no socket has a slot any more, and each shows its backend.
    pub fn remove_socket_slots(&self) -> Result<(), LoadError> {
        self.remove_state(layout::SOCKET_SLOTS)
    }

    /// Removes the maps of features: what they hold meant something else to an agent before this one.
    pub fn remove_maps_of_features(&self) -> Result<(), LoadError> {
        let of_features = maps::of(Place::State).filter(|map| map.entries == Entries::OfFeature);
        self.remove_state(of_features.map(|map| map.name))
    }

    fn remove_state(&self, names: impl IntoIterator<Item = &'static str>) -> Result<(), LoadError> {
        names.into_iter().try_for_each(|name| {
            let pin = self.state().join(name);
            remove_places(&pin, 0).map(drop).map_err(pin_error("remove", &pin))
        })
    }

    /// Checks the file system and makes the directories.
    pub fn prepare(&self, bpffs: &Path) -> Result<(), LoadError> {
        bpffs::prepare(bpffs)?;
        bpffs::make_own(self.root())?;
        self.create().map_err(pin_error("make", self.root()))
    }
}

/// Bytes of the state maps in the kernel.
pub fn state_bytes(options: &LoadOptions) -> u64 {
    let sizes = Sizes { socket_slot_bits: maps::SOCKET_SLOT_BITS, ..options.sizes() };
    sizes.layouts(Place::State).map(|map| map.bytes()).sum()
}

/// Before Linux 5.11 maps count as locked memory of the process. A failure is ignored: newer kernels charge the memory
/// cgroup instead, and older ones answer EPERM when a map is made.
fn allow_locked_memory() {
    let unlimited = Rlimit { current: None, maximum: None };
    let _ = setrlimit(Resource::Memlock, unlimited);
}

fn locked(ebpf: &Mutex<Ebpf>) -> MutexGuard<'_, Ebpf> {
    ebpf.lock().unwrap_or_else(PoisonError::into_inner)
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Program, ProgramError> {
    ebpf.program_mut(name).ok_or(ProgramError::NotLoaded)
}

fn load_hook(program: &mut Program) -> Result<(), ProgramError> {
    match program {
        Program::CgroupSockAddr(program) => program.load(),
        Program::CgroupSock(program) => program.load(),
        _ => Err(ProgramError::UnexpectedProgramType),
    }
}
