//! Operators' settings for source clusters: weights, drains, preferences, and ejection by nodes that do not reach them.
//!
//! One ClusterProperty holds the result, so that a change takes effect at all imports at once. mcs-controller writes it and
//! the agents read it. Without mcs-controller, anybody else may write it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::Arc,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The ClusterProperty of the result.
pub const TRAFFIC_PROPERTY: &str = "traffic.clusterset.mcs-agent.io";

/// The settings by source cluster; other clusters have none. `spec.value` has them as JSON:
///
/// ```text
/// {"east":{"weight":90,"preferred":true},"west":{"weight":10},"north":{"drain":true,"deadline":"2026-12-01T06:00:00Z"},"south":{"unreachable":"eject"}}
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Traffic(pub BTreeMap<Arc<str>, ClusterTraffic>);

/// The settings for one source cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is said or not")]
pub struct ClusterTraffic {
    /// Its share of new clients in proportion to other clusters: 0 to [`Traffic::MOST_WEIGHT`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// New clients get other clusters.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drain: bool,
    /// The drain is not an operator's: its publisher is silent, and `whenStale` of its ClusterPeer is `withdraw`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withdrawn: bool,
    /// From this time on, a drain moves UDP clients too, and TCP clients whose connections agents end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// The drain is past its deadline. An agent sets this for itself; no controller writes it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_past_deadline: bool,
    /// New clients of services whose owners prefer no cluster get this one first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preferred: bool,
    /// The reaction of a node that reaches none of its pods. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<Unreachable>,
}

/// The wish that new clients get other clusters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Drain {
    /// From this time on, former clients get other clusters too.
    pub deadline: Option<Timestamp>,
}

impl Drain {
    /// Reads what an operator writes: `true`, `false` or a deadline such as `2026-12-01T06:00:00Z`.
    pub fn parse(text: &str) -> Option<Option<Self>> {
        Some(match text {
            "false" => None,
            "true" => Some(Self::default()),
            time => Some(Self { deadline: Some(time.parse().ok()?) }),
        })
    }

    /// Joins two wishes: the earlier deadline counts.
    pub fn and(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let deadlines = [one, other].into_iter().flatten().filter_map(|drain| drain.deadline);
        one.or(other).map(|_| Self { deadline: deadlines.min() })
    }
}

/// The treatment of a cluster of which a node reaches no pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unreachable {
    /// The cluster is silent: nodes that do not reach it eject it.
    Eject,
    /// This node has ejected it: new clients and UDP clients get other clusters. An agent sets this for itself; no controller
    /// writes it.
    Ejected,
    /// The same in IPv4 alone.
    EjectedV4,
    /// The same in IPv6 alone.
    EjectedV6,
}

impl Unreachable {
    /// The ejection in the families of either.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Eject, one) | (one, Self::Eject) => one,
            (one, other) if one == other => one,
            _ => Self::Ejected,
        }
    }

    /// Whether this node has ejected the cluster in the family of this address.
    pub const fn is_ejected(self, ip: IpAddr) -> bool {
        match self {
            Self::Eject => false,
            Self::Ejected => true,
            Self::EjectedV4 => ip.is_ipv4(),
            Self::EjectedV6 => ip.is_ipv6(),
        }
    }

    /// ` by IPv4`, if this is about one family alone.
    pub const fn family(self) -> &'static str {
        match self {
            Self::Eject | Self::Ejected => "",
            Self::EjectedV4 => " by IPv4",
            Self::EjectedV6 => " by IPv6",
        }
    }
}

