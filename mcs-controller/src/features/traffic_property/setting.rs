//! What an operator sets by ClusterProperties of a cluster. The controller obeys, and it and `mcs` say by the same functions
//! which values cannot be used.

use mcs_kube::{Drain, Traffic, wish::Border};

use crate::core::clusterset::well_known::{
    DRAIN_PROPERTY, FALLBACK_PROPERTY, PREFERENCE_PROPERTY, WEIGHT_PROPERTY,
};

/// The names of these ClusterProperties.
pub const SETTINGS: [&str; 4] =
    [WEIGHT_PROPERTY, DRAIN_PROPERTY, PREFERENCE_PROPERTY, FALLBACK_PROPERTY];

/// Reads the weight of the own cluster for the clients in it.
pub(super) fn weight(value: &str) -> Result<u32, String> {
    let weight = value.parse().map_err(|_| {
        format!("{value:?} is no weight; use a whole number from 0 to {}", Traffic::MOST_WEIGHT)
    });
    weight.and_then(Traffic::check_weight)
}

/// Reads whether all importers are to prefer other clusters.
pub(super) fn drain(value: &str) -> Result<Option<Drain>, String> {
    Drain::parse(value).ok_or_else(|| {
        format!("{value:?} is neither true nor false nor a deadline such as 2026-12-01T06:00:00Z")
    })
}

/// Reads whether clients in this cluster prefer it, unless the owner of a service says otherwise.
pub(super) fn preference(value: &str) -> Result<bool, String> {
    match value {
        "local-first" => Ok(true),
        _ => Err(format!("{value:?} is not local-first; use that, or delete the ClusterProperty")),
    }
}

/// Why the value of a ClusterProperty cannot be used, and what counts instead.
pub fn setting_problem(name: &str, value: &str) -> Option<String> {
    let problem = match name {
        WEIGHT_PROPERTY => weight(value).err(),
        DRAIN_PROPERTY => drain(value).err(),
        PREFERENCE_PROPERTY => preference(value).err(),
        FALLBACK_PROPERTY => return Border::read(value).err(),
        _ => None,
    };
    problem.map(|problem| format!("{problem}; what it said before counts"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_used_says_what_can() {
        for (name, good, bad, words) in [
            (
                WEIGHT_PROPERTY,
                &["0", "1000"][..],
                &["1.5", "1001", "-1", "much", ""][..],
                "0 to 1000",
            ),
            (
                DRAIN_PROPERTY,
                &["true", "false", "2026-12-01T06:00:00Z"],
                &["True", "soon"],
                "true nor",
            ),
            (PREFERENCE_PROPERTY, &["local-first"], &["nearest", "Local-First"], "local-first"),
            (FALLBACK_PROPERTY, &["all", "none", "drain"], &["nobody", ""], "counts as none"),
        ] {
            assert!(SETTINGS.contains(&name));
            for value in good {
                assert_eq!(setting_problem(name, value), None, "{value}");
            }
            for value in bad {
                assert!(setting_problem(name, value).unwrap().contains(words), "{value}");
            }
        }
        assert_eq!(setting_problem("region.example.com", "True"), None);
    }
}
