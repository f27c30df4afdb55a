use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, SocketAddr},
};

use anyhow::{Context as _, bail, ensure};
use mcs_agent::{
    model::FrontendId,
    reconcile::{
        MapContents,
        convert::{backend_address, cluster_name, frontend_id, key_text, service_key},
    },
};
use mcs_common::{
    BackendRef, Extent, FRONTEND_AFFINITY_CLIENT_IP, FrontendKey,
    select::{self, Choice, Lookup},
};

/// What clients find in the maps, looked up as the programs do it.
///
/// ```text
/// vip 10.96.0.1
///   80/TCP shop/web
///     10.1.0.1:8080 east
///     10.2.0.1:8080 west
///   443/TCP shop/web, affinity 10800 s
///     refused
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct View {
    vips: BTreeSet<IpAddr>,
    frontends: BTreeMap<FrontendId, Frontend>,
    /// Frontends that nobody finds, since their VIP is not there.
    hidden: BTreeSet<FrontendId>,
}

/// What clients of a frontend find.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Frontend {
    service: String,
    affinity_seconds: Option<u32>,
    /// By address and source cluster, with what a client remembers of it.
    backends: BTreeMap<(SocketAddr, String), BackendRef>,
}

/// What clients of a destination meet.
#[derive(Clone, Copy, Debug)]
enum Outcome<'a> {
    NotOurs,
    UnknownPort,
    Found(&'a Frontend),
}

impl View {
    /// Looks up all there is. An error if anything is not whole.
    pub(super) fn of(dump: &MapContents) -> anyhow::Result<Self> {
        let vips = dump.vips.iter().map(mcs_common::Address::to_ip).collect();
        let mut view = Self { vips, ..Self::default() };
        for key in dump.frontends.keys() {
            let text = key_text(key);
            let id = frontend_id(key).with_context(|| format!("{text}: unknown protocol"))?;
            if let Some(frontend) = Frontend::find(dump, key).context(text)? {
                view.frontends.insert(id, frontend);
            } else {
                view.hidden.insert(id);
            }
        }
        Ok(view)
    }

    /// Checks that clients find of everything what they find in one of the `others`. Backends and
    /// attributes of a frontend may be of two different ones.
    pub(super) fn check_made_of(&self, others: &[Self]) -> anyhow::Result<()> {
        let all = || others.iter().chain([self]);
        for vip in all().flat_map(|view| &view.vips) {
            let is_ours = self.vips.contains(vip);
            let expected = others.iter().any(|other| other.vips.contains(vip) == is_ours);
            ensure!(expected, "VIP {vip} {}", if is_ours { "appears" } else { "vanishes" });
        }
        for id in all().flat_map(|view| view.frontends.keys()) {
            let found = self.outcome(id);
            let in_any = |same: fn(&Frontend, &Frontend) -> bool| {
                others.iter().any(|other| found.is_like(other.outcome(id), same))
            };
            let is_mixed = !in_any(|one, other| one.backends == other.backends)
                || !in_any(Frontend::has_attributes_of);
            ensure!(!is_mixed, "{id} is neither as before nor as planned: {found:?}");
        }
        Ok(())
    }

    /// Checks that every backend that stays in a frontend keeps what clients remember it by.
    pub(super) fn check_keeps(&self, former: &Self) -> anyhow::Result<()> {
        for (id, frontend) in &self.frontends {
            let Some(before) = former.frontends.get(id) else { continue };
            for (place, now) in &frontend.backends {
                let same = before.backends.get(place).is_none_or(|before| before == now);
                ensure!(same, "{id}: clients of {} would move", place.0);
            }
        }
        Ok(())
    }

    fn outcome(&self, id: &FrontendId) -> Outcome<'_> {
        if !self.vips.contains(&id.ip) {
            return Outcome::NotOurs;
        }
        self.frontends.get(id).map_or(Outcome::UnknownPort, Outcome::Found)
    }
}

