//! The fixture of the packet suite: the loaded programs, and maps that each case fills.

mod clock;
mod config_maps;

use std::env;

use aya::{
    Ebpf, EbpfLoader,
    maps::{Array, HashMap, MapData, MapError, PerCpuArray, PerCpuValues},
    programs::SchedClassifier,
};
use bytemuck::Pod;
use mcs_common::{AddressKinds, BackendState, FigureRow, FlowEvictions, Refusal, VipMode, maps};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

use self::{
    clock::{earlier, now_ns, tick_ns},
    config_maps::{
        CONFIG_ENTRIES, ConfigMaps, FIGURE_COLUMN, FIGURE_ROW, HINT_BUCKETS, HINT_WORDS, backend,
    },
};
use crate::{
    kernel,
    prelude::*,
    tables::{Key, Table},
};

pub(crate) use self::config_maps::{Pick, Service};

/// Entries of the LRU maps: more than any case creates, so that the kernel evicts none.
const LRU_ENTRIES: [(&str, u32); 3] =
    [(maps::FLOWS, 8192), (maps::FRAGMENTS, 512), (maps::CLIENT_AFFINITY, 1024)];
/// The programs answer 1000 refusals a second (`icmp_msgs_per_sec`), in bursts of up to 100.
pub(crate) const REFUSAL_NS: u64 = 1_000_000;
pub(crate) const REFUSALS_AT_ONCE: u64 = 100;
const TASK_SCRATCH: &str = "task_scratch";
/// The size of `Scratch` of mcs-ebpf in words of 64 bits.
const SCRATCH_WORDS: usize = 82;
/// `BPF_ANY`: creates or updates an entry.
const ANY: u64 = 0;

/// The hook of a program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Hook {
    FromPod,
    ToPod,
    Uplink,
}

impl Hook {
    pub(crate) const ALL: [Self; 3] = [Self::FromPod, Self::ToPod, Self::Uplink];

    pub(crate) const fn program(self, medium: Medium) -> &'static str {
        match (self, medium) {
            (Self::FromPod, Medium::Bare) => "from_pod_bare",
            (Self::ToPod, Medium::Bare) => "to_pod_bare",
            (Self::Uplink, Medium::Bare) => "uplink_bare",
            (Self::FromPod, _) => "from_pod",
            (Self::ToPod, _) => "to_pod",
            (Self::Uplink, _) => "uplink",
        }
    }
}

/// A common payload size of segments, in bytes.
pub(crate) const SEGMENT: u32 = 1_400;

/// The maps that the programs write.
struct StateMaps {
    counters: PerCpuArray<MapData, u64>,
    figures: PerCpuArray<MapData, FigureRow>,
    flows: HashMap<MapData, Tuple, Flow>,
    flows_used: Array<MapData, u32>,
    evictions: Array<MapData, FlowEvictions>,
    fragments: HashMap<MapData, FragmentKey, Fragment>,
    affinity: HashMap<MapData, ClientKey, Affinity>,
    /// The rate limit of refusals: nanoseconds of credit, and when it was filled up.
    refusals: PerCpuArray<MapData, [u64; 2]>,
    /// The working memory under the CPU and the task.
    task_scratch: HashMap<MapData, [u32; 2], [u64; SCRATCH_WORDS]>,
}

/// What the cases share. Each case begins with empty maps.
pub(crate) struct Fixture {
    programs: Ebpf,
    config: ConfigMaps,
    written: StateMaps,
    pub(crate) family: Family,
    pub(crate) medium: Medium,
    /// The payload of the segments that the device is to cut packets into (`gso_size`), or 0.
    pub(crate) segment: u32,
    /// The first word of the control block of packets.
    pub(crate) control: u32,
    /// The contents of the maps at the last comparison.
    pub(crate) tables: Tables,
    pub(crate) coverage: Coverage,
    /// Whether the kernel runs programs on packets whose sum it knows.
    sums: bool,
}

