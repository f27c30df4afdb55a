//! Operators' settings for source clusters: weights, drains, preferences, and ejection by nodes that do not reach them.
//!
//! One ClusterProperty holds the result, so that a change takes effect at all imports at once. mcs-controller writes it and
//! the agents read it. Without mcs-controller, anybody else may write it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
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
pub struct ClusterTraffic {
    /// Its share of new clients in proportion to other clusters: 0 to [`Traffic::MOST_WEIGHT`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// New clients get other clusters.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drain: bool,
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
    /// This node has ejected it: new clients get other clusters. An agent sets this for itself; no controller writes it.
    Ejected,
}

impl fmt::Display for Traffic {
    /// `east weight 90, west weight 10 drained`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, (cluster, wanted)) in self.0.iter().enumerate() {
            let ClusterTraffic {
                weight,
                drain,
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
                f.write_str(" drained")?;
            }
            match deadline.filter(|_| *drain) {
                Some(_) if *is_past_deadline => f.write_str(" past its deadline")?,
                Some(deadline) => write!(f, " until {deadline:.0}")?,
                None => {}
            }
            if *preferred {
                f.write_str(" preferred")?;
            }
            f.write_str(match unreachable {
                None => "",
                Some(Unreachable::Eject) => " silent",
                Some(Unreachable::Ejected) => " ejected",
            })?;
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

    /// Whether new clients get other clusters.
    pub fn is_drained(&self, cluster: &str) -> bool {
        self.0.get(cluster).is_some_and(|wanted| {
            let is_ejected = wanted.unreachable == Some(Unreachable::Ejected);
            wanted.drain || wanted.weight == Some(0) || is_ejected
        })
    }

    /// The wish to drain a cluster.
    pub fn drain(&self, cluster: &str) -> Option<Drain> {
        let wanted = self.0.get(cluster).filter(|wanted| wanted.drain)?;
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

    /// Marks these clusters as ejected, if their setting allows it.
    pub fn eject(&mut self, clusters: &BTreeSet<Arc<str>>) {
        for (cluster, wanted) in &mut self.0 {
            let is_ejected = clusters.contains(cluster);
            let found = if is_ejected { Unreachable::Ejected } else { Unreachable::Eject };
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
        let clusters = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect();
        traffic.eject(&clusters(&["east", "west", "far"]));
        assert_eq!(traffic.to_string(), "east weight 9, north silent, west ejected");
        let drained = ["east", "north", "west", "far"].map(|one| traffic.is_drained(one));
        assert_eq!(drained, [false, false, true, false]);
        traffic.eject(&clusters(&[]));
        assert_eq!(traffic.to_string(), "east weight 9, north silent, west silent");
    }
}
