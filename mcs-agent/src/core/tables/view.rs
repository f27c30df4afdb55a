//! What clients find in the config maps: one reading for the command line and for the tests, with the
//! look-ups of the programs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, SocketAddr},
};

use mcs_common::{
    BackendRecord, BackendState, Extent, FRONTEND_AFFINITY_CLIENT_IP, FrontendKey, VipMode,
    select::{self, Arrays, Choice, FrontendMatch, Lookup, Tables as _},
};
use serde::Serialize;

use super::{
    MapContents, NameMap,
    contents::{backend_address, departure, frontend_id, key_text},
};
use crate::core::model::{Departure, FrontendId, ObjectKey};

/// What clients find in the config maps. Displays without positions (index, slots, ids, generations);
/// equality includes them.
///
/// ```text
/// vip 10.96.0.1
///   80/TCP shop/web
///     10.1.0.1:8080 east
///     10.2.0.1:8080 west
///   443/TCP shop/web, affinity 10800s
///     none: refused
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MapView {
    /// All VIPs that are served, also those without ports.
    pub vips: BTreeSet<IpAddr>,
    /// The addresses that were VIPs.
    pub departed: BTreeMap<IpAddr, Departure>,
    /// The frontends whose entries are consistent.
    pub frontends: BTreeMap<FrontendId, FrontendView>,
    /// Entries that contradict each other, in words. A reader that is not the agent may see some that
    /// the agent is just writing.
    pub faults: Vec<String>,
}

/// A frontend in the maps.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FrontendView {
    /// The ServiceImport that it belongs to.
    #[serde(flatten)]
    pub import: ObjectKey,
    /// The ClusterSetIP, port and protocol.
    #[serde(flatten)]
    pub frontend: FrontendId,
    /// Seconds of ClientIP affinity.
    pub affinity_seconds: Option<u32>,
    /// What its clients get.
    pub state: FrontendStatus,
    /// Where its clients go, by address.
    pub backends: Vec<BackendView>,
    /// Present UDP clients stay with this backend, and no new client gets it. [`MapView::of`] lists them.
    pub kept: Vec<BackendView>,
    /// Its index in `states`.
    #[serde(skip)]
    pub index: u32,
    /// Its slots.
    #[serde(skip)]
    pub extent: Extent,
}

/// What the clients of a frontend get.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FrontendStatus {
    /// A backend.
    Ready,
    /// A refusal: it has no backend.
    Refusing,
    /// Nothing: its VIP is not in the map, so the programs leave the address alone.
    Inactive,
}

/// A backend in the maps.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct BackendView {
    /// The pod's address and port.
    pub address: SocketAddr,
    /// The source cluster; empty if its slice does not name one.
    pub cluster: String,
    /// Its id in `backends`, as counters and logs of the programs name it.
    pub id: u32,
    /// How many slots of the frontend name it; 0 if it is kept.
    pub slots: u32,
    /// How often its id was used.
    #[serde(skip)]
    pub generation: u32,
}

impl MapView {
    /// Looks up every frontend.
    pub fn of(contents: &MapContents) -> Self {
        let mut view = Self::default();
        for (vip, mode) in contents.vips.iter() {
            match departure(*mode) {
                None => _ = view.vips.insert(vip.to_ip()),
                Some(departure) => _ = view.departed.insert(vip.to_ip(), departure),
            }
        }
        let mut kept = kept_backends(contents);
        for key in contents.frontends.keys() {
            if let Some(mut frontend) = FrontendView::look_up(contents, key, &mut view.faults) {
                frontend.kept = kept.remove(&frontend.index).unwrap_or_default();
                view.frontends.insert(frontend.frontend, frontend);
            }
        }
        view
    }

    /// What new clients find.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn without_kept(mut self) -> Self {
        self.frontends.values_mut().for_each(|frontend| frontend.kept.clear());
        self
    }
}