impl fmt::Display for Traffic {
    /// `east weight 90, west weight 10 drained`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, (cluster, wanted)) in self.0.iter().enumerate() {
            let ClusterTraffic {
                weight,
                drain,
                withdrawn,
                deadline,
                is_past_deadline,
                preferred,
                unreachable,
            } = wanted;
            let comma = if nth == 0 { "" } else { ", " };
            write!(f, "{comma}{cluster}")?;
            if let Some(weight) = weight {
                write!(f, " weight {weight}")?;
            }
            if *drain {
                f.write_str(if *withdrawn { " withdrawn" } else { " drained" })?;
            }
            match deadline.filter(|_| *drain) {
                Some(_) if *is_past_deadline => f.write_str(" past its deadline")?,
                Some(deadline) => write!(f, " until {deadline:.0}")?,
                None => {}
            }
            if *preferred {
                f.write_str(" preferred")?;
            }
            match unreachable {
                None => {}
                Some(Unreachable::Eject) => f.write_str(" silent")?,
                Some(ejected) => write!(f, " ejected{}", ejected.family())?,
            }
        }
        Ok(())
    }
}

impl Traffic {
    /// The greatest weight.
    pub const MOST_WEIGHT: u32 = 1000;
    /// The default weight, if another cluster has one.
    pub const DEFAULT_WEIGHT: u32 = 100;