impl Fixture {
    /// Loads the programs: those for kernels that preempt packet programs, if this is one or `preempts_packets`.
    pub(crate) fn begin(coverage: Coverage, preempts_packets: bool) -> Result<(Self, PathBuf)> {
        let path = env::var_os("MCS_EBPF_OBJECT").map(PathBuf::from).context(
            "MCS_EBPF_OBJECT does not name the eBPF object: use `cargo xtask test packet`",
        )?;
        stay_on_one_cpu()?;
        bpf::allow_locked_memory();
        let object = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut features = Features::probe().context("cannot probe the kernel's eBPF features")?;
        features.preempts_packets |= preempts_packets;
        let mut ebpf =
            loader(features).load(&object).context("cannot create the maps (run as root)")?;
        for medium in [Medium::Ethernet, Medium::Bare] {
            for hook in Hook::ALL {
                let name = hook.program(medium);
                let program = ebpf.program_mut(name).with_context(|| format!("no {name}"))?;
                let program: &mut SchedClassifier = program.try_into()?;
                program.load().with_context(|| format!("the kernel refuses {name}"))?;
            }
        }
        let config = ConfigMaps::take(&mut ebpf)?;
        let written = StateMaps {
            counters: map(&mut ebpf, maps::COUNTERS)?,
            figures: map(&mut ebpf, maps::FIGURES)?,
            flows: map(&mut ebpf, maps::FLOWS)?,
            flows_used: map(&mut ebpf, maps::FLOWS_USED)?,
            evictions: map(&mut ebpf, maps::FLOW_EVICTIONS)?,
            fragments: map(&mut ebpf, maps::FRAGMENTS)?,
            affinity: map(&mut ebpf, maps::CLIENT_AFFINITY)?,
            refusals: map(&mut ebpf, "refusals")?,
            task_scratch: map(&mut ebpf, TASK_SCRATCH)?,
        };
        let mut fixture = Self {
            programs: ebpf,
            config,
            written,
            family: Family::V4,
            medium: Medium::Ethernet,
            segment: 0,
            control: 0,
            tables: Tables::default(),
            coverage,
            sums: false,
        };
        fixture.sums = fixture.can_sum()?;
        // The suite writes no logs; the object's directory has none either.
        Ok((fixture, path.with_file_name("")))
    }

    /// Checks with a packet to no VIP whether the kernel supports `CHECKSUM_COMPLETE`.
    fn can_sum(&self) -> Result<bool> {
        let program: &SchedClassifier =
            self.programs.program("uplink").context("no uplink")?.try_into()?;
        kernel::can_sum(program.fd()?.as_fd())
    }

    /// Whether the kernel can show packets on this medium.
    pub(crate) fn has(&self, medium: Medium) -> bool {
        self.sums || medium != Medium::Summed
    }

    /// Empties every map.
    pub(crate) fn reset(&mut self, family: Family, medium: Medium) -> Result {
        (self.family, self.medium) = (family, medium);
        self.config.reset()?;
        clear(&mut self.written.flows)?;
        clear(&mut self.written.fragments)?;
        clear(&mut self.written.affinity)?;
        self.written.flows_used.set(0, FlowsUsed::NO, ANY)?;
        self.set_evictions(FlowEvictions::default())?;
        (self.segment, self.control) = (0, 0);
        self.allow_refusals(REFUSALS_AT_ONCE)?;
        self.tables = self.read()?;
        Ok(())
    }

    /// Makes a frontend that leads to these backends.
    pub(crate) fn service(
        &mut self,
        protocol: Protocol,
        vip: SocketAddr,
        backends: &[SocketAddr],
    ) -> Result<Service> {
        let frontend = self.config.new_frontend();
        let picks = backends
            .iter()
            .map(|address| self.config.backend(*address, frontend))
            .collect::<Result<Vec<_>>>()?;
        let service = Service { vip, protocol, frontend, backends: picks };
        self.vip(vip)?;
        self.config.publish(&service, 0)?;
        self.config.frontends.insert(service.key(), frontend, ANY)?;
        Ok(service)
    }