impl FrontendView {
    /// Looks up a frontend, as the programs do. `None` if it is not there, or its state is not its own.
    pub fn look_up(
        contents: &MapContents,
        key: &FrontendKey,
        faults: &mut Vec<String>,
    ) -> Option<Self> {
        let mut fault = |what: String| faults.push(format!("{}: {what}", key_text(key)));
        let Some(frontend) = frontend_id(key) else {
            fault("unknown protocol".to_owned());
            return None;
        };
        // As `select::lookup`, for a VIP that is not in the map too.
        let FrontendMatch { index, state } = match select::lookup_port(contents, key) {
            Lookup::Found(found) => found,
            Lookup::Inconsistent => {
                fault("the state at its index is not its own".to_owned());
                return None;
            }
            Lookup::Miss | Lookup::Gone | Lookup::UnknownPort => return None,
        };
        let import = contents.name(NameMap::Services, state.service).import();
        if import.name.is_empty() {
            fault(format!("service {} has no name", state.service));
        }
        let backends = backends(contents, index, state.extent, fault);
        let status = match backends.is_empty() {
            _ if contents.vip(&key.vip) != Some(VipMode::SERVED) => FrontendStatus::Inactive,
            true => FrontendStatus::Refusing,
            false => FrontendStatus::Ready,
        };
        let has_affinity = state.flags & FRONTEND_AFFINITY_CLIENT_IP != 0;
        Some(Self {
            import,
            frontend,
            affinity_seconds: has_affinity.then_some(state.affinity_seconds),
            state: status,
            backends,
            kept: Vec::new(),
            index,
            extent: state.extent,
        })
    }

    /// `10800s`, or `-`.
    pub fn affinity(&self) -> String {
        self.affinity_seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds}s"))
    }

    /// How many backends each source cluster has: `east:2 west:1`, or `-`.
    pub fn clusters(&self) -> String {
        let mut counts = BTreeMap::<&str, usize>::new();
        for backend in &self.backends {
            *counts.entry(backend.cluster()).or_default() += 1;
        }
        let counts: Vec<_> =
            counts.iter().map(|(cluster, count)| format!("{cluster}:{count}")).collect();
        if counts.is_empty() { "-".to_owned() } else { counts.join(" ") }
    }

    /// Address, source cluster, share of new clients, id and state of each backend; one line that says so if new clients
    /// get none.
    pub fn backend_lines(&self) -> Vec<[String; 5]> {
        let none = ["none: refused", "-", "-", "-", "-"].map(str::to_owned);
        let none = self.backends.is_empty().then_some(none);
        let slots = self.extent.count.max(1);
        let backends = self.backends.iter().map(|backend| backend.line("active", slots));
        let kept = self.kept.iter().map(|backend| backend.line("kept", slots));
        none.into_iter().chain(backends).chain(kept).collect()
    }
}

impl BackendView {
    /// `slots`: those of the frontend.
    fn line(&self, state: &str, slots: u32) -> [String; 5] {
        let share = format!("{:.1}%", f64::from(self.slots) * 100.0 / f64::from(slots));
        let [address, id] = [self.address.to_string(), self.id.to_string()];
        [address, self.cluster().to_owned(), share, id, state.to_owned()]
    }

    /// The source cluster, or `unknown`.
    pub fn cluster(&self) -> &str {
        if self.cluster.is_empty() { "unknown" } else { &self.cluster }
    }
}

/// The frontends of these imports, without kept backends. Only they are looked up.
pub fn frontends_of(
    contents: &MapContents,
    imports: &BTreeSet<&ObjectKey>,
) -> BTreeMap<ObjectKey, Vec<FrontendView>> {
    let ids = (0..).zip(contents.names[NameMap::Services as usize].iter());
    let ids = ids.filter(|(_, record)| imports.contains(&record.import()));
    let ids: BTreeSet<u32> = ids.map(|(id, _)| id).collect();
    let mut found = BTreeMap::<_, Vec<_>>::new();
    for (key, index) in contents.frontends.iter() {
        let state = contents.states.get(*index as usize);
        if state.is_some_and(|state| ids.contains(&state.service))
            && let Some(frontend) = FrontendView::look_up(contents, key, &mut Vec::new())
        {
            found.entry(frontend.import.clone()).or_default().push(frontend);
        }
    }
    found
}

