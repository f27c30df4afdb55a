//! Which source clusters serve a ServiceImport first: the results of its cluster selectors (KEP-5939).
//!
//! A controller resolves the selectors in each importing cluster, and writes the results on the ServiceImport. The agents
//! use only the results.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The annotation of a ServiceImport with the results, for definitions without `status.clusterSelectorResults`.
pub const SELECTOR_RESULTS: &str = "clusterset.mcs-agent.io/cluster-selector-results";

/// The source clusters of each tier, the preferred one first. `status.clusterSelectorResults` has them as JSON:
///
/// ```text
/// [{"clusters":["east"]},{"clusters":["east","west"]}]
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tiers(pub Vec<Tier>);

/// The source clusters that one selector matches.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Tier {
    /// Their ids. Empty: the selector matches none.
    #[serde(default)]
    pub clusters: Vec<Arc<str>>,
}

impl Tiers {
    /// The most selectors of a service.
    pub const MOST: usize = 16;

    /// Reads the annotation.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| error.to_string()).and_then(Self::bounded)
    }

    /// Reads the field.
    pub fn read(value: Value) -> Result<Self, String> {
        serde_json::from_value(value).map_err(|error| error.to_string()).and_then(Self::bounded)
    }

    fn bounded(self) -> Result<Self, String> {
        match self.0.len() {
            count if count > Self::MOST => {
                Err(format!("{count} results, and {} are allowed", Self::MOST))
            }
            _ => Ok(self),
        }
    }

    /// The text of the annotation.
    pub fn to_value(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The number of the first tier with this cluster, from 1.
    pub fn number_of(&self, cluster: &str) -> Option<usize> {
        let has = |tier: &Tier| tier.clusters.iter().any(|one| **one == *cluster);
        self.0.iter().position(has).map(|place| place + 1)
    }
}

impl fmt::Display for Tiers {
    /// `1 east; 2 east, west; 3 none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, tier) in (1..).zip(&self.0) {
            let separator = if number == 1 { "" } else { "; " };
            let clusters =
                if tier.clusters.is_empty() { "none" } else { &tier.clusters.join(", ") };
            write!(f, "{separator}{number} {clusters}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let text = r#"[{"clusters":["east"]},{"clusters":["east","west"]},{"clusters":[]}]"#;
        let tiers = Tiers::parse(text).unwrap();
        assert_eq!(tiers.to_value(), text);
        assert_eq!(tiers.to_string(), "1 east; 2 east, west; 3 none");
        assert_eq!(
            ["east", "west", "north"].map(|one| tiers.number_of(one)),
            [Some(1), Some(2), None]
        );
        assert_eq!(Tiers::parse("[{}]").unwrap().to_string(), "1 none");
        assert_eq!(Tiers::read(serde_json::from_str(text).unwrap()), Ok(tiers));
    }

    #[test]
    fn what_is_malformed_is_refused_with_a_reason() {
        let many = format!("[{}]", vec!["{}"; 17].join(","));
        for (text, reason) in [
            ("", "EOF"),
            ("{}", "invalid type"),
            (r#"["east"]"#, "invalid type"),
            (r#"[{"clusters":"east"}]"#, "invalid type"),
            (&many, "17 results, and 16 are allowed"),
        ] {
            let error = Tiers::parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
