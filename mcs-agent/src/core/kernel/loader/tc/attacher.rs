//! Reads which programs are attached to each device, attaches the missing ones and detaches the others.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    io,
    sync::Arc,
};

use super::{
    Classifiers, Mechanism, TcError, TcHook, TcPins,
    clsact::Clsact,
    hook::{Position, is_ours_by_name},
    tcx::{self, TcxLinks},
};
use crate::core::kernel::{
    bpf::{TcxEntry, TcxLinkInfo, program_name},
    devices::{Device, DeviceList},
    loader::Pins,
    netlink::{Direction, FilterPlace, Netlink, Qdisc, TcFilter},
};

/// Attaches programs to devices, and detaches them.
#[derive(Debug)]
pub struct TcAttacher {
    links: TcxLinks,
    clsact: Clsact,
    pins: TcPins,
    classifiers: Arc<Classifiers>,
    mechanism: Mechanism,
    has_tcx: bool,
    /// The devices that were asked, and had no filter and no qdisc for them. A list of qdiscs alone proves neither.
    without_filters: BTreeSet<u32>,
}

/// The programs on a device, ours and those of others.
#[derive(Default)]
pub struct DevicePrograms {
    links: BTreeMap<TcHook, TcxLinkInfo>,
    places: BTreeMap<TcHook, (FilterPlace, Option<u32>)>,
    /// Links whose pins are gone.
    pub unpinned: Vec<TcHook>,
    /// Second filters for a hook that has one.
    spare: Vec<FilterPlace>,
    /// Filters of ours that a newer filter of others of the same priority precedes, which should be the first.
    pub overtaken: Vec<TcHook>,
    qdisc: Option<Qdisc>,
    filters: Vec<TcFilter>,
    /// A program that no agent has loaded, and its place.
    pub foreign: Option<String>,
    /// Whether tcx has one.
    has_foreign_tcx: bool,
    /// Another's program or filter that runs before ours, which should be the first. It may take packets.
    pub ahead: Option<String>,
}

/// A program of ours on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttachedProgram {
    /// Its hook.
    pub hook: TcHook,
    /// How it is attached.
    pub by: Mechanism,
    /// Its id.
    pub program_id: u32,
}

/// The result of [`TcAttacher::attach_exactly`].
#[derive(Debug)]
pub struct AttachOutcome {
    /// The programs that are attached now.
    pub attached: Vec<AttachedProgram>,
    /// Why a program could not be attached or detached.
    pub error: Option<TcError>,
}

impl DevicePrograms {
    /// Whether any program of ours is attached.
    pub fn has_any(&self) -> bool {
        !self.links.is_empty() || !self.places.is_empty()
    }

    /// Whether the program of this name is attached.
    pub fn has(&self, hook: &str) -> bool {
        self.links.keys().chain(self.places.keys()).any(|found| found.name() == hook)
    }
}

impl TcAttacher {
    /// An attacher for the devices of this thread's network namespace. `has_tcx`: whether the kernel has tcx.
    pub fn new(
        pins: &Pins,
        classifiers: Arc<Classifiers>,
        mechanism: Mechanism,
        has_tcx: bool,
    ) -> Result<Self, TcError> {
        let clsact = Clsact::new(pins, Netlink::open()?)?;
        let (links, without_filters) = (TcxLinks::new(pins.tc()), BTreeSet::new());
        let pins = pins.tc();
        Ok(Self { links, clsact, pins, classifiers, mechanism, has_tcx, without_filters })
    }

    /// All devices, and the devices of default routes. A device of `known` is asked for by its index if the kernel's list
    /// lacks it.
    pub async fn list_devices(
        &self,
        known: impl Iterator<Item = u32>,
    ) -> Result<DeviceList, TcError> {
        let netlink = &self.clsact.netlink;
        let mut list = netlink.list_devices().await?;
        let listed: BTreeSet<_> = list.devices.iter().map(|device| device.index).collect();
        for index in known.filter(|index| !listed.contains(index)) {
            list.devices.extend(netlink.device(index).await?);
        }
        Ok(list)
    }

    /// Whether `--tc=auto` attached or left the programs that an earlier agent has on devices.
    pub fn is_of_auto(&self) -> bool {
        self.pins.is_auto()
    }