impl Outcome<'_> {
    fn is_like(self, other: Self, same: impl Fn(&Frontend, &Frontend) -> bool) -> bool {
        match (self, other) {
            (Self::Found(one), Self::Found(other)) => same(one, other),
            (Self::NotOurs, Self::NotOurs) | (Self::UnknownPort, Self::UnknownPort) => true,
            _ => false,
        }
    }
}

impl Frontend {
    /// `None` if its VIP is not there.
    fn find(dump: &MapContents, key: &FrontendKey) -> anyhow::Result<Option<Self>> {
        let found = match select::lookup(dump, key) {
            Lookup::Found(found) => found,
            Lookup::Miss => return Ok(None),
            other => bail!("{other:?}"),
        };
        let state = found.state;
        let service = dump.services.get(state.service as usize).map(service_key);
        let has_affinity = state.flags & FRONTEND_AFFINITY_CLIENT_IP != 0;
        let mut backends = BTreeMap::new();
        for choice in choices(dump, found.index, state.extent)? {
            let cluster = dump.clusters.get(choice.backend.cluster as usize).map(cluster_name);
            let place = (backend_address(&choice.backend), cluster.unwrap_or_default());
            let twice = format!("{} is there twice", place.0);
            ensure!(backends.insert(place, choice.chosen).is_none(), twice);
        }
        Ok(Some(Self {
            service: service.context("no service")?.to_string(),
            affinity_seconds: has_affinity.then_some(state.affinity_seconds),
            backends,
        }))
    }

    fn has_attributes_of(&self, other: &Self) -> bool {
        (&self.service, self.affinity_seconds) == (&other.service, other.affinity_seconds)
    }
}

/// Where each client may be sent, and sent again if it remembers the choice.
fn choices(dump: &MapContents, frontend: u32, extent: Extent) -> anyhow::Result<Vec<Choice>> {
    let count = u64::from(extent.count);
    (0..count)
        .map(|nth| {
            let random = u32::try_from((nth << 32).div_ceil(count))?;
            select::pick(dump, extent, random)
                .and_then(|choice| select::recall(dump, frontend, choice.chosen))
                .with_context(|| format!("slot {nth} of {extent:?} leads to no usable backend"))
        })
        .collect()
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for vip in &self.vips {
            writeln!(f, "vip {vip}")?;
            for (id, frontend) in self.frontends.iter().filter(|(id, _)| id.ip == *vip) {
                writeln!(f, "  {}/{} {frontend}", id.port, id.protocol)?;
            }
        }
        self.hidden.iter().try_for_each(|id| writeln!(f, "without its vip {id}"))
    }
}