/// The kept backends, by the index of their frontend and then by address.
fn kept_backends(contents: &MapContents) -> BTreeMap<u32, Vec<BackendView>> {
    let mut kept = BTreeMap::<u32, Vec<BackendView>>::new();
    for (id, backend) in (0..).zip(contents.backends.iter()) {
        if backend.state == BackendState::KEPT {
            kept.entry(backend.frontend).or_default().push(backend_view(contents, id, backend));
        }
    }
    for backends in kept.values_mut() {
        backends.sort();
    }
    kept
}

fn backend_view(contents: &MapContents, id: u32, backend: &BackendRecord) -> BackendView {
    BackendView {
        address: backend_address(backend),
        cluster: contents.name(NameMap::Clusters, backend.cluster).cluster(),
        id,
        slots: 0,
        generation: backend.generation,
    }
}

/// The backends that clients are sent to, by address.
///
/// A retired backend counts as a fault, but is one of them: the extent may have been read before the
/// agent replaced it.
fn backends(
    contents: &MapContents,
    frontend: u32,
    extent: Extent,
    mut fault: impl FnMut(String),
) -> Vec<BackendView> {
    let end = extent.block.checked_add(extent.count);
    if extent.count > 0 && end.is_none_or(|end| end as usize > contents.slots.len()) {
        fault(format!("{} slots from {} are out of range", extent.count, extent.block));
        return Vec::new();
    }
    let mut backends = BTreeMap::new();
    for (choice, slot) in picks(contents, extent).zip(extent.block..) {
        let Some(choice) = choice else {
            fault(format!("slot {slot} names no backend"));
            continue;
        };
        let (chosen, backend) = (choice.chosen, choice.backend);
        if select::recall_for_new(contents, frontend, chosen).is_none() {
            fault(format!("slot {slot} names backend {}, which is not in use", chosen.id));
        }
        if backend.frontend == frontend && backend.state != BackendState::FREE {
            let view = || backend_view(contents, chosen.id, &backend);
            backends.entry(chosen.id).or_insert_with(view).slots += 1;
        }
    }
    let mut backends: Vec<BackendView> = backends.into_values().collect();
    backends.sort();
    let same = |pair: &&[BackendView]| {
        (pair[0].address, &pair[0].cluster) == (pair[1].address, &pair[1].cluster)
    };
    if let Some([twice, _]) = backends.windows(2).find(same) {
        fault(format!("{} is there twice", twice.address));
    }
    backends
}

/// What clients get whom chance sends to each slot, in the order of the slots.
pub(super) fn picks(tables: &impl Arrays, extent: Extent) -> impl Iterator<Item = Option<Choice>> {
    let count = u64::from(extent.count);
    (0..count).map(move |nth| {
        // The smallest random number that picks this slot.
        let random = u32::try_from((nth << 32).div_ceil(count)).unwrap_or(u32::MAX);
        select::pick(tables, extent, random)
    })
}

impl fmt::Display for MapView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for vip in &self.vips {
            writeln!(f, "vip {vip}")?;
            for (id, frontend) in self.frontends.iter().filter(|(id, _)| id.ip == *vip) {
                writeln!(f, "  {}/{} {frontend}", id.port, id.protocol)?;
            }
        }
        for (vip, departure) in &self.departed {
            writeln!(f, "{departure} {vip}")?;
        }
        for (id, frontend) in &self.frontends {
            if frontend.state == FrontendStatus::Inactive {
                writeln!(f, "without its vip {id} {frontend}")?;
            }
        }
        self.faults.iter().try_for_each(|fault| writeln!(f, "damaged {fault}"))
    }
}