    /// Notes for the next agent whether `--tc=auto` attached or left the programs on devices.
    pub fn set_auto(&self, is_auto: bool) -> Result<(), TcError> {
        let error = |error| TcError::bpf("note the mode of the packet path", error);
        self.pins.set_auto(is_auto).map_err(error)
    }

    /// Uses these programs from now on instead of the former ones.
    pub fn switch_to(&mut self, classifiers: Arc<Classifiers>) {
        self.classifiers = classifiers;
    }

    /// Replaces a broken netlink socket by a new one.
    pub fn reconnect(&mut self) -> Result<(), TcError> {
        self.clsact.netlink = Netlink::open()?;
        Ok(())
    }

    /// The programs on each device, by its index.
    pub async fn inspect_all(
        &mut self,
        list: &DeviceList,
    ) -> Result<BTreeMap<u32, DevicePrograms>, TcError> {
        let qdiscs = self.clsact.netlink.qdiscs().await?;
        let (mut all, mut without_filters) = (BTreeMap::new(), BTreeSet::new());
        for device in &list.devices {
            let index = device.index;
            let qdisc = qdiscs.get(&index).copied();
            let is_without = qdisc.is_none() && self.without_filters.contains(&index);
            let filters = if is_without { Vec::new() } else { self.clsact.filters(index).await? };
            if qdisc.is_none() && filters.is_empty() {
                without_filters.insert(index);
            }
            all.insert(index, self.inspect(index, qdisc, filters)?);
        }
        self.without_filters = without_filters;
        Ok(all)
    }

    fn inspect(
        &self,
        index: u32,
        qdisc: Option<Qdisc>,
        filters: Vec<TcFilter>,
    ) -> Result<DevicePrograms, TcError> {
        let mut found = DevicePrograms { qdisc, filters, ..DevicePrograms::default() };
        let mut entries = BTreeMap::new();
        if self.has_tcx {
            for direction in Direction::ALL {
                let of_tcx = self.inspect_tcx(index, direction, &mut found)?;
                entries.insert(direction.name(), of_tcx);
            }
        }
        for filter in &found.filters {
            if let Some(hook) = self.clsact.hook(filter) {
                match found.places.entry(hook) {
                    // The first one runs first.
                    Entry::Occupied(_) => found.spare.push(filter.place),
                    Entry::Vacant(entry) => drop(entry.insert((filter.place, filter.program))),
                }
            } else if let Some(id) = filter.program
                && found.foreign.is_none()
            {
                let place = format!("{} filter", filter.place.direction.name());
                found.foreign = foreign_program(id, &place)?;
            }
        }
        found.ahead = self.ahead(&found, &entries)?;
        found.overtaken = self.overtaken(&found)?;
        Ok(found)
    }

    /// How this device gets its programs. Programs of tcx run before any filter and can keep packets from it, so that a device
    /// with one of others gets no filters.
    const fn mechanism(&self, found: &DevicePrograms) -> Mechanism {
        if found.has_foreign_tcx { Mechanism::Tcx } else { self.mechanism }
    }

    /// Another's program or filter that runs before a program of ours, which should be the first on its side. `entries`: the
    /// programs of tcx, by side.
    fn ahead(
        &self,
        found: &DevicePrograms,
        entries: &BTreeMap<&str, Vec<TcxEntry>>,
    ) -> Result<Option<String>, TcError> {
        for hook in TcHook::ALL.into_iter().filter(|hook| hook.position() == Position::First) {
            let direction = hook.direction();
            let of_tcx = entries.get(direction.name()).map(Vec::as_slice).unwrap_or_default();
            let (earlier, ours) = match self.mechanism(found) {
                Mechanism::Tcx => {
                    let Some(link) = found.links.get(&hook) else { continue };
                    let place = of_tcx.iter().position(|entry| entry.link_id == link.id);
                    (&of_tcx[..place.unwrap_or(0)], None)
                }
                Mechanism::Clsact => {
                    let Some((place, _)) = found.places.get(&hook) else { continue };
                    (&[][..], Some(place.priority))
                }
            };
            for entry in earlier {
                let ahead =
                    foreign_program(entry.program_id, &format!("tcx {}", direction.name()))?;
                if ahead.is_some() {
                    return Ok(ahead);
                }
            }
            let filters = found.filters.iter().filter(|filter| {
                filter.place.direction == direction
                    && filter.chain == 0
                    && ours.is_some_and(|ours| filter.place.priority < ours)
            });
            if let Some(filter) = filters.into_iter().next() {
                let (kind, priority) = (&filter.kind, filter.place.priority);
                let side = direction.name();
                return Ok(Some(format!("the {kind} filter of priority {priority} ({side})")));
            }
        }
        Ok(None)
    }

