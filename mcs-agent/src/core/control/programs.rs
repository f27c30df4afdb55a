//! The programs and maps in the kernel: loaded, attached, repaired, and replaced by larger ones.

#[cfg(test)]
pub(super) mod fixture;
#[cfg(test)]
mod tests;

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use mcs_kube::report::{AgentInfo, Start};

use super::{
    config::{Config, SocketLb},
    kernel::{
        EvictionRecord, FlowMigration, KernelMaps, KernelMapsReader, LivenessWriter, Programs,
        pinned_capacity, read_run_record, write_run_record,
    },
    repairs::RepairOutcome,
    run_directory::run_directory,
    start,
    tc::PacketPath,
};
use crate::core::{
    kernel::{
        bpf::is_withheld,
        dataplane::{FormerFilter, Run},
        flows::FlowPins,
        loader::{
            CgroupRoot, Classifiers, DirectoryLock, Features, Hook, LoadOptions, Pins, Repair,
            SOCKET_SLOT_BITS, Setting, Tampering, capacity_within, ensure_capable,
            own_netns_cookie,
        },
    },
    model::Capacity,
    tables::{MapContents, MapError, MapReader as _, Maps, Pruning, Realized, Step, plan},
};

/// How often a second agent checks whether the first has ended.
const LOCK_RETRY: Duration = Duration::from_secs(1);

/// Numbers of frontends and backends that the config maps carry for a feature, and its programs read.
pub(crate) trait Columns: Send {
    /// Does a step, with the number of what it writes.
    fn write(&mut self, step: &Step, maps: &mut KernelMaps) -> Result<(), MapError>;

    /// Follows what the maps have by now.
    fn follow(&mut self, realized: &Realized, maps: &mut KernelMaps) -> io::Result<()>;

    /// Writes all numbers to larger maps, which have none.
    fn fill(&self, maps: &mut KernelMaps) -> io::Result<()>;
}

/// The loaded programs, their maps, and the lock that makes this agent the only one to write them.
pub(crate) struct InstalledPrograms {
    pub(crate) maps: KernelMaps,
    /// The options that `programs` were loaded with.
    pub(crate) options: LoadOptions,
    pub(crate) cgroup: CgroupRoot,
    pub(crate) run_directory: PathBuf,
    host: String,
    programs: Programs,
    classifiers: Arc<Classifiers>,
    /// The usual programs and classifiers, while a variant has their place.
    usual: Option<(Programs, Arc<Classifiers>)>,
    /// Whether they have not yet taken it again everywhere.
    is_returning: bool,
    /// Whether the maps contain everything that the maps of the attached programs contain.
    complete: bool,
    keeps: Keeps,
    pub(super) packets: PacketPath,
    /// Set by the feature that has them, if one does.
    pub(crate) columns: Option<Box<dyn Columns>>,
    liveness: LivenessWriter,
    lock: DirectoryLock,
    /// The flags.
    pub(crate) config: Config,
}

/// Which pinned maps are right.
#[derive(Clone, Copy)]
struct Keeps {
    hints: bool,
    /// The slots of sockets.
    slots: bool,
}

impl InstalledPrograms {
    /// Waits to be the only agent, loads the programs, and attaches them unless their maps have to
    /// be filled first.
    pub(super) async fn start(
        config: &Config,
        settings: Vec<Setting>,
        agent: &AgentInfo,
    ) -> anyhow::Result<Self> {
        ensure_capable()?;
        let cgroup = CgroupRoot::find(config.cgroup_root.as_deref())?;
        let pins = Pins::new(&config.bpffs);
        pins.prepare(&config.bpffs)?;
        let lock = wait_for_lock(&pins).await?;
        let run_directory = run_directory(config, &pins)?;
        if let Err(error) =
            start::write(&Start { agent: agent.clone(), failure: None }, &run_directory)
        {
            tracing::warn!("{:#}", anyhow::Error::new(error));
        }
        let features = Features::probe().context("cannot probe the kernel's eBPF features")?;
        let host = agent.host.clone();
        Self::install(config.clone(), settings, host, cgroup, pins, lock, run_directory, features)
            .await
    }

