//! `--tell-vip-ranges`: the agents of this cluster are told by a ClusterProperty which ranges ClusterSetIPs are in.

#[cfg(test)]
mod tests;

use std::{
    task::{Context, Poll},
    time::Instant,
};

use clap::{Args, FromArgMatches as _};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use mcs_kube::{VIP_RANGES_PROPERTY, VipRangeList};

use crate::core::{
    clusterset::{Owner, ServiceName},
    control::State,
    feature::{Core, Entry, Feature},
    told::Told,
};

/// The feature in the list.
pub(crate) const ENTRY: Entry = Entry {
    flags: RangeFlags::augment_args,
    start: |matches, _| {
        let tells = RangeFlags::from_arg_matches(matches)?.tells_vip_ranges;
        Ok(Some(Box::new(Teller { tells, told: Told::new(VIP_RANGES_PROPERTY) })))
    },
    ..Entry::NONE
};

#[derive(Args)]
#[group(skip)]
struct RangeFlags {
    /// Tell agents which ranges ClusterSetIPs are in, by the ClusterProperty vip-ranges.clusterset.mcs-agent.io: those without
    /// ranges of their own then reject other addresses, also of imports that other controllers write
    #[arg(long = "tell-vip-ranges", env = "MCS_TELL_VIP_RANGES")]
    tells_vip_ranges: bool,
}

struct Teller {
    tells: bool,
    told: Told,
}

impl Feature for Teller {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.told.poll(cx)
    }

    fn act(&mut self, core: &mut Core, now: Instant) {
        if self.told.note_result(&mut core.state) || !core.may_tell_agents() {
            return;
        }
        let wanted = wanted(&core.state, self.tells);
        self.told.note("read", wanted.as_ref().err().cloned(), &mut core.state);
        if let Ok(Some(ranges)) = wanted {
            self.told.tell(&ranges.to_value(), core, now);
        }
    }

    fn tell_again(&mut self, state: &mut State) {
        self.told.tell_again(state);
    }
}

/// The new value for agents, if it differs from the present one: the ranges of new addresses, and the addresses outside
/// that imports still have.
///
/// Without ranges, agents accept any address. So no ranges are written while imports of other controllers have
/// addresses outside: the first ranges would end these. Later only an adopted import adds its address: otherwise,
/// anybody who may write a ServiceImport could choose an address.
fn wanted(state: &State, tells: bool) -> Result<Option<VipRangeList>, String> {
    let told = state.own.present_vip_ranges();
    if !tells {
        // Agents follow the ranges of an earlier controller.
        let any = VipRangeList::new(&[Ipv4Net::default().into(), Ipv6Net::default().into()]);
        return Ok(any.filter(|any| told.is_some_and(|told| told != any)));
    }
    let new = state.vip_ranges();
    let mut ranges: Vec<IpNet> = vec![new.v4.into(), new.v6.into()];
    for (ip, owners) in state.in_use.outside(&new) {
        if ranges.iter().any(|range| range.contains(&ip)) {
            continue;
        }
        let former = told.and_then(|told| told.ranges().iter().find(|range| range.contains(&ip)));
        if let Some(former) = former {
            ranges.push(*former);
        } else if let Some(other) = owners.iter().find(|owner| !is_own_import(state, owner)) {
            if told.is_none() {
                return Err(format!(
                    "agents accept any ClusterSetIP, since ServiceImport {other} of another controller has {ip}"
                ));
            }
        } else if told.is_none() || state.settings.adopt {
            ranges.push(IpNet::from(ip));
        }
    }
    let wanted = VipRangeList::new(&ranges).or_else(|| {
        // Single addresses stay where agents have them in force.
        ranges.retain(|range| range.prefix_len() < range.max_prefix_len());
        VipRangeList::new(&ranges)
    });
    Ok(wanted.filter(|wanted| told != Some(wanted)))
}

fn is_own_import(state: &State, name: &ServiceName) -> bool {
    let object = state.own.import_object(name);
    state.planned_vips.contains_key(name)
        || object.is_some_and(|object| object.actual.owner == Owner::Us)
}