    /// The filters that should be the first, and that others of the same priority precede: the latest runs first.
    fn overtaken(&self, found: &DevicePrograms) -> Result<Vec<TcHook>, TcError> {
        let mut overtaken = Vec::new();
        for (hook, (place, _)) in &found.places {
            if self.mechanism(found) != Mechanism::Clsact || hook.position() != Position::First {
                continue;
            }
            // The kernel lists them in the order in which they run.
            let earlier = found.filters.iter().take_while(|filter| filter.place != *place);
            let of_others = earlier.filter(|filter| {
                let FilterPlace { direction, priority, .. } = filter.place;
                (direction, priority, filter.chain) == (place.direction, place.priority, 0)
                    // Another agent's filter stays in front, or the two would overtake each other for ever.
                    && !is_of_an_agent(filter)
            });
            for program in of_others.filter_map(|filter| filter.program) {
                if foreign_program(program, "")?.is_some() {
                    overtaken.push(*hook);
                    break;
                }
            }
        }
        Ok(overtaken)
    }

    fn inspect_tcx(
        &self,
        device: u32,
        direction: Direction,
        found: &mut DevicePrograms,
    ) -> Result<Vec<TcxEntry>, TcError> {
        let entries = tcx::query(device, direction)?;
        let mut ours = BTreeSet::new();
        for hook in TcHook::ALL.into_iter().filter(|hook| hook.direction() == direction) {
            if let Some((link, is_pinned)) = self.links.find(hook, device, &entries)? {
                ours.insert(link.id);
                found.unpinned.extend((!is_pinned).then_some(hook));
                found.links.insert(hook, link);
            }
        }
        for entry in entries.iter().filter(|entry| !ours.contains(&entry.link_id)) {
            if !found.has_foreign_tcx {
                let place = format!("tcx {}", direction.name());
                found.foreign = foreign_program(entry.program_id, &place)?;
                found.has_foreign_tcx = found.foreign.is_some();
            }
        }
        Ok(entries)
    }

    /// Attaches exactly `hooks` to a device, each once. It attaches the missing ones before it detaches others, so that
    /// no packet passes without a program when the mechanism changes. If the kernel refuses a program that the device needs,
    /// the device is left as it is: the programs of a former agent may serve on.
    pub async fn attach_exactly(
        &mut self,
        device: &Device,
        hooks: &[TcHook],
        found: &DevicePrograms,
    ) -> AttachOutcome {
        let mut attached = Vec::new();
        let missing = |hook: &TcHook| self.classifiers.get(*hook, &device.link_type).err();
        if let Some(error) = hooks.iter().find_map(missing) {
            return AttachOutcome { attached, error: Some(error) };
        }
        for hook in hooks {
            match self.ensure(device, *hook, found).await {
                Ok(program_id) => {
                    let by = self.mechanism(found);
                    attached.push(AttachedProgram { hook: *hook, by, program_id });
                }
                Err(error) => return AttachOutcome { attached, error: Some(error) },
            }
        }
        let error = self.detach_others(device.index, hooks, found).await.err();
        AttachOutcome { attached, error }
    }

    async fn ensure(
        &mut self,
        device: &Device,
        hook: TcHook,
        found: &DevicePrograms,
    ) -> Result<u32, TcError> {
        let classifier = self.classifiers.get(hook, &device.link_type)?;
        let index = device.index;
        match self.mechanism(found) {
            Mechanism::Tcx => match found.links.get(&hook) {
                Some(link) => {
                    if link.program_id != classifier.id {
                        self.links.update(hook, index, &classifier)?;
                    }
                    if found.unpinned.contains(&hook) {
                        self.links.pin(hook, index)?;
                    }
                }
                None => self.links.attach(hook, index, &classifier)?,
            },
            Mechanism::Clsact => match found.places.get(&hook) {
                Some((place, _)) if found.overtaken.contains(&hook) => {
                    let filters = &found.filters;
                    self.clsact.attach(hook, index, &classifier, found.qdisc, filters).await?;
                    self.clsact.netlink.remove_filter(*place).await?;
                }
                Some((_, Some(program))) if *program == classifier.id => {}
                Some((place, _)) => self.clsact.update(hook, *place, &classifier).await?,
                None => {
                    self.without_filters.remove(&index);
                    let filters = &found.filters;
                    self.clsact.attach(hook, index, &classifier, found.qdisc, filters).await?;
                }
            },
        }
        Ok(classifier.id)
    }