    /// Reads `spec.value`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let traffic: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        for (cluster, ClusterTraffic { weight, .. }) in &traffic.0 {
            if let Some(weight) = weight {
                Self::check_weight(*weight).map_err(|error| format!("{cluster}: {error}"))?;
            }
        }
        Ok(traffic)
    }

    /// Fails for a weight beyond the greatest.
    pub fn check_weight(weight: u32) -> Result<u32, String> {
        if weight <= Self::MOST_WEIGHT {
            Ok(weight)
        } else {
            Err(format!("weight {weight} is out of range; use 0 to {}", Self::MOST_WEIGHT))
        }
    }

    /// `spec.value`.
    pub fn to_value(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The weight of a cluster, if it has one.
    pub fn weight(&self, cluster: &str) -> Option<u32> {
        self.0.get(cluster)?.weight
    }

    /// Whether any cluster has a weight.
    pub fn has_weights(&self) -> bool {
        self.0.values().any(|wanted| wanted.weight.is_some())
    }

    /// Whether any cluster is preferred.
    pub fn has_preferred(&self) -> bool {
        self.0.values().any(|wanted| wanted.preferred)
    }

    /// Whether new clients get this cluster first.
    pub fn is_preferred(&self, cluster: &str) -> bool {
        self.0.get(cluster).is_some_and(|wanted| wanted.preferred)
    }

    /// Whether operators want new clients to get other clusters.
    pub fn is_drained(&self, cluster: &str) -> bool {
        self.0.get(cluster).is_some_and(|wanted| wanted.drain || wanted.weight == Some(0))
    }

    /// How this node has ejected a cluster, if it has.
    pub fn ejected(&self, cluster: &str) -> Option<Unreachable> {
        self.0.get(cluster)?.unreachable.filter(|found| *found != Unreachable::Eject)
    }

    /// Whether this node has ejected a cluster in the family of this address.
    pub fn is_ejected(&self, cluster: &str, ip: IpAddr) -> bool {
        self.ejected(cluster).is_some_and(|found| found.is_ejected(ip))
    }

    /// Whether new clients of a family get other clusters.
    pub fn is_passed_over(&self, cluster: &str, ip: IpAddr) -> bool {
        self.is_drained(cluster) || self.is_ejected(cluster, ip)
    }

    /// Whether a cluster is drained only because it is silent.
    pub fn is_withdrawn(&self, cluster: &str) -> bool {
        self.0.get(cluster).is_some_and(|wanted| wanted.drain && wanted.withdrawn)
    }

    /// The wish of operators to drain a cluster.
    pub fn drain(&self, cluster: &str) -> Option<Drain> {
        let wanted = self.0.get(cluster).filter(|wanted| wanted.drain && !wanted.withdrawn)?;
        Some(Drain { deadline: wanted.deadline })
    }

    /// Whether a drain is past its deadline: no client keeps this cluster.
    pub fn is_past_deadline(&self, cluster: &str) -> bool {
        self.0.get(cluster).is_some_and(|wanted| wanted.drain && wanted.is_past_deadline)
    }

    /// The clusters whose drain is past its deadline at this time.
    pub fn past_deadline(&self, now: Timestamp) -> BTreeSet<Arc<str>> {
        let is_past = |wanted: &ClusterTraffic| {
            wanted.drain && wanted.deadline.is_some_and(|deadline| deadline <= now)
        };
        let past = self.0.iter().filter(|(_, wanted)| is_past(wanted));
        past.map(|(cluster, _)| cluster.clone()).collect()
    }

    /// Marks these clusters as past the deadline of their drain, and no others.
    pub fn note_past_deadline(&mut self, clusters: &BTreeSet<Arc<str>>) {
        for (cluster, wanted) in &mut self.0 {
            wanted.is_past_deadline = clusters.contains(cluster);
        }
    }

    /// Whether nodes that reach none of its pods eject this cluster.
    pub fn may_eject(&self, cluster: &str) -> bool {
        self.0.get(cluster).is_some_and(|wanted| wanted.unreachable.is_some())
    }

    /// The clusters that a node ejects if it reaches none of their pods.
    pub fn ejectable(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().filter(|(_, wanted)| wanted.unreachable.is_some()).map(|(cluster, _)| cluster)
    }

    /// Marks these clusters as ejected, if their setting allows it, and no others.
    pub fn eject(&mut self, clusters: &BTreeMap<Arc<str>, Unreachable>) {
        for (cluster, wanted) in &mut self.0 {
            let found = clusters.get(cluster).copied().unwrap_or(Unreachable::Eject);
            wanted.unreachable = wanted.unreachable.map(|_| found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let text = r#"{"east":{"weight":90,"preferred":true},"north":{"drain":true},"south":{"weight":0}}"#;
        let traffic = Traffic::parse(text).unwrap();
        assert_eq!(traffic.to_value(), text);
        assert_eq!(traffic.to_string(), "east weight 90 preferred, north drained, south weight 0");
        assert_eq!(traffic.weight("east"), Some(90));
        let drained = ["east", "north", "south", "west"].map(|one| traffic.is_drained(one));
        assert_eq!(drained, [false, true, true, false]);
        assert!(traffic.is_preferred("east") && !traffic.is_preferred("south"));
        assert_eq!(Traffic::parse("{}"), Ok(Traffic::default()));
        // A later version may add fields.
        let later = Traffic::parse(r#"{"east":{"drain":true,"until":5}}"#).unwrap();
        assert!(later.is_drained("east"));
    }

    #[test]
    fn a_deadline_counts_while_its_cluster_is_drained() {
        let text = r#"{"east":{"drain":true,"deadline":"2026-12-01T06:00:00Z"},"north":{"deadline":"2026-12-01T06:00:00Z"},"west":{"drain":true}}"#;
        let mut traffic = Traffic::parse(text).unwrap();
        assert_eq!(traffic.to_value(), text);
        assert_eq!(
            traffic.to_string(),
            "east drained until 2026-12-01T06:00:00Z, north, west drained"
        );
        let past = |text: &str, traffic: &Traffic| traffic.past_deadline(text.parse().unwrap());
        assert_eq!(past("2026-12-01T05:59:59Z", &traffic), [].into());
        let east = past("2026-12-01T06:00:00Z", &traffic);
        assert_eq!(east, ["east".into()].into());
        traffic.note_past_deadline(&east);
        assert_eq!(traffic.to_string(), "east drained past its deadline, north, west drained");
        assert_eq!(
            ["east", "north", "west"].map(|one| traffic.is_past_deadline(one)),
            [true, false, false]
        );
        traffic.note_past_deadline(&[].into());
        assert_eq!(traffic.to_value(), text);
    }

    #[test]
    fn a_silent_cluster_that_is_withdrawn_is_drained_by_nobody() {
        let text = r#"{"east":{"drain":true},"west":{"drain":true,"withdrawn":true}}"#;
        let traffic = Traffic::parse(text).unwrap();
        assert_eq!(traffic.to_value(), text);
        assert_eq!(traffic.to_string(), "east drained, west withdrawn");
        assert!(traffic.is_drained("west"), "new clients get others all the same");
        assert_eq!(["east", "west"].map(|one| traffic.is_withdrawn(one)), [false, true]);
        assert_eq!(["east", "west"].map(|one| traffic.drain(one).is_some()), [true, false]);
    }

    #[test]
    fn the_earlier_of_two_deadlines_counts() {
        let drain = |text: &str| Drain::parse(text).unwrap();
        let (open, later) = (drain("true"), drain("2026-12-01T07:00:00Z"));
        let earlier = drain("2026-12-01T06:00:00Z");
        for (one, other, expected) in [
            (None, None, None),
            (open, None, open),
            (open, later, later),
            (earlier, later, earlier),
            (None, earlier, earlier),
        ] {
            assert_eq!(Drain::and(one, other), expected);
            assert_eq!(Drain::and(other, one), expected);
        }
        assert_eq!(Drain::parse("false"), Some(None));
        assert_eq!(Drain::parse("soon"), None);
    }

    #[test]
    fn what_is_malformed_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", "EOF"),
            ("90", "invalid type"),
            (r#"{"east":90}"#, "invalid type"),
            (r#"{"east":{"weight":1001}}"#, "east: weight 1001 is out of range; use 0 to 1000"),
            (r#"{"east":{"weight":-1}}"#, "invalid value"),
        ] {
            let error = Traffic::parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
    #[test]
    fn only_a_cluster_that_may_be_ejected_is() {
        let text = r#"{"east":{"weight":9},"north":{"unreachable":"ejected"},"west":{"unreachable":"eject"}}"#;
        let mut traffic = Traffic::parse(text).unwrap();
        let clusters = |names: &[&str], how| {
            names.iter().map(|name| (Arc::from(*name), how)).collect::<BTreeMap<_, _>>()
        };
        traffic.eject(&clusters(&["east", "west", "far"], Unreachable::Ejected));
        assert_eq!(traffic.to_string(), "east weight 9, north silent, west ejected");
        let (v4, v6) = (IpAddr::from([10, 2, 0, 1]), IpAddr::from([0xfd02, 0, 0, 0, 0, 0, 0, 1]));
        let passed_over = |traffic: &Traffic, ip| {
            ["east", "north", "west", "far"].map(|one| traffic.is_passed_over(one, ip))
        };
        assert_eq!(passed_over(&traffic, v4), [false, false, true, false]);
        assert_eq!(passed_over(&traffic, v6), [false, false, true, false]);
        assert!(!traffic.is_drained("west"), "no operator says so");
        traffic.eject(&clusters(&["west"], Unreachable::EjectedV4));
        assert_eq!(traffic.to_string(), "east weight 9, north silent, west ejected by IPv4");
        assert_eq!(passed_over(&traffic, v4), [false, false, true, false]);
        assert_eq!(passed_over(&traffic, v6), [false; 4]);
        traffic.eject(&clusters(&[], Unreachable::Ejected));
        assert_eq!(traffic.to_string(), "east weight 9, north silent, west silent");
    }

    #[test]
    fn ejections_of_both_families_are_one_of_the_cluster() {
        use Unreachable::{Eject, Ejected, EjectedV4, EjectedV6};
        for (one, other, expected) in [
            (Eject, EjectedV4, EjectedV4),
            (EjectedV4, EjectedV4, EjectedV4),
            (EjectedV4, EjectedV6, Ejected),
            (EjectedV6, Ejected, Ejected),
        ] {
            assert_eq!((one.and(other), other.and(one)), (expected, expected));
        }
    }
}
