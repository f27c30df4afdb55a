//! Agents that start on maps with random contents.

use std::cell::RefCell;

use aya::{
    maps::{MapInfo, MapType},
    util::nr_cpus,
};
use bytemuck::bytes_of;
use mcs_agent::core::{
    kernel::dataplane::KernelMapsReader,
    tables::{MapView, Realized},
};
use mcs_common::select::Arrays as _;
use mcs_tests::fuzz::{Regressions, fuzz};
use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
};

use crate::prelude::*;

/// How many agents start, unless there is time for more.
const STARTS: u32 = 4;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("fuzz: junk in the maps when an agent starts", |world| {
        try_all(world, Reach::Anywhere)
    });
    suite.case("fuzz: junk beside what is served, when an agent starts, under load", |world| {
        try_all(world, Reach::Beside)
    });
}

/// Where junk may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    Anywhere,
    /// Not in what clients of the service come by.
    Beside,
}

/// The maps of an agent, without the storage of sockets, which user space cannot fill like this.
const MAPS: [&str; 17] = [
    "run",
    "config/vips",
    "config/frontends",
    "config/states",
    "config/slots",
    "config/backends",
    "config/services",
    "config/clusters",
    "state/affinity",
    "state/udp_pins",
    "state/udp_reverse",
    "state/storage_fallback",
    "state/counters",
    "state/flows",
    "state/flows_used",
    "state/fragments",
    "state/client_affinity",
];

/// One entry of a map.
#[derive(Clone, Debug)]
struct Junk {
    map: &'static str,
    key: Bytes,
    value: Bytes,
}

/// Bytes of a length that follows from the map.
#[derive(Clone, Debug)]
enum Bytes {
    Random(Vec<u8>),
    All(u8),
    /// Small numbers: indices and ids of existing and of missing entries.
    Words(Vec<u16>),
    /// What is there, with some bytes changed.
    Found {
        entry: Index,
        changes: Vec<(Index, u8)>,
    },
}

impl Junk {
    fn any() -> impl Strategy<Value = Vec<Self>> {
        let junk = (select(MAPS.as_slice()), Bytes::any(), Bytes::any())
            .prop_map(|(map, key, value)| Self { map, key, value });
        vec(junk, 1..200)
    }
}

impl Bytes {
    fn any() -> impl Strategy<Value = Self> {
        prop_oneof![
            2 => vec(any::<u8>(), 1..160).prop_map(Self::Random),
            1 => select(vec![0, 1, 0xff]).prop_map(Self::All),
            3 => vec(prop_oneof![0..40_u16, any::<u16>()], 1..40).prop_map(Self::Words),
            4 => (any::<Index>(), vec((any::<Index>(), any::<u8>()), 0..4))
                .prop_map(|(entry, changes)| Self::Found { entry, changes }),
        ]
    }

    /// As bytes of this length.
    fn of_length(&self, length: usize, found: &[Vec<u8>]) -> Vec<u8> {
        let repeated = |bytes: &[u8]| bytes.iter().copied().cycle().take(length).collect();
        match self {
            Self::Random(bytes) => repeated(bytes),
            Self::All(byte) => vec![*byte; length],
            Self::Words(words) => {
                let words = words.iter().flat_map(|word| u32::from(*word).to_ne_bytes());
                repeated(&words.collect::<Vec<_>>())
            }
            Self::Found { entry, changes } => {
                let mut bytes = match found.len() {
                    0 => vec![0; length],
                    count => found[entry.index(count)].clone(),
                };
                bytes.resize(length, 0);
                for (at, byte) in changes {
                    bytes[at.index(length)] = *byte;
                }
                bytes
            }
        }
    }
}

/// A service with another beside it, served by an agent.
struct Scene<'a> {
    site: Site,
    pod: &'a Namespace,
    target: Target,
}

fn try_all(world: &mut World, reach: Reach) -> Result {
    let target = world.target("littered");
    let site = world.start("littered", &["--max-memory=400Ki"], &[&target.service])?;
    let scene = RefCell::new(Scene { site, pod: &world.network.pod, target });
    fuzz(Regressions::RESTORE, STARTS, &Junk::any(), |junk| {
        let mut scene = scene.borrow_mut();
        let _in_cgroup = scene.site.cgroup.visit()?;
        let load = scene.target.clone();
        match reach {
            Reach::Anywhere => scene.start_amid(&junk, reach)?,
            Reach::Beside => {
                let pod = scene.pod;
                Load::of(&load).silent().during(pod, || scene.start_amid(&junk, reach))?;
            }
        }
        // Whatever there was, clients are served, and their state is taken for what it is.
        Load::of(&load).silent().during(scene.pod, || {
            thread::sleep(Duration::from_millis(200));
            Ok(())
        })
    })
}