impl fmt::Display for FrontendView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.import)?;
        if self.affinity_seconds.is_some() {
            write!(f, ", affinity {}", self.affinity())?;
        }
        if self.backends.is_empty() {
            f.write_str("\n    none: refused")?;
        }
        for backend in &self.backends {
            write!(f, "\n    {} {}", backend.address, backend.cluster())?;
            if backend.slots > 1 {
                write!(f, " in {} slots", backend.slots)?;
            }
        }
        self.kept
            .iter()
            .try_for_each(|kept| write!(f, "\n    {} {} kept", kept.address, kept.cluster()))
    }
}

impl fmt::Display for FrontendStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "ready",
            Self::Refusing => "refusing",
            Self::Inactive => "inactive",
        })
    }
}

#[cfg(test)]
mod tests {

    use serde_json::json;

    use super::*;
    use crate::core::{
        model::{Capacity, Slots},
        tables::{
            Step,
            contents::frontend_key,
            fixtures::{desired, frontend, id, maps, web},
        },
    };

    const CAPACITY: Capacity =
        Capacity { vips: 4, frontends: 4, endpoints: 8, clusters: 2, imports: 4 };

    fn contents() -> MapContents {
        let both = [("10.1.0.1:8080", "east"), ("10.1.0.2:8080", "")];
        let former = desired([(id("10.0.0.1", 80), frontend("web", &both))]);
        let mut web = frontend("web", &both[..1]);
        web.affinity_seconds = Some(10_800);
        let six = frontend("six", &[("[fd01::1]:53", "west")]);
        let wanted = desired([(id("10.0.0.1", 80), web), (id("fd00::1", 53), six)]);
        maps(CAPACITY, &[&former, &wanted]).0.contents().clone()
    }

    #[test]
    fn shows_what_clients_find() {
        assert_eq!(
            MapView::of(&contents()).to_string(),
            "\
vip 10.0.0.1
  80/TCP demo/web, affinity 10800s
    10.1.0.1:8080 east
vip fd00::1
  53/TCP demo/six
    [fd01::1]:53 west
"
        );
    }

    /// 100,000 random numbers, as programs draw them: chi-square with one degree of freedom is below 10.83 with a
    /// probability of 99.9 %.
    #[test]
    fn clients_are_shared_out_by_slots() {
        let mut wanted = web("web", &[("10.1.0.1:80", "east"), ("10.2.0.1:80", "west")]);
        let of_web = wanted.frontends.get_mut(&id("10.0.0.1", 80)).unwrap();
        of_web.slots = Slots::new([9, 1]);
        let capacity = Capacity { endpoints: 10, ..CAPACITY };
        let maps = maps(capacity, &[&wanted]).0;
        let frontend = &MapView::of(maps.contents()).frontends[&id("10.0.0.1", 80)];
        let shares: Vec<_> =
            frontend.backend_lines().into_iter().map(|[_, _, share, ..]| share).collect();
        assert_eq!(shares, ["90.0%", "10.0%"]);
        let west = frontend.backends[1].id;
        let mut random = fastrand::Rng::with_seed(31);
        let picks =
            (0..100_000).map(|_| select::pick(&maps, frontend.extent, random.u32(..)).unwrap());
        let to_west = picks.filter(|choice| choice.chosen.id == west).count();
        let error = f64::from(u32::try_from(to_west).unwrap()) - 10_000.0;
        let chi_square = error * error / 10_000.0 + error * error / 90_000.0;
        assert!(chi_square < 10.83, "{to_west} of 100000");
    }