    /// Makes a frontend of the first VIP, which leads to these pods, in tables that hold nothing else.
    pub(crate) fn new_service(&mut self, protocol: Protocol, pods: &[u8]) -> Result<Service> {
        self.reset(self.family, self.medium)?;
        self.service_of(protocol, 1, pods)
    }

    /// Makes a frontend of a VIP with this number, which leads to these pods.
    pub(crate) fn service_of(
        &mut self,
        protocol: Protocol,
        vip: u8,
        pods: &[u8],
    ) -> Result<Service> {
        let backends: Vec<_> = pods.iter().map(|pod| self.family.pod(*pod)).collect();
        self.service(protocol, self.family.vip(vip), &backends)
    }

    /// Makes an address a VIP, without ports.
    pub(crate) fn vip(&mut self, vip: SocketAddr) -> Result {
        self.set_mode(vip, VipMode::SERVED)
    }

    /// Changes the mode of a VIP.
    pub(crate) fn set_mode(&mut self, vip: SocketAddr, mode: u32) -> Result {
        self.config.hint(vip, AddressKinds::VIP)?;
        Ok(self.config.vips.insert(Address::from(vip.ip()), mode, ANY)?)
    }

    /// Removes the frontend, and retires its backends.
    pub(crate) fn withdraw(&mut self, service: &Service) -> Result {
        self.config.frontends.remove(&service.key())?;
        service.backends.iter().try_for_each(|pick| self.config.retire(*pick))
    }

    /// Gives the frontend another set of backends. Those that are gone are retired.
    pub(crate) fn change(&mut self, service: &mut Service, backends: &[SocketAddr]) -> Result {
        let old = service.backends.clone();
        service.backends = backends
            .iter()
            .map(|address| {
                let known = old.iter().find(|pick| pick.address == *address);
                known.map_or_else(
                    || self.config.backend(*address, service.frontend),
                    |pick| Ok(*pick),
                )
            })
            .collect::<Result<_>>()?;
        let state = self.config.states.get(&service.frontend, 0)?;
        self.config.publish(service, state.affinity_seconds)?;
        for gone in old.iter().filter(|pick| !service.backends.contains(pick)) {
            self.config.retire(*gone)?;
        }
        Ok(())
    }

    /// Takes a backend out of the frontend's slots, and keeps it for the clients that have it.
    pub(crate) fn keep(&mut self, service: &mut Service, pick: Pick) -> Result {
        let left: Vec<SocketAddr> = service.backends.iter().map(|pick| pick.address).collect();
        let left: Vec<_> = left.into_iter().filter(|one| *one != pick.address).collect();
        self.change(service, &left)?;
        self.config.set_state(pick, BackendState::KEPT)
    }

    /// Reuses the id of a removed backend for another backend of the frontend.
    pub(crate) fn reuse(
        &mut self,
        service: &mut Service,
        gone: Pick,
        address: SocketAddr,
    ) -> Result<Pick> {
        let id = gone.chosen.id;
        let generation = gone.chosen.generation + 1;
        let backend = backend(address, service.frontend, generation);
        self.config.hint(address, AddressKinds::BACKEND)?;
        self.config.backends.set(id, backend, ANY)?;
        let pick = Pick { address, chosen: BackendRef { id, generation } };
        service.backends.push(pick);
        let state = self.config.states.get(&service.frontend, 0)?;
        self.config.publish(service, state.affinity_seconds)?;
        Ok(pick)
    }

    /// Turns on session affinity for the frontend.
    pub(crate) fn stick(&mut self, service: &Service, affinity: Duration) -> Result {
        self.config.publish(service, u32::try_from(affinity.as_secs())?)
    }