impl fmt::Display for Frontend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.service)?;
        if let Some(seconds) = self.affinity_seconds {
            write!(f, ", affinity {seconds} s")?;
        }
        if self.backends.is_empty() {
            write!(f, "\n    refused")?;
        }
        for (address, cluster) in self.backends.keys() {
            let cluster = if cluster.is_empty() { "of no cluster" } else { cluster };
            write!(f, "\n    {address} {cluster}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use mcs_agent::reconcile::Step;
    use mcs_common::{
        Address, BackendRecord, BackendState, ClusterRecord, FrontendState, ServiceRecord, text,
    };

    use super::*;

    fn vip() -> Address {
        IpAddr::from([10, 96, 0, 1]).into()
    }

    pub(in crate::scenario) fn key() -> FrontendKey {
        FrontendKey::new(vip(), 80, 6)
    }

    pub(in crate::scenario) fn backend(last_byte: u8) -> BackendRecord {
        BackendRecord {
            addr: IpAddr::from([10, 1, 0, last_byte]).into(),
            port: 8080,
            state: BackendState::ACTIVE,
            pad: 0,
            frontend: 1,
            cluster: 1,
            generation: 1,
        }
    }

    /// A frontend with backends 1 and 2 in slots 0 and 1.
    pub(in crate::scenario) fn dump() -> MapContents {
        let mut dump = MapContents::default();
        let state = FrontendState {
            key: key(),
            extent: Extent { block: 0, count: 2 },
            service: 1,
            flags: 0,
            affinity_seconds: 0,
            pad: 0,
        };
        let service = ServiceRecord { namespace: text("shop"), name: text("web") };
        for step in [
            Step::WriteService { id: 1, record: service.into() },
            Step::WriteCluster { id: 1, record: ClusterRecord { name: text("east") }.into() },
            Step::WriteBackend { id: 1, backend: backend(1) },
            Step::WriteBackend { id: 2, backend: backend(2) },
            Step::WriteSlots { block: 0, ids: vec![1, 2] },
            Step::WriteState { index: 1, state: state.into() },
            Step::InsertFrontend { key: key(), index: 1 },
            Step::InsertVip(vip()),
        ] {
            dump.write(&step);
        }
        dump
    }

    fn after(steps: &[Step]) -> anyhow::Result<View> {
        let mut dump = dump();
        for step in steps {
            dump.write(step);
        }
        View::of(&dump)
    }

    #[test]
    fn tells_what_clients_find() {
        let told = |steps: &[Step]| after(steps).unwrap().to_string();
        let attributes = Step::UpdateAttributes {
            index: 1,
            service: 1,
            flags: FRONTEND_AFFINITY_CLIENT_IP,
            affinity_seconds: 60,
        };
        assert_eq!(
            told(&[attributes]),
            "vip 10.96.0.1\n  80/TCP shop/web, affinity 60 s\n    10.1.0.1:8080 east\n    \
             10.1.0.2:8080 east\n"
        );
        let nobody = Step::Flip { index: 1, extent: Extent::default() };
        assert_eq!(told(&[nobody]), "vip 10.96.0.1\n  80/TCP shop/web\n    refused\n");
        assert_eq!(told(&[Step::DeleteVip(vip())]), "without its vip 10.96.0.1:80/TCP\n");
        assert_eq!(told(&[Step::DeleteFrontend(key())]), "vip 10.96.0.1\n");
    }

    #[test]
    fn what_is_not_whole_is_an_error() {
        let write = |id, backend| Step::WriteBackend { id, backend };
        let cases = [
            ("a slot too many", Step::Flip { index: 1, extent: Extent { block: 0, count: 3 } }),
            ("no id", Step::WriteSlots { block: 1, ids: vec![0] }),
            ("one id twice", Step::WriteSlots { block: 1, ids: vec![1] }),
            ("one address twice", write(2, backend(1))),
            ("retired", Step::RetireBackend { id: 2 }),
            ("another's", write(2, BackendRecord { frontend: 2, ..backend(2) })),
            ("another index", Step::InsertFrontend { key: key(), index: 2 }),
        ];
        for (what, step) in cases {
            assert!(after(&[step]).is_err(), "{what}");
        }
    }

    #[test]
    fn a_mixture_is_noticed() {
        let before = after(&[]).unwrap();
        let refused = after(&[Step::Flip { index: 1, extent: Extent::default() }]).unwrap();
        let half =
            after(&[Step::Flip { index: 1, extent: Extent { block: 0, count: 1 } }]).unwrap();
        let gone = after(&[Step::DeleteFrontend(key())]).unwrap();
        let leaked = after(&[Step::DeleteVip(vip())]).unwrap();
        let allowed = [before.clone(), refused.clone()];
        for same in [&before, &refused] {
            same.check_made_of(&allowed).unwrap();
        }
        for other in [half, gone, leaked] {
            assert!(other.check_made_of(&allowed).is_err(), "{other}");
        }
    }

    #[test]
    fn a_backend_that_changes_its_id_is_noticed() {
        let before = after(&[]).unwrap();
        let anew = BackendRecord { generation: 2, ..backend(2) };
        let moved = after(&[Step::WriteBackend { id: 2, backend: anew }]).unwrap();
        before.check_keeps(&before).unwrap();
        assert!(moved.check_keeps(&before).is_err());
        moved.check_keeps(&View::default()).unwrap();
    }
}
