//! The ranges of ClusterSetIPs, which the agents of this cluster accept.

use ipnet::IpNet;
use mcs_kube::{VIP_RANGES_PROPERTY, VipRangeList};

use super::State;
use crate::clusterset::{Owner, ServiceName};

impl State {
    /// What the agents are to be told, if they were told something else: the ranges that new addresses come from, and those that
    /// imports of this controller still have addresses of.
    ///
    /// Agents that were told nothing accept any address. So they are told nothing while imports of other controllers have
    /// addresses outside: the first ranges would take those away.
    pub(in crate::controller) fn vip_ranges_to_tell(&self) -> Result<Option<VipRangeList>, String> {
        let told = self.own.property(VIP_RANGES_PROPERTY);
        let told = told.and_then(|value| VipRangeList::parse(value).ok());
        let new = self.vip_ranges();
        let mut ranges: Vec<IpNet> = vec![new.v4.into(), new.v6.into()];
        for (ip, owners) in self.in_use.outside(&new) {
            if ranges.iter().any(|range| range.contains(&ip)) {
                continue;
            }
            if let Some(told) = &told
                && let Some(former) = told.ranges().iter().find(|range| range.contains(&ip))
            {
                ranges.push(*former);
            } else if let Some(other) = owners.iter().find(|owner| !self.is_own_import(owner)) {
                if told.is_none() {
                    return Err(format!(
                        "agents accept any ClusterSetIP, since ServiceImport {other} of another controller has {ip}"
                    ));
                }
            } else {
                ranges.push(IpNet::from(ip));
            }
        }
        let wanted = VipRangeList::new(&ranges).ok_or_else(|| {
            format!(
                "imports have addresses of more than {} ranges: give the agents --vip-cidr",
                VipRangeList::MOST
            )
        })?;
        Ok((told.as_ref() != Some(&wanted)).then_some(wanted))
    }

    fn is_own_import(&self, name: &ServiceName) -> bool {
        let object = self.own.import_object(name);
        self.planned_vips.contains_key(name)
            || object.is_some_and(|object| object.actual.owner == Owner::Us)
    }
}