    /// The slices of the mcs-api reference controller do not name their source cluster.
    #[test]
    fn lists_backends_of_no_source_cluster() {
        let wanted = web("web", &[("10.1.0.1:8080", ""), ("10.1.0.2:8080", "")]);
        let view = MapView::of(maps(CAPACITY, &[&wanted]).0.contents());
        let frontend = &view.frontends[&id("10.0.0.1", 80)];
        assert_eq!(frontend.clusters(), "unknown:2");
        assert_eq!(
            serde_json::to_value(frontend).unwrap(),
            json!({
                "namespace": "demo", "name": "web",
                "ip": "10.0.0.1", "port": 80, "protocol": "TCP",
                "affinity_seconds": null, "state": "ready",
                "backends": [
                    {"address": "10.1.0.1:8080", "cluster": "", "id": 1, "slots": 1},
                    {"address": "10.1.0.2:8080", "cluster": "", "id": 2, "slots": 1},
                ],
                "kept": [],
            })
        );
        assert_eq!(view.faults, [] as [&str; 0]);
    }

    #[test]
    fn a_frontend_without_backends_refuses_and_without_vip_does_nothing() {
        let mut contents = maps(CAPACITY, &[&web("web", &[])]).0.contents().clone();
        let id = id("10.0.0.1", 80);
        let view = MapView::of(&contents);
        assert_eq!(view.frontends[&id].state, FrontendStatus::Refusing);
        assert_eq!(view.to_string(), "vip 10.0.0.1\n  80/TCP demo/web\n    none: refused\n");
        contents.write(&Step::DeleteVip(id.ip.into()));
        let view = MapView::of(&contents);
        assert_eq!(view.frontends[&id].state, FrontendStatus::Inactive);
        assert!(view.to_string().starts_with("without its vip 10.0.0.1:80/TCP demo/web"));
    }

    #[test]
    fn positions_count_but_are_not_shown() {
        let former = contents();
        let mut now = former.clone();
        now.backends[1].generation += 1;
        let (former, now) = (MapView::of(&former), MapView::of(&now));
        assert_ne!(former, now);
        assert_eq!(former.to_string(), now.to_string());
    }

    #[test]
    fn entries_that_lead_nowhere_are_faults() {
        let mut contents = contents();
        let stray = frontend_key(&id("10.0.0.9", 80));
        contents.frontends.insert(stray, 7);
        contents.slots[2] = 99;
        contents.states[2].extent.count = u32::MAX;
        assert_eq!(
            MapView::of(&contents).faults,
            [
                "10.0.0.1:80/TCP: slot 2 names no backend",
                "10.0.0.9:80/TCP: the state at its index is not its own",
                "[fd00::1]:53/TCP: 4294967295 slots from 3 are out of range",
            ]
        );
    }

    #[test]
    fn no_backend_another_frontends_and_the_same_twice_are_faults() {
        let both = [("10.1.0.1:8080", "east"), ("10.1.0.2:8080", "east")];
        let contents = maps(CAPACITY, &[&web("web", &both)]).0.contents().clone();
        let second = contents.backends[2];
        let faults = |step| {
            let mut contents = contents.clone();
            contents.write(&step);
            MapView::of(&contents).faults
        };
        let same = BackendRecord { addr: contents.backends[1].addr, ..second };
        let others = BackendRecord { frontend: 9, ..second };
        let cases = [
            (
                Step::WriteSlots { block: 1, ids: vec![0] },
                "slot 1 names backend 0, which is not in use",
            ),
            (Step::WriteBackend { id: 2, backend: same }, "10.1.0.1:8080 is there twice"),
            (
                Step::WriteBackend { id: 2, backend: others },
                "slot 1 names backend 2, which is not in use",
            ),
        ];
        for (step, expected) in cases {
            assert_eq!(faults(step), [format!("10.0.0.1:80/TCP: {expected}")]);
        }
    }

    #[test]
    fn a_retired_backend_is_a_fault_and_is_listed() {
        let mut contents = contents();
        contents.write(&Step::RetireBackend { id: 1 });
        let view = MapView::of(&contents);
        assert_eq!(view.frontends[&id("10.0.0.1", 80)].backends.len(), 1);
        assert_eq!(view.faults, ["10.0.0.1:80/TCP: slot 2 names backend 1, which is not in use"]);
    }
}