    async fn detach_others(
        &self,
        device: u32,
        hooks: &[TcHook],
        found: &DevicePrograms,
    ) -> Result<(), TcError> {
        let stays = |hook: TcHook, by| by == self.mechanism(found) && hooks.contains(&hook);
        for hook in TcHook::ALL.into_iter().rev() {
            if found.links.contains_key(&hook) && !stays(hook, Mechanism::Tcx) {
                let error =
                    |error| TcError::bpf(format!("remove the link of {}", hook.name()), error);
                self.links.remove(hook, device).map_err(error)?;
            }
            if let Some((place, _)) = found.places.get(&hook)
                && !stays(hook, Mechanism::Clsact)
            {
                self.clsact.netlink.remove_filter(*place).await?;
            }
        }
        for place in &found.spare {
            self.clsact.netlink.remove_filter(*place).await?;
        }
        Ok(())
    }

    /// Detaches the links of a device that has left this namespace.
    pub fn detach_links(&self, device: u32) -> Result<(), TcError> {
        let error = |error| TcError::bpf("detach the links of a device that is elsewhere", error);
        TcHook::ALL
            .into_iter()
            .rev()
            .try_for_each(|hook| self.links.remove(hook, device))
            .map_err(error)
    }

    /// Removes pins of devices that are gone, and qdiscs that the agent added and nobody uses.
    pub async fn collect(&self) -> Result<(), TcError> {
        let error = |error| TcError::bpf("remove the links of devices that are gone", error);
        self.links.collect().map_err(error)?;
        self.clsact.collect().await
    }
}

/// The result of [`detach_all`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DetachOutcome {
    /// Programs that were detached.
    pub programs: usize,
    /// Whether filters may be left on devices of another network namespace.
    pub elsewhere: bool,
}

/// Detaches everything that an agent with this directory has attached to devices, and removes its qdiscs. It reaches
/// filters only in the network namespace of this thread.
pub async fn detach_all(pins: &Pins) -> Result<DetachOutcome, TcError> {
    let clsact = Clsact::new(pins, Netlink::open()?)?;
    let mut programs = 0;
    // A list of qdiscs may lack some while devices come and go.
    for Device { index, .. } in clsact.netlink.list_devices().await?.devices {
        let filters = clsact.filters(index).await?;
        let ours = filters.iter().filter_map(|filter| Some((clsact.hook(filter)?, filter.place)));
        let mut ours: Vec<_> = ours.collect();
        ours.sort_by_key(|(hook, _)| Reverse(*hook));
        for (_, place) in ours {
            clsact.netlink.remove_filter(place).await?;
            programs += 1;
        }
    }
    clsact.collect().await?;
    let error = |error| TcError::bpf("detach programs from devices", error);
    programs += pins.tc().remove_links().map_err(error)?;
    Ok(DetachOutcome { programs, elsewhere: clsact.has_others()? })
}

/// Whether this agent or another one has added a filter, by its name: the directory of an agent, and a hook.
fn is_of_an_agent(filter: &TcFilter) -> bool {
    let name = filter.name.as_deref().and_then(|name| name.rsplit('/').next());
    name.is_some_and(|name| TcHook::named(name).is_some())
}

/// Describes a program, unless an agent loaded it or it is gone. Without `CAP_SYS_ADMIN` the kernel tells no names;
/// then the program counts as foreign.
fn foreign_program(id: u32, place: &str) -> Result<Option<String>, TcError> {
    let name = match program_name(id) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Some(String::new()),
        name => name.map_err(|error| TcError::bpf(format!("look at the program {id}"), error))?,
    };
    let foreign = name.filter(|name| !is_ours_by_name(name));
    Ok(foreign.map(|name| {
        let name = if name.is_empty() { "without a name" } else { &name };
        format!("the eBPF program {name} ({place}, id {id})")
    }))
}