/// What new clients find. Junk can change what is kept for clients that were there: an address that it makes a departed
/// VIP stays until a sweep, and a backend of another cluster's name while its address serves.
fn for_new_clients(maps: &MapContents) -> String {
    let view = MapView { departed: BTreeMap::new(), ..MapView::of(maps) };
    view.without_kept().to_string()
}

impl Scene<'_> {
    /// Writes the junk once the agent is gone, and starts another one.
    fn start_amid(&mut self, junk: &[Junk], reach: Reach) -> Result {
        self.site.agent.kill()?;
        let pins = Pins::new(self.site.bpffs.path());
        let expected = dump(&pins)?;
        let served = match reach {
            Reach::Anywhere => Served::default(),
            Reach::Beside => Served::by(&expected),
        };
        for Junk { map, key, value } in junk {
            let pin = pins.root().join(map);
            write(&pin, map, key, value, &served).with_context(|| (*map).to_owned())?;
        }
        self.site.agent.come_back(&["--max-memory=400Ki"])?;
        self.site.agent.wait_for(&self.target.service)?;
        let now = dump(&pins)?;
        let (contents, former) = (for_new_clients(&now), for_new_clients(&expected));
        ensure!(contents == former, "the maps hold\n{contents}\ninstead of\n{former}");
        let capacity = pins.capacity()?.context("no maps")?;
        let (_, findings) = Realized::restore(now, capacity);
        ensure!(findings.is_empty(), "the agent leaves {findings:?}");
        // It still works.
        for set in [SETS[1], SETS[0]] {
            self.site.apply(&self.target.clone().with(set).service)?;
        }
        Ok(())
    }
}

fn dump(pins: &Pins) -> Result<MapContents> {
    Ok(KernelMapsReader::open(&pins.config())?.read_all()?)
}

/// The entries that clients come by, by map.
#[derive(Debug, Default)]
struct Served(Option<BTreeMap<&'static str, Vec<Vec<u8>>>>);

impl Served {
    fn by(dump: &MapContents) -> Self {
        let mut keys: BTreeMap<&'static str, Vec<Vec<u8>>> = BTreeMap::new();
        let mut add = |map, key: &[u8]| keys.entry(map).or_default().push(key.to_vec());
        // It says whether the slots of live sockets can be believed.
        add("run", bytes_of(&0_u32));
        for vip in dump.vips.keys() {
            add("config/vips", bytes_of(vip));
        }
        for (key, index) in dump.frontends.iter() {
            add("config/frontends", bytes_of(key));
            add("config/states", bytes_of(index));
            let Some(state) = dump.state(*index) else { continue };
            add("config/services", bytes_of(&state.service));
            for slot in state.extent.range() {
                add("config/slots", bytes_of(&(slot / 2)));
                let id = dump.slot(slot).unwrap_or_default();
                add("config/backends", bytes_of(&id));
                let cluster = dump.backend(id).map_or(0, |backend| backend.cluster);
                add("config/clusters", bytes_of(&cluster));
            }
        }
        Self(Some(keys))
    }

    /// Whether clients may notice that this entry is another one.
    fn is_one(&self, map: &str, key: &[u8], found: &[Vec<u8>]) -> bool {
        self.0.as_ref().is_some_and(|served| {
            let of_programs = map.starts_with("state/") && key.len() > 4;
            served.get(map).is_some_and(|keys| keys.iter().any(|one| one == key))
                || of_programs && found.iter().any(|one| one == key)
        })
    }
}

/// Writes one entry, unless clients may notice.
fn write(pin: &Path, map: &str, key: &Bytes, value: &Bytes, served: &Served) -> Result {
    let info = MapInfo::from_pin(pin)?;
    let kind = info.map_type()?;
    let (key_size, value_size) = (info.key_size() as usize, info.value_size() as usize);
    let value_size = match kind {
        MapType::PerCpuArray => value_size.next_multiple_of(8) * nr_cpus().map_err(|(_, e)| e)?,
        _ => value_size,
    };
    let open = bpf::open_pin(pin)?;
    let is_array = matches!(kind, MapType::Array | MapType::PerCpuArray);
    let (keys, values): (Vec<_>, Vec<_>) = if is_array {
        let first = (0..info.max_entries().min(64)).map(|index| bytes_of(&index).to_vec());
        let read = |key: Vec<u8>| Some((key.clone(), bpf::read(&open, &key, value_size).ok()??));
        first.filter_map(read).unzip()
    } else {
        bpf::entries(&open, key_size, value_size)?.into_iter().unzip()
    };
    let mut key = key.of_length(key_size, &keys);
    if is_array {
        let index = u32::from_ne_bytes(key[..4].try_into()?) % info.max_entries();
        key = bytes_of(&index).to_vec();
    }
    if served.is_one(map, &key, &keys) {
        return Ok(());
    }
    match bpf::write(&open, &key, &value.of_length(value_size, &values)) {
        // It is full.
        Err(error) if error.raw_os_error() == Some(libc::E2BIG) => Ok(()),
        result => Ok(result?),
    }
}
