//! The ClusterProperties that clusters know of each other.

use std::{collections::BTreeMap, sync::Arc};

use super::well_known;

/// The ClusterProperties of a cluster that its peers read, by name.
pub type Properties = BTreeMap<Arc<str>, Arc<str>>;

/// The bytes of all names and values.
const MOST_BYTES: usize = 4 * 1024;
/// The most properties.
const MOST: usize = 64;

/// The ClusterProperties that peers get, by name within the bounds, and the number of those left out. Every reader of the
/// mailbox gets them with each renewal of the Lease. Properties about traffic in this cluster are not published.
pub fn published<'a>(all: impl Iterator<Item = (&'a Arc<str>, &'a String)>) -> (Properties, usize) {
    let mut published = Properties::new();
    let (mut bytes, mut left_out) = (0, 0);
    for (name, value) in all {
        let is_own = name.strip_suffix(well_known::GROUP).is_some_and(|rest| rest.ends_with('.'));
        if is_own || **name == *well_known::CLUSTER_ID_PROPERTY {
            continue;
        }
        let size = name.len() + value.len();
        if published.len() < MOST && bytes + size <= MOST_BYTES {
            bytes += size;
            published.insert(Arc::clone(name), value.as_str().into());
        } else {
            left_out += 1;
        }
    }
    (published, left_out)
}

/// Reads the ClusterProperties of a peer. None if they are invalid, or beyond the bounds of publication.
pub fn read_published(text: &str) -> Option<Properties> {
    let properties: Properties = serde_json::from_str(text).ok()?;
    let bytes: usize = properties.iter().map(|(name, value)| name.len() + value.len()).sum();
    (properties.len() <= MOST && bytes <= MOST_BYTES).then_some(properties)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::clusterset::fixture::map;

    #[test]
    fn peers_get_a_bounded_part_of_the_properties() {
        let own = |pairs: &[(&str, &str)]| -> BTreeMap<Arc<str>, String> {
            pairs.iter().map(|(name, value)| ((*name).into(), (*value).to_owned())).collect()
        };
        let long = "x".repeat(MOST_BYTES);
        let all = own(&[
            ("cluster.clusterset.k8s.io", "east"),
            ("large.example", &long),
            ("region.example", "eu"),
            ("traffic.clusterset.mcs-agent.io", "{}"),
        ]);
        let (properties, left_out) = published(all.iter());
        assert_eq!((properties.clone(), left_out), (map(&[("region.example", "eu")]), 1));
        let text = serde_json::to_string(&properties).unwrap();
        assert_eq!(read_published(&text), Some(properties));
        let many: BTreeMap<Arc<str>, String> =
            (0..70).map(|n| (format!("p{n}").into(), String::new())).collect();
        assert_eq!(published(many.iter()).1, 70 - MOST);
        let text = serde_json::to_string(&many).unwrap();
        assert_eq!(read_published(&text), None, "a peer says more than it may");
        assert_eq!(read_published("[]"), None);
    }
}
