//! The config maps as sorted lines of text.

use std::fmt;

use mcs_common::{
    BackendState, FRONTEND_AFFINITY_CLIENT_IP, FrontendKey, FrontendState, select::Arrays as _,
};

use super::{
    MapContents,
    convert::{backend_address, cluster_name, key_text, service_key},
};

/// What a reader can reach, one entry to a line, sorted.
///
/// ```text
/// BACKEND 10.0.0.1:80/TCP 10.1.0.5:8080 cluster=west id=1 generation=1
/// FRONTEND 10.0.0.1:80/TCP index=1 service=demo/web affinity=10800 block=0 count=1
/// RETIRED 3
/// VIP 10.0.0.1
/// ```
///
/// The affinity is in seconds, `none` without; `-` stands for an empty name. `RETIRED` counts the
/// backends that were removed and whose ids are not in use anew.
#[derive(Clone, Copy, Debug)]
pub struct Listing<'a> {
    dump: &'a MapContents,
    positions: bool,
}

impl MapContents {
    /// Lists what is there but not where: no index, id, block or generation, and nothing retired.
    /// Equal for maps that came to the same by different ways.
    pub const fn contents(&self) -> Listing<'_> {
        Listing { dump: self, positions: false }
    }
}

impl fmt::Display for MapContents {
    /// As [`Listing`], with positions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Listing { dump: self, positions: true }.fmt(f)
    }
}

impl fmt::Display for Listing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = self.vips();
        for (key, &index) in self.dump.frontends.iter() {
            match self.dump.state(index).filter(|state| state.key == *key) {
                Some(state) => {
                    lines.push(self.frontend(index, &state));
                    lines.extend(self.backends(&state));
                }
                None => lines.push(format!("FRONTEND {} index={index} damaged", key_text(key))),
            }
        }
        lines.extend(self.retired());
        lines.sort_unstable();
        lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl Listing<'_> {
    fn vips(&self) -> Vec<String> {
        self.dump.vips.iter().map(|vip| format!("VIP {}", vip.to_ip())).collect()
    }

    fn frontend(&self, index: u32, state: &FrontendState) -> String {
        let service = self.dump.services.get(state.service as usize).map(service_key);
        let service = match service {
            Some(key) if !key.name.is_empty() => key.to_string(),
            _ => "-".to_owned(),
        };
        let affinity = match state.flags & FRONTEND_AFFINITY_CLIENT_IP {
            0 => "none".to_owned(),
            _ => state.affinity_seconds.to_string(),
        };
        let key = key_text(&state.key);
        let count = state.extent.count;
        if self.positions {
            let block = state.extent.block;
            format!(
                "FRONTEND {key} index={index} service={service} affinity={affinity} block={block} \
                 count={count}"
            )
        } else {
            format!("FRONTEND {key} service={service} affinity={affinity} count={count}")
        }
    }

    fn backends(&self, state: &FrontendState) -> Vec<String> {
        let FrontendState { key, extent, .. } = state;
        let end = extent.block.checked_add(extent.count);
        if end.is_none_or(|end| end as usize > self.dump.slots.len()) && extent.count > 0 {
            return vec![format!("BACKEND {} damaged", key_text(key))];
        }
        extent.range().map(|slot| self.backend(key, slot)).collect()
    }

    fn backend(&self, key: &FrontendKey, slot: u32) -> String {
        let key = key_text(key);
        let Some((id, backend)) =
            self.dump.slot(slot).and_then(|id| Some((id, self.dump.backend(id)?)))
        else {
            return format!("BACKEND {key} slot={slot} damaged");
        };
        let cluster = self.dump.clusters.get(backend.cluster as usize).map(cluster_name);
        let cluster = cluster.filter(|name| !name.is_empty()).unwrap_or_else(|| "-".to_owned());
        let address = backend_address(&backend);
        if self.positions {
            let generation = backend.generation;
            format!("BACKEND {key} {address} cluster={cluster} id={id} generation={generation}")
        } else {
            format!("BACKEND {key} {address} cluster={cluster}")
        }
    }

    fn retired(&self) -> Option<String> {
        let is_retired = |state| state == BackendState::RETIRED;
        let count = self.dump.backends.iter().filter(|backend| is_retired(backend.state)).count();
        (self.positions && count > 0).then(|| format!("RETIRED {count}"))
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        model::Capacity,
        reconcile::{
            convert::frontend_key,
            fixtures::{desired, frontend, id, maps},
        },
    };

    const CAPACITY: Capacity = Capacity { frontends: 4, endpoints: 8, clusters: 2 };

    fn listed() -> crate::reconcile::MapContents {
        let both = [("10.1.0.1:8080", "east"), ("10.1.0.2:8080", "")];
        let former = desired([(id("10.0.0.1", 80), frontend("web", &both))]);
        let mut web = frontend("web", &both[..1]);
        web.affinity_seconds = Some(10_800);
        let six = frontend("six", &[("[fd01::1]:53", "west")]);
        let wanted = desired([(id("10.0.0.1", 80), web), (id("fd00::1", 53), six)]);
        maps(CAPACITY, &[&former, &wanted]).0.contents().clone()
    }

    #[test]
    fn a_dump_shows_what_a_reader_reaches_and_where() {
        assert_eq!(
            listed().to_string(),
            "\
BACKEND 10.0.0.1:80/TCP 10.1.0.1:8080 cluster=east id=1 generation=1
BACKEND [fd00::1]:53/TCP [fd01::1]:53 cluster=west id=3 generation=1
FRONTEND 10.0.0.1:80/TCP index=1 service=demo/web affinity=10800 block=2 count=1
FRONTEND [fd00::1]:53/TCP index=2 service=demo/six affinity=none block=3 count=1
RETIRED 1
VIP 10.0.0.1
VIP fd00::1
"
        );
    }

    #[test]
    fn contents_leave_out_where_it_is() {
        assert_eq!(
            listed().contents().to_string(),
            "\
BACKEND 10.0.0.1:80/TCP 10.1.0.1:8080 cluster=east
BACKEND [fd00::1]:53/TCP [fd01::1]:53 cluster=west
FRONTEND 10.0.0.1:80/TCP service=demo/web affinity=10800 count=1
FRONTEND [fd00::1]:53/TCP service=demo/six affinity=none count=1
VIP 10.0.0.1
VIP fd00::1
"
        );
    }

    #[test]
    fn what_leads_nowhere_is_shown_as_damaged() {
        let mut dump = listed();
        std::sync::Arc::make_mut(&mut dump.frontends).insert(frontend_key(&id("10.0.0.9", 80)), 7);
        dump.slots[2] = 99;
        dump.states[2].extent.count = u32::MAX;
        assert_eq!(
            dump.contents().to_string(),
            "\
BACKEND 10.0.0.1:80/TCP slot=2 damaged
BACKEND [fd00::1]:53/TCP damaged
FRONTEND 10.0.0.1:80/TCP service=demo/web affinity=10800 count=1
FRONTEND 10.0.0.9:80/TCP index=7 damaged
FRONTEND [fd00::1]:53/TCP service=demo/six affinity=none count=4294967295
VIP 10.0.0.1
VIP fd00::1
"
        );
    }
}
