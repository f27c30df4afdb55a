//! VIPs that came from ranges of Services with imports of others: one that no Service has any more may become the address of
//! another one. The import says so, and gets another VIP after a grace time.

#[cfg(test)]
mod tests;

use std::{collections::HashMap, net::IpAddr, time::Instant};

use mcs_kube::reasons::Reason;

use crate::core::{
    clock,
    clusterset::{Actual, ActualImport, LostVip, Owner, ServiceName, WantedImport},
    control::{Planned, State},
    feature::{Core, Entry, Feature},
    plan::Write,
};

/// The feature in the list.
pub(crate) const ENTRY: Entry =
    Entry { start: |_, _| Ok(Some(Box::new(Lost::default()))), ..Entry::NONE };

/// Services whose imports have lost a VIP, each until it is given up; `None`: it is.
#[derive(Default)]
struct Lost(HashMap<ServiceName, Option<Instant>>);

impl Lost {
    fn forget(&mut self, state: &mut State, now: Instant) {
        for (name, until) in &mut self.0 {
            if until.take_if(|until| *until <= now).is_some() {
                state.imports.add(name.clone());
            }
        }
    }
}

impl Feature for Lost {
    fn act(&mut self, core: &mut Core, now: Instant) {
        self.forget(&mut core.state, now);
    }

    /// The VIPs of an import within a range of Services that no Service of its namespace has. A later Service that is not
    /// derived from the import got the address from the API server by chance.
    fn lost_vips(&self, name: &ServiceName, actual: &Actual, state: &State) -> Vec<LostVip> {
        let may_write = |import: &&ActualImport| state.settings.adopt || import.owner == Owner::Us;
        let Some(import) = actual.import.as_ref().filter(may_write) else { return vec![] };
        let is_said =
            import.status.conditions.iter().any(|one| one.reason == Reason::AddressInServiceRange);
        let until = self.0.get(name);
        let lost = |vip: &IpAddr| {
            if !state.own.service_ranges().any(|range| range.contains(vip)) {
                return None;
            }
            let is_given_up = match state.own.service_with(*vip) {
                None => until == Some(&None),
                Some((service, object)) => {
                    let is_near = service.namespace() == name.namespace();
                    let is_derived = object.is_derived
                        && object.import().is_none_or(|import| import == name.name());
                    if is_near && (is_derived || !is_said && until.is_none()) {
                        return None;
                    }
                    true
                }
            };
            Some(LostVip { vip: *vip, is_given_up })
        };
        import.import.ips.iter().filter_map(lost).collect()
    }

    /// Reports each lost VIP, and each VIP that is given up, once.
    fn note_planned(&mut self, plan: &Planned, _: &mut Vec<Write>, state: &mut State) {
        let Planned { name, wanted, lost, former_vips, .. } = plan;
        let is_written = matches!(wanted.import, WantedImport::Present(..));
        let Some(first) = lost.first().filter(|_| is_written) else {
            self.0.remove(name);
            return;
        };
        if !self.0.contains_key(name) {
            self.0.insert(name.clone(), Some(clock::now() + LostVip::GRACE));
            tracing::warn!("ServiceImport {name}: {first}");
            state.tell_of_import(name, Reason::AddressInServiceRange, first.to_string());
        }
        for LostVip { vip, .. } in lost {
            let was_planned = former_vips.as_ref().is_none_or(|planned| planned.contains(vip));
            if was_planned && !wanted.vips().is_empty() && !wanted.vips().contains(vip) {
                let vips: Vec<_> = wanted.vips().iter().map(ToString::to_string).collect();
                let vips = vips.join(", ");
                let note = format!(
                    "{vip} was the address of a Service that is gone: the import has {vips} now"
                );
                tracing::warn!("ServiceImport {name}: {note}");
                state.tell_of_import(name, Reason::AddressChanged, note);
            }
        }
    }
}