    /// Gives the frontend's state the key of another frontend.
    pub(crate) fn mismatch_state(&mut self, service: &Service) -> Result {
        let mut state = self.config.states.get(&service.frontend, 0)?;
        state.key.port += 1;
        Ok(self.config.states.set(service.frontend, state, ANY)?)
    }

    /// Moves the frontend's extent beyond the end of `slots`.
    pub(crate) fn overrun_slots(&mut self, service: &Service) -> Result {
        let mut state = self.config.states.get(&service.frontend, 0)?;
        state.extent.block = 2 * CONFIG_ENTRIES;
        Ok(self.config.states.set(service.frontend, state, ANY)?)
    }

    /// Runs a program on a frame. Returns the start and end too, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) fn run_frame(
        &self,
        hook: Hook,
        frame: &[u8],
    ) -> Result<(RunResult, RangeInclusive<u64>)> {
        let name = hook.program(self.medium);
        let program = self.programs.program(name).with_context(|| format!("no {name}"))?;
        let program: &SchedClassifier = program.try_into()?;
        let fd = program.fd()?;
        let begin = tick_ns();
        let summed = self.medium == Medium::Summed;
        let known = kernel::Context { segment: self.segment, control: self.control };
        let ran = kernel::run(fd.as_fd(), frame, known, summed)?;
        self.coverage.ran(hook, self.family, self.medium);
        Ok((ran, begin..=now_ns()))
    }

    /// The counters, summed over all CPUs. The figures of imports say the same.
    pub(crate) fn counters(&self) -> Result<BTreeMap<&'static str, u64>> {
        let counters: BTreeMap<_, u64> = Counter::ALL
            .iter()
            .map(|counter| {
                let values: PerCpuValues<u64> = self.written.counters.get(&(*counter as u32), 0)?;
                Ok((counter.name(), values.iter().sum()))
            })
            .collect::<Result<_>>()?;
        let mut expected = [[0; FigureRow::COLUMNS as usize]; FIGURE_ROW as usize + 1];
        expected[FIGURE_ROW as usize][usize::from(FIGURE_COLUMN)] =
            counters[Counter::FlowCreated.name()];
        for counter in Counter::ALL {
            if let Some(refusal) = Refusal::of_packet(counter as u32) {
                expected[0][refusal.column() as usize] = counters[counter.name()];
            }
        }
        for (row, expected) in (0..).zip(expected) {
            let cpus = self.written.figures.get(&row, 0)?;
            let count = |column: usize| cpus.iter().map(|one| one.counts[column]).sum::<u64>();
            let counts: Vec<_> = (0..expected.len()).map(count).collect();
            ensure!(counts == expected, "row {row} of figures is {counts:?}, not {expected:?}");
        }
        Ok(counters)
    }

    /// An entry of the flow table.
    pub(crate) fn flow(&self, tuple: &Tuple) -> Result<Option<Flow>> {
        match self.written.flows.get(tuple, 0) {
            Err(MapError::KeyNotFound) => Ok(None),
            flow => Ok(Some(flow?)),
        }
    }

    /// Reads everything that the programs have written.
    pub(crate) fn read(&self) -> Result<Tables> {
        let written = &self.written;
        Ok(Tables {
            counters: self.counters()?,
            flows_used: written.flows_used.get(&0, 0)?,
            flows: table(&written.flows, |flow| {
                (Flow { last_seen_ns: 0, ..flow }, flow.last_seen_ns)
            })?,
            fragments: table(&written.fragments, |first| {
                (Fragment { first_seen_ns: 0, ..first }, first.first_seen_ns)
            })?,
            affinity: table(&written.affinity, |affinity| {
                (Affinity { last_used_ns: 0, ..affinity }, affinity.last_used_ns)
            })?,
        })
    }

    /// The CPUs of the tasks that have working memory, each with the latest packet in it.
    pub(crate) fn packets_of_tasks(&self) -> Result<Vec<(u32, Tuple)>> {
        let entries = self.written.task_scratch.iter();
        entries
            .map(|entry| {
                let ([cpu, _], scratch) = entry?;
                let tuple = bytemuck::cast_slice(&scratch[..size_of::<Tuple>() / 8]);
                Ok((cpu, *bytemuck::from_bytes(tuple)))
            })
            .collect()
    }

    /// Makes the entry older.
    pub(crate) fn age_flow(&mut self, tuple: &Tuple, by: Duration) -> Result {
        let mut flow = self.written.flows.get(tuple, 0)?;
        flow.last_seen_ns = earlier(flow.last_seen_ns, by)?;
        self.written.flows.insert(tuple, flow, ANY)?;
        self.note()
    }

    /// Makes every remembered first fragment older.
    pub(crate) fn age_fragments(&mut self, by: Duration) -> Result {
        for entry in self.written.fragments.iter().collect::<Vec<_>>() {
            let (key, mut first) = entry?;
            first.first_seen_ns = earlier(first.first_seen_ns, by)?;
            self.written.fragments.insert(key, first, ANY)?;
        }
        self.note()
    }

    /// Makes every client's affinity older.
    pub(crate) fn age_affinity(&mut self, by: Duration) -> Result {
        for entry in self.written.affinity.iter().collect::<Vec<_>>() {
            let (key, mut affinity) = entry?;
            affinity.last_used_ns = earlier(affinity.last_used_ns, by)?;
            self.written.affinity.insert(key, affinity, ANY)?;
        }
        self.note()
    }

    /// Gives a client affinity to this backend of the frontend, last used now.
    pub(crate) fn give(&mut self, client: SocketAddr, service: &Service, pick: Pick) -> Result {
        let key = ClientKey { client: client.ip().into(), frontend: service.frontend, pad: 0 };
        let affinity = Affinity { backend: pick.chosen, last_used_ns: now_ns() };
        self.written.affinity.insert(key, affinity, ANY)?;
        self.note()
    }

    /// Evicts an entry.
    pub(crate) fn evict(&mut self, tuple: &Tuple) -> Result {
        self.written.flows.remove(tuple)?;
        self.note()
    }

    /// Evicts the affinity of every client.
    pub(crate) fn evict_affinity(&mut self) -> Result {
        clear(&mut self.written.affinity)?;
        self.note()
    }

    /// Evicts every flow.
    pub(crate) fn evict_flows(&mut self) -> Result {
        clear(&mut self.written.flows)?;
        self.note()
    }

    /// Moves every flow to another device.
    pub(crate) fn hand_over(&mut self, device: u32) -> Result {
        let flows = self.written.flows.iter().collect::<Result<Vec<_>, _>>()?;
        clear(&mut self.written.flows)?;
        for (key, flow) in flows {
            let to = Tuple { device, ..flow.to };
            self.written.flows.insert(Tuple { device, ..key }, Flow { to, ..flow }, ANY)?;
        }
        self.note()
    }

    /// Sets the last use of these entries to now.
    pub(crate) fn plant(&mut self, flows: impl IntoIterator<Item = (Tuple, Flow)>) -> Result {
        for (tuple, flow) in flows {
            self.written.flows.insert(tuple, Flow { last_seen_ns: tick_ns(), ..flow }, ANY)?;
        }
        self.note()
    }

    /// Sets what says whether flows may have been evicted. Zeros: from the first flow on.
    pub(crate) fn set_evictions(&mut self, evictions: FlowEvictions) -> Result {
        Ok(self.written.evictions.set(0, evictions, ANY)?)
    }

    /// Says that flows may have been evicted just now.
    pub(crate) fn set_evicted(&mut self) -> Result {
        self.set_evicted_before(Duration::ZERO)
    }

    /// Says that flows may last have been evicted so long ago, and are not now.
    pub(crate) fn set_evicted_before(&mut self, before: Duration) -> Result {
        let latest_ns = earlier(tick_ns(), before)?;
        self.set_evictions(FlowEvictions { entries: 0, limit: u64::MAX, latest_ns })
    }

    /// What says whether flows may have been evicted.
    pub(crate) fn evictions(&self) -> Result<FlowEvictions> {
        Ok(self.written.evictions.get(&0, 0)?)
    }

    /// Sets the mark that says whether there are flows.
    pub(crate) fn set_flows_used(&mut self, used: u32) -> Result {
        self.written.flows_used.set(0, used, ANY)?;
        self.note()
    }

    /// Allows this many answers to refusals, and no more until the next packet is refused.
    pub(crate) fn allow_refusals(&mut self, count: u64) -> Result {
        let credit_ns = count * REFUSAL_NS;
        // A time in the future, so that no credit is added.
        let everywhere =
            vec![[credit_ns, u64::MAX]; aya::util::nr_cpus().map_err(|(_, error)| error)?];
        Ok(self.written.refusals.set(0, PerCpuValues::try_from(everywhere)?, ANY)?)
    }

    /// Notes the changes that the case itself has made, so that they are not reported as the program's.
    fn note(&mut self) -> Result {
        self.tables = self.read()?;
        Ok(())
    }
}

