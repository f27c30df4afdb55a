//! The ranges of ClusterSetIPs, which the agents of this cluster accept.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use mcs_kube::VipRangeList;

use super::State;
use crate::clusterset::{Owner, ServiceName};

impl State {
    /// The new value for agents, if it differs from the present one: the ranges of new addresses, and the addresses outside
    /// that imports still have.
    ///
    /// Without ranges, agents accept any address. So no ranges are written while imports of other controllers have
    /// addresses outside: the first ranges would end these. Later only an adopted import adds its address: otherwise,
    /// anybody who may write a ServiceImport could choose an address.
    pub(in crate::controller) fn vip_ranges_property(
        &self,
    ) -> Result<Option<VipRangeList>, String> {
        let told = self.own.present_vip_ranges();
        if !self.settings.tells_vip_ranges {
            // Agents follow the ranges of an earlier controller.
            let any = VipRangeList::new(&[Ipv4Net::default().into(), Ipv6Net::default().into()]);
            return Ok(any.filter(|any| told.is_some_and(|told| told != any)));
        }
        let new = self.vip_ranges();
        let mut ranges: Vec<IpNet> = vec![new.v4.into(), new.v6.into()];
        for (ip, owners) in self.in_use.outside(&new) {
            if ranges.iter().any(|range| range.contains(&ip)) {
                continue;
            }
            let former =
                told.and_then(|told| told.ranges().iter().find(|range| range.contains(&ip)));
            if let Some(former) = former {
                ranges.push(*former);
            } else if let Some(other) = owners.iter().find(|owner| !self.is_own_import(owner)) {
                if told.is_none() {
                    return Err(format!(
                        "agents accept any ClusterSetIP, since ServiceImport {other} of another controller has {ip}"
                    ));
                }
            } else if told.is_none() || self.settings.adopt {
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

    fn is_own_import(&self, name: &ServiceName) -> bool {
        let object = self.own.import_object(name);
        self.planned_vips.contains_key(name)
            || object.is_some_and(|object| object.actual.owner == Owner::Us)
    }
}
