//! The ClusterProperty with the ranges of a cluster's ClusterSetIPs.
//!
//! mcs-controller writes it, and agents without `--vip-cidr` read it. Without mcs-controller, anybody else may write it.

use ipnet::IpNet;

/// The ClusterProperty of the ranges.
pub const VIP_RANGES_PROPERTY: &str = "vip-ranges.clusterset.mcs-agent.io";

/// Ranges of ClusterSetIPs. `spec.value` has them separated by commas: `241.0.0.0/8,fd3a:5c1e:77::/96`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VipRangeList(Vec<IpNet>);

impl VipRangeList {
    /// The most ranges.
    pub const MOST: usize = 1000;

    /// These ranges, merged. `None` if more than [`Self::MOST`] remain.
    pub fn new(ranges: &[IpNet]) -> Option<Self> {
        let mut ranges = IpNet::aggregate(&ranges.to_vec());
        ranges.sort();
        (ranges.len() <= Self::MOST).then_some(Self(ranges))
    }

    /// Reads `spec.value`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let range = |text: &str| {
            let text = text.trim();
            text.parse::<IpNet>().map_err(|_| format!("{text:?} is no range such as 241.0.0.0/8"))
        };
        let ranges =
            text.split(',').map(range).take(1 + Self::MOST).collect::<Result<Vec<_>, _>>()?;
        if ranges.len() > Self::MOST {
            return Err(format!("it has more than {} ranges", Self::MOST));
        }
        Ok(Self(ranges))
    }

    /// `spec.value`.
    pub fn to_value(&self) -> String {
        let ranges: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        ranges.join(",")
    }

    /// The ranges.
    pub fn ranges(&self) -> &[IpNet] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn what_was_written_is_read() {
        let list =
            VipRangeList::new(&ranges(&["fd00::/96", "241.0.0.0/8", "241.0.0.7/32"])).unwrap();
        assert_eq!(list.to_value(), "241.0.0.0/8,fd00::/96");
        assert_eq!(VipRangeList::parse(&list.to_value()), Ok(list));
        let by_hand = VipRangeList::parse(" 241.0.0.0/8, fd00::/96").unwrap();
        assert_eq!(by_hand.ranges(), ranges(&["241.0.0.0/8", "fd00::/96"]));
    }

    #[test]
    fn what_is_malformed_is_refused_with_a_reason() {
        for text in ["", "241.0.0.0/8,", "241.0.0.0", "241.0.0.0/33"] {
            let error = VipRangeList::parse(text).unwrap_err();
            assert!(error.contains("is no range"), "{text}: {error}");
        }
        let many = vec!["241.0.0.0/8"; 1 + VipRangeList::MOST].join(",");
        assert_eq!(VipRangeList::parse(&many).unwrap_err(), "it has more than 1000 ranges");
        // None of them is next to another.
        let apart =
            (0..=VipRangeList::MOST).map(|one| format!("10.{}.{}.0/32", one / 256, one % 256));
        let apart: Vec<_> = apart.map(|text| text.parse().unwrap()).collect();
        assert_eq!(VipRangeList::new(&apart), None);
    }
}