fn loader(features: Features) -> EbpfLoader<'static> {
    let have_coarse_clock: &u8 = if features.coarse_clock { &1 } else { &0 };
    let scratch_per_task: &u8 = if features.preempts_packets { &1 } else { &0 };
    let mut loader = EbpfLoader::new();
    loader
        .override_global("HAVE_SET_RETVAL", &0_u8, true)
        .override_global("HAVE_COARSE_CLOCK", have_coarse_clock, true)
        .override_global("SCRATCH_PER_TASK", scratch_per_task, true)
        .override_global("AYA_LOG_LEVEL", &0_u8, true)
        .override_global("ONLY_NETNS", &0_u64, true)
        .override_global("COUNT_IMPORTS", &1_u8, true)
        .override_global("HINT_BUCKETS", &HINT_BUCKETS, true)
        .map_max_entries(TASK_SCRATCH, 64)
        .map_max_entries(maps::FIGURES, FIGURE_ROW + 1)
        .map_max_entries(maps::HINTS, HINT_WORDS);
    let config = [
        maps::VIPS,
        maps::FRONTENDS,
        maps::STATES,
        maps::SLOTS,
        maps::BACKENDS,
        maps::SERVICES,
        maps::CLUSTERS,
    ];
    for name in config {
        loader.map_max_entries(name, CONFIG_ENTRIES);
    }
    for (name, entries) in LRU_ENTRIES {
        loader.map_max_entries(name, entries);
    }
    loader
}