    /// Loads the programs, and attaches them if their maps hold what the maps of the attached programs hold.
    #[expect(clippy::too_many_arguments, reason = "what a start has found, each of another kind")]
    async fn install(
        config: Config,
        settings: Vec<Setting>,
        host: String,
        cgroup: CgroupRoot,
        pins: Pins,
        lock: DirectoryLock,
        run_directory: PathBuf,
        features: Features,
    ) -> anyhow::Result<Self> {
        let only_netns = match config.socket_lb {
            SocketLb::Host => Some(own_netns_cookie().context(
                "--socket-lb=host needs SO_NETNS_COOKIE (Linux 5.14): use --socket-lb=all",
            )?),
            SocketLb::All | SocketLb::Off => None,
        };
        let options = LoadOptions {
            pins: pins.clone(),
            capacity: pinned_capacity(&pins)?
                .unwrap_or_default()
                .at_most(capacity_within(config.max_memory)),
            flows: config.flows,
            features,
            only_netns,
            socket_slot_bits: SOCKET_SLOT_BITS,
            needed: Vec::new(),
            release_orphans: config.release_after.is_some(),
            log_programs: config.log_programs,
            settings,
        };
        let has_state = pins.has_state();
        let former = match read_run_record(&pins.run()) {
            // Without it, what sockets have would count as wrong.
            Err(error) if is_withheld(&error.source) => return Err(error.into()),
            former => former.ok(),
        };
        let keeps_hints = former.as_ref().is_some_and(|run| run.keeps_hints);
        let keeps_slots = former.is_some_and(|run| run.keeps_slots);
        if !keeps_slots {
            pins.remove_socket_slots()?;
        }
        pins.remove_maps_of_features()?;
        let mut programs = Programs::load(&options)?;
        let mut maps = KernelMaps::open(programs.pins().config(), &programs.pins().hints())?;
        maps.prepare_filter(&match (has_state, keeps_hints) {
            (false, _) => FormerFilter::None,
            (true, false) => FormerFilter::Unknown,
            (true, true) => FormerFilter::open(&pins.hints()),
        })?;
        // What another agent called a row or column means something else now.
        maps.set_columns(|_| 0, |_| 0).context("cannot write the columns of features")?;
        let mut liveness = LivenessWriter::open(&programs.pins().alive(), config.release_after)?;
        // Before the programs are attached: a map that is new says that no agent is alive.
        liveness.report(false)?;
        let classifiers = Arc::new(programs.take_classifiers());
        let packets = PacketPath::start(&config, &pins, features).await?;
        let mut installed = Self {
            maps,
            cgroup,
            run_directory,
            host,
            complete: !programs.is_staged(),
            keeps: Keeps {
                hints: keeps_hints,
                slots: keeps_slots || config.socket_lb != SocketLb::Off,
            },
            options,
            programs,
            classifiers,
            usual: None,
            is_returning: false,
            packets,
            columns: None,
            liveness,
            lock,
            config,
        };
        installed.follow_program_log()?;
        installed.carry_over();
        // What is written from now on is in the pinned hints only if the maps of the attached programs are written.
        installed.keeps.hints &= installed.complete;
        installed.record_run()?;
        if installed.complete {
            installed.switch().await?;
        }
        Ok(installed)
    }

    /// Whether an earlier agent's programs are attached. Nobody writes their maps any more.
    pub(super) fn is_outdated(&self) -> bool {
        !self.complete
    }

    /// Lets the columns of a feature follow the maps.
    pub(crate) fn follow_columns(&mut self, realized: &Realized) -> io::Result<()> {
        self.columns.as_mut().map_or(Ok(()), |columns| columns.follow(realized, &mut self.maps))
    }

    /// Checks pins, hooks and the cgroup, and repairs what another process changed or removed. A few
    /// dozen system calls if nothing was. A switch of programs that failed is tried again.
    pub(super) async fn repair(&mut self) -> RepairOutcome {
        let mut repaired = RepairOutcome::default();
        repaired.add(self.repair_cgroup());
        if self.complete && self.programs.is_staged() {
            repaired.add(self.switch().await.map(|()| Vec::new()));
        }
        if self.is_returning {
            repaired.add(self.end_variant().await.map(|()| Vec::new()));
        }
        if !self.programs.is_staged() {
            let cgroup = &self.cgroup;
            repaired.add(self.programs.repair_hooks(cgroup).map_err(anyhow::Error::from));
        }
        let bpffs = self.repair_bpffs();
        if let Ok(made) = &bpffs {
            let pins = self.programs.repair_pins().map_err(anyhow::Error::from);
            // In a new directory all of them are missing: one repair is enough to say so.
            repaired.add(if made.is_empty() { pins } else { pins.map(|_| Vec::new()) });
        }
        repaired.add(bpffs);
        repaired
    }

    /// Tells the programs that somebody writes their maps, and whether from a source that has been read.
    pub(super) fn give_sign_of_life(&mut self, synced: bool) -> Result<(), MapError> {
        self.liveness.report(synced)
    }

    /// Finds the cgroup again if the path now leads to another one than the programs are attached to.
    fn repair_cgroup(&mut self) -> anyhow::Result<Vec<Repair>> {
        if self.config.socket_lb == SocketLb::Off || self.cgroup.is_current() {
            return Ok(Vec::new());
        }
        let found = CgroupRoot::find(self.config.cgroup_root.as_deref())
            .context("the cgroup that programs are attached to is gone")?;
        let is_other = found.id != self.cgroup.id;
        self.cgroup = found;
        let what = format!("the cgroup {} was recreated", self.cgroup.path.display());
        let repair = Repair { tampering: Tampering::Cgroup, what };
        Ok(is_other.then_some(repair).into_iter().collect())
    }

    /// Prepares and locks the bpffs directory again if the path now leads to another one.
    fn repair_bpffs(&mut self) -> anyhow::Result<Vec<Repair>> {
        let root = self.options.pins.root();
        if self.lock.is_of(root) {
            return Ok(Vec::new());
        }
        let lost = || {
            format!(
                "the pins in {} are lost; the attached programs continue to run",
                root.display()
            )
        };
        self.options.pins.prepare(&self.config.bpffs).with_context(lost)?;
        let lock = DirectoryLock::take_now(root).with_context(lost)?;
        self.lock = lock.with_context(|| {
            format!("{}, since another mcs-agent or a command has the directory now", lost())
        })?;
        let what = format!("{} was removed or unmounted; created again", root.display());
        Ok(vec![Repair { tampering: Tampering::Bpffs, what }])
    }

    /// The hooks, each with the id of its program; none if they are not attached.
    pub(crate) fn hook_programs(&self) -> Vec<(&'static Hook, u32)> {
        if self.config.socket_lb == SocketLb::Off || self.programs.is_staged() {
            return Vec::new();
        }
        self.programs.program_ids()
    }

    /// Whether programs are attached, which know the backends of clients.
    pub(crate) fn can_watch(&self) -> bool {
        !self.programs.is_staged()
    }