fn map<T: TryFrom<aya::maps::Map, Error: std::error::Error + Send + Sync + 'static>>(
    ebpf: &mut Ebpf,
    name: &str,
) -> Result<T> {
    let map = ebpf.take_map(name).with_context(|| format!("no map {name}"))?;
    T::try_from(map).with_context(|| format!("the map {name}"))
}

fn clear<K: Pod + aya::Pod, V: Pod + aya::Pod>(map: &mut HashMap<MapData, K, V>) -> Result {
    for key in map.keys().collect::<Vec<_>>() {
        map.remove(&key?)?;
    }
    Ok(())
}

fn table<K: Key + Pod + aya::Pod, V: Pod + aya::Pod>(
    map: &HashMap<MapData, K, V>,
    split: impl Fn(V) -> (V, u64),
) -> Result<Table<K, V>> {
    map.iter()
        .map(|entry| {
            let (key, value) = entry?;
            let (value, time) = split(value);
            Ok((key.sorted(), Timed { value, time: Time::At(time) }))
        })
        .collect()
}

/// Each CPU has its own limit of refusals, and its own free entries of an LRU map.
fn stay_on_one_cpu() -> Result {
    let mut cpus = CpuSet::new();
    cpus.set(sched_getcpu());
    sched_setaffinity(None, &cpus).context("cannot stay on one CPU")
}