    /// Attaches the programs of these tracepoints, and detaches those of others.
    pub(crate) fn set_tracepoints(
        &mut self,
        wanted: &[&'static str],
        others: &[&'static str],
    ) -> anyhow::Result<()> {
        Ok(self.programs.set_tracepoints(wanted, others)?)
    }

    /// Attaches the programs, or switches to them, and drops the maps that no program reads any more. A thread does so on
    /// devices, which may have to wait for other processes that change devices.
    async fn switch(&mut self) -> anyhow::Result<()> {
        let pins = self.flow_pins()?;
        let mut flows = FlowMigration::find(&pins);
        flows.copy();
        EvictionRecord::prepare(&pins).context("cannot use the flow table")?;
        if self.config.socket_lb == SocketLb::Off {
            // Before programs that keep them are detached, and no earlier: a start can fail on the way here.
            self.keeps.slots = false;
            self.record_run()?;
        }
        self.attach()?;
        self.packets.attached().await;
        // Flows that began while programs were switched one by one.
        flows.copy();
        self.programs.commit()?;
        if !self.keeps.hints {
            self.keeps.hints = true;
            self.record_run()?;
        }
        Ok(())
    }

    /// Tries that. [`InstalledPrograms::repair`] tries again what fails, and reports it.
    async fn try_to_switch(&mut self) {
        if let Err(error) = self.switch().await {
            tracing::warn!("cannot switch to the new maps: {error:#}; trying again");
        }
    }

    /// The maps now contain everything that is desired: the programs are switched to them if they are not.
    pub(super) async fn filled(&mut self) {
        if !std::mem::replace(&mut self.complete, true) {
            self.try_to_switch().await;
        }
    }

    /// Replaces the maps by larger ones that hold `contents`, which is what they hold now. It does so as a start does: it
    /// makes maps, loads the programs for them, copies, and switches. Nobody may write the maps meanwhile.
    ///
    /// # Errors
    ///
    /// The new maps could not be made. The former ones stay.
    pub(super) async fn grow(
        &mut self,
        capacity: Capacity,
        contents: MapContents,
    ) -> anyhow::Result<()> {
        // A start clears what a switch left that is not complete.
        ensure!(
            !self.complete || !self.programs.is_staged(),
            "the programs are still being switched to the latest maps"
        );
        let needed = self.classifiers.loaded();
        let options = LoadOptions { capacity, needed, ..self.options.clone() };
        // Before they are replaced, if no program reads them yet.
        let former = FormerFilter::open(&self.programs.pins().hints());
        let load = options.clone();
        let make = move || make(&load, &contents, &former).inspect_err(|_| load.pins.discard_new());
        let loaded = tokio::task::spawn_blocking(make).await.context("the thread has ended")?;
        let (mut programs, maps) = loaded?;
        self.liveness = LivenessWriter::open(&programs.pins().alive(), self.config.release_after)?;
        self.classifiers = Arc::new(programs.take_classifiers());
        programs.take_links(&mut self.programs);
        self.programs = programs;
        (self.maps, self.options) = (maps, options);
        if let Some(columns) = &self.columns {
            columns.fill(&mut self.maps)?;
        }
        if let Err(error) = self.follow_program_log() {
            tracing::warn!("{error:#}");
        }
        if self.complete {
            self.try_to_switch().await;
        }
        Ok(())
    }

    /// Switches to a variant of the programs, which has these settings too. Returns the maps that it fills.
    ///
    /// # Errors
    ///
    /// The kernel does not take them, or other programs are being switched to.
    pub(crate) async fn begin_variant(
        &mut self,
        settings: Vec<Setting>,
        maps: &[&str],
    ) -> anyhow::Result<Vec<OwnedFd>> {
        ensure!(
            self.complete && !self.programs.is_staged() && !self.has_variant(),
            "the programs are being switched: try again"
        );
        // They take the maps that are pinned.
        self.programs.repair_pins()?;
        let needed = self.classifiers.loaded();
        let mut options = LoadOptions { needed, ..self.options.clone() };
        options.settings.extend(settings);
        let load = move || Programs::load(&options);
        let mut programs =
            tokio::task::spawn_blocking(load).await.context("the thread has ended")??;
        ensure!(!programs.is_staged(), "the pinned maps have another shape");
        let maps = programs.unpinned_maps(maps).context("the programs lack a map")?;
        programs.take_links(&mut self.programs);
        let classifiers = Arc::new(programs.take_classifiers());
        self.usual = Some((
            std::mem::replace(&mut self.programs, programs),
            std::mem::replace(&mut self.classifiers, classifiers),
        ));
        self.follow_program_log()?;
        self.hook()?;
        self.packets.attached().await;
        Ok(maps)
    }

    /// Whether a variant of the programs is attached.
    pub(crate) const fn has_variant(&self) -> bool {
        self.usual.is_some() || self.is_returning
    }

    /// Switches back to the usual programs. [`InstalledPrograms::repair`] tries again what fails, and reports it.
    pub(crate) async fn end_variant(&mut self) -> anyhow::Result<()> {
        if let Some((programs, classifiers)) = self.usual.take() {
            let mut variant = std::mem::replace(&mut self.programs, programs);
            self.programs.take_links(&mut variant);
            self.classifiers = classifiers;
            self.is_returning = true;
        }
        self.hook()?;
        self.packets.attached().await;
        self.is_returning = false;
        Ok(())
    }

    fn attach(&mut self) -> anyhow::Result<()> {
        self.hook()?;
        if self.config.socket_lb == SocketLb::Off {
            tracing::info!("socket hooks: off");
        } else {
            tracing::info!(
                cgroup = %self.cgroup.path.display(),
                refusal = if self.options.features.set_retval { "ECONNREFUSED" } else { "EPERM" },
                "socket hooks: attached"
            );
        }
        Ok(())
    }

    /// Makes every hook run the programs.
    fn hook(&mut self) -> anyhow::Result<()> {
        if self.config.socket_lb == SocketLb::Off {
            self.options.pins.detach()?;
        } else {
            self.programs.attach(&self.cgroup)?;
        }
        self.packets.attach(&self.classifiers);
        Ok(())
    }

    /// Copies the contents of pinned maps of another shape to the new maps, so that the programs can be switched
    /// before the source is synced.
    fn carry_over(&mut self) {
        if self.complete {
            return;
        }
        let old = KernelMapsReader::open(&self.options.pins.config());
        match old.and_then(|old| copy(&old.read_all()?, &mut self.maps, self.options.capacity)) {
            Ok(()) => {
                tracing::info!("the pinned maps have another shape: moved to new ones");
                self.complete = true;
            }
            Err(error) => tracing::warn!(
                "the pinned maps have another shape and cannot be read: {:#}; the attached programs \
                 use them until the source is synced",
                anyhow::Error::new(error)
            ),
        }
    }

    /// Records in a map which process runs and where its status file is.
    fn record_run(&mut self) -> anyhow::Result<()> {
        let run = Run {
            directory: self.run_directory.clone(),
            host: self.host.clone(),
            pid: u64::from(std::process::id()),
            keeps_hints: self.keeps.hints,
            keeps_slots: self.keeps.slots,
        };
        let directory = self.run_directory.to_string_lossy();
        ensure!(
            directory.len() < Run::max_directory_bytes(),
            "the path {directory} is too long for the map that records it: use a shorter --run-dir"
        );
        write_run_record(&self.programs.pins().run(), &run)
            .context("cannot record this agent in the maps")?;
        Ok(self.programs.commit_run()?)
    }

    /// Where the flow table is pinned.
    pub(crate) fn flow_pins(&self) -> anyhow::Result<FlowPins> {
        self.programs.pins().flows().context("cannot find the flow table")
    }

    /// What the config maps have room for.
    pub(crate) const fn capacity(&self) -> Capacity {
        self.options.capacity
    }

    fn follow_program_log(&mut self) -> anyhow::Result<()> {
        if self.options.log_programs {
            self.programs.follow_log()?;
        }
        Ok(())
    }
}

impl Maps for InstalledPrograms {
    type Reader = <KernelMaps as Maps>::Reader;

    fn write(&mut self, step: &Step) -> Result<(), MapError> {
        match &mut self.columns {
            Some(columns) => columns.write(step, &mut self.maps),
            None => self.maps.write(step),
        }
    }

    fn reader(&self) -> &Self::Reader {
        self.maps.reader()
    }
}

/// Makes larger maps beside those of the attached programs, and loads the programs for them.
fn make(
    options: &LoadOptions,
    contents: &MapContents,
    former: &FormerFilter,
) -> anyhow::Result<(Programs, KernelMaps)> {
    let programs = Programs::load(options)?;
    let mut maps = KernelMaps::open(programs.pins().config(), &programs.pins().hints())?;
    maps.prepare_filter(former)?;
    copy(contents, &mut maps, options.capacity)?;
    Ok((programs, maps))
}

/// Writes `dump` to empty maps. If everything fits, each entry keeps its index, so that flows, affinities and
/// sockets keep their backends. Else the frontends that fit are written.
fn copy(dump: &MapContents, to: &mut impl Maps, capacity: Capacity) -> Result<(), MapError> {
    if dump.fits(capacity) {
        return dump.copy(capacity).try_for_each(|step| to.write(&step));
    }
    let (found, _) = Realized::restore(dump.clone(), Capacity::MOST);
    let plan = plan(&found.in_force(), &Realized::empty(capacity), Pruning::On);
    plan.steps.iter().try_for_each(|step| to.write(step))
}

/// Waits until no other agent has the directory. Meanwhile the state directory is locked, which `status` reports.
async fn wait_for_lock(pins: &Pins) -> anyhow::Result<DirectoryLock> {
    let take = |directory: &Path| {
        DirectoryLock::take_now(directory)
            .with_context(|| format!("cannot lock {}", directory.display()))
    };
    let root = pins.root();
    if let Some(lock) = take(root)? {
        return Ok(lock);
    }
    let holder = read_run_record(&pins.run())
        .map_or_else(|_| "another mcs-agent".to_owned(), |run| run.to_string());
    tracing::warn!(
        "{} belongs to {holder}: waiting for it to end (a second agent needs another --bpffs \
         directory)",
        root.display()
    );
    let _waiting = take(&pins.state())?;
    loop {
        tokio::time::sleep(LOCK_RETRY).await;
        if let Some(lock) = take(root)? {
            return Ok(lock);
        }
    }
}
