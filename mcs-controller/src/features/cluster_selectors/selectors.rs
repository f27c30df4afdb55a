//! Cluster selectors (KEP-5939): which clusters should serve a service first, by the ClusterProperties of each.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use mcs_kube::{Tier, Tiers, reasons::Reason};
use serde::{Deserialize, Serialize};

use crate::core::clusterset::{ClusterId, Properties, is_object_name, well_known};

/// A value in a selector that means the importing cluster's own value.
const SAME_AS_IMPORTER: &str = "@SameAsImporter@";
/// The bytes of results. Every agent of the importing cluster reads them.
const MOST_RESULT_BYTES: usize = 32 * 1024;

/// The selectors of a service, the preferred one first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Selectors(Vec<Selector>);

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Selector {
    property_selector: PropertySelector,
}

/// Requirements; it matches the clusters that meet all of them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PropertySelector {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    match_properties: Properties,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    match_expressions: Vec<Requirement>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Requirement {
    key: Arc<str>,
    operator: Operator,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    values: Vec<Arc<str>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// The ClusterProperties of a cluster, as far as they are known.
#[derive(Clone, Copy)]
struct Cluster<'a> {
    id: &'a ClusterId,
    properties: Option<&'a Properties>,
}

/// The properties of a cluster are unknown, and with them the selectors that it matches.
struct Unknown;

impl Selectors {
    /// Reads selectors as JSON, as `spec.clusterSelectors` of a ServiceExport has them. The error says which one is wrong.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let selectors: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let count = selectors.0.len();
        if count > Tiers::MOST {
            return Err(format!("{count} selectors are too many: use {} at most", Tiers::MOST));
        }
        for (number, selector) in (1..).zip(&selectors.0) {
            let checked = selector.property_selector.check();
            checked.map_err(|error| format!("selector {number}: {error}"))?;
        }
        Ok(selectors)
    }

    /// The clusters that each selector matches, in the order of the selectors. `known`: the ClusterProperties of each
    /// cluster. Fails with the reason and message of a condition if the properties of one cluster are unknown: then no tier
    /// is certain. With `bordered`, a cluster of unknown properties stays in the tiers that it had, and is in no other one.
    pub(super) fn resolve(
        &self,
        importer: &ClusterId,
        clusters: &BTreeSet<ClusterId>,
        known: &BTreeMap<ClusterId, Arc<Properties>>,
        bordered: Option<&Tiers>,
    ) -> Result<Tiers, (Reason, String)> {
        let cluster = |id| Cluster { id, properties: known.get(id).map(AsRef::as_ref) };
        let unknown = |id| {
            let message = format!("the ClusterProperties of cluster {id} are not known");
            (Reason::PropertiesUnknown, message)
        };
        let importing = cluster(importer);
        let mut tiers = Tiers::default();
        for (index, selector) in self.0.iter().enumerate() {
            let selector = &selector.property_selector;
            let former = bordered.map(|tiers| tiers.0.get(index));
            let had = |id: &ClusterId| {
                let former = former?.map(|tier| &tier.clusters[..]).unwrap_or_default();
                Some(former.iter().any(|one| **one == *id.as_str()))
            };
            let requirements = selector.resolved(&importing);
            let mut tier = Tier::default();
            for id in clusters {
                let is_match = match &requirements {
                    Ok(None) => break,
                    Ok(Some(requirements)) => {
                        let found = matches(requirements, &cluster(id));
                        found.or_else(|Unknown| had(id).ok_or_else(|| unknown(id)))?
                    }
                    Err(Unknown) => had(id).ok_or_else(|| unknown(importer))?,
                };
                if is_match {
                    tier.clusters.push(id.as_str().into());
                }
            }
            tiers.0.push(tier);
        }
        let bytes = tiers.to_value().len();
        if bytes > MOST_RESULT_BYTES {
            let message = format!(
                "the results have {bytes} bytes, and {MOST_RESULT_BYTES} are allowed: use fewer selectors"
            );
            return Err((Reason::TooManyResults, message));
        }
        Ok(tiers)
    }

    /// Whether there are no selectors.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl PropertySelector {
    fn requirements(&self) -> impl Iterator<Item = Requirement> {
        let equal = self.match_properties.iter().map(|(key, value)| Requirement {
            key: Arc::clone(key),
            operator: Operator::In,
            values: vec![Arc::clone(value)],
        });
        equal.chain(self.match_expressions.iter().cloned())
    }

    fn check(&self) -> Result<(), String> {
        if self.match_properties.is_empty() && self.match_expressions.is_empty() {
            return Err("propertySelector is empty, so it names no cluster".to_owned());
        }
        for Requirement { key, operator, values } in self.requirements() {
            if !is_object_name(&key) {
                return Err(format!("{key:?} is no name of a ClusterProperty"));
            }
            let takes_values = matches!(operator, Operator::In | Operator::NotIn);
            if takes_values == values.is_empty() {
                let wrong = if takes_values { "needs values" } else { "takes no values" };
                return Err(format!("{key}: operator {operator:?} {wrong}"));
            }
        }
        Ok(())
    }

    /// The requirements with the values of the importing cluster. None if it lacks a value: the selector then matches
    /// nothing.
    fn resolved(&self, importer: &Cluster<'_>) -> Result<Option<Vec<Requirement>>, Unknown> {
        let mut all: Vec<_> = self.requirements().collect();
        for Requirement { key, values, .. } in &mut all {
            for value in values.iter_mut().filter(|value| ***value == *SAME_AS_IMPORTER) {
                match importer.value(key)? {
                    Some(own) => *value = own.into(),
                    None => return Ok(None),
                }
            }
        }
        Ok(Some(all))
    }
}

fn matches(requirements: &[Requirement], cluster: &Cluster<'_>) -> Result<bool, Unknown> {
    let mut is_known = true;
    for Requirement { key, operator, values } in requirements {
        let Ok(value) = cluster.value(key) else {
            is_known = false;
            continue;
        };
        let is_listed = value.is_some_and(|value| values.iter().any(|one| **one == *value));
        let holds = match operator {
            Operator::In => is_listed,
            Operator::NotIn => !is_listed,
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        };
        if !holds {
            return Ok(false);
        }
    }
    if is_known { Ok(true) } else { Err(Unknown) }
}

impl<'a> Cluster<'a> {
    /// A cluster cannot pretend to be another one.
    fn value(&self, key: &str) -> Result<Option<&'a str>, Unknown> {
        if key == well_known::CLUSTER_ID_PROPERTY {
            return Ok(Some(self.id.as_str()));
        }
        let properties = self.properties.ok_or(Unknown)?;
        Ok(properties.get(key).map(|value| &**value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::clusterset::fixture::{cluster, map};

    /// Three clusters. `north` has said nothing yet.
    fn known() -> BTreeMap<ClusterId, Arc<Properties>> {
        [
            ("east", map(&[("region.example", "eu"), ("gpu.example", "high")])),
            ("west", map(&[("region.example", "eu")])),
            ("south", map(&[("cluster.clusterset.k8s.io", "east")])),
        ]
        .map(|(id, properties)| (cluster(id), Arc::new(properties)))
        .into()
    }

    fn resolved_for(selectors: &str, importer: &str, clusters: &[&str]) -> Result<String, String> {
        let clusters = clusters.iter().map(|id| cluster(id)).collect();
        let selectors = Selectors::parse(selectors).unwrap();
        let tiers = selectors.resolve(&cluster(importer), &clusters, &known(), None);
        tiers.map(|tiers| tiers.to_string()).map_err(|(_, message)| message)
    }

    fn resolved(selector: &str, importer: &str) -> String {
        let selectors = format!(r#"[{{"propertySelector":{selector}}}]"#);
        resolved_for(&selectors, importer, &["east", "south", "west"]).unwrap()
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> String {
        let values = serde_json::to_string(values).unwrap();
        format!(
            r#"{{"matchExpressions":[{{"key":"{key}","operator":"{operator}","values":{values}}}]}}"#
        )
    }

    #[test]
    fn each_operator_is_that_of_label_selectors() {
        let region =
            |value: &str| format!(r#"{{"matchProperties":{{"region.example":"{value}"}}}}"#);
        for (selector, expected) in [
            (region("eu"), "1 east, west"),
            (region("us"), "1 none"),
            (expression("region.example", "In", &["us", "eu"]), "1 east, west"),
            (expression("gpu.example", "NotIn", &["high"]), "1 south, west"),
            (expression("gpu.example", "Exists", &[]), "1 east"),
            (expression("gpu.example", "DoesNotExist", &[]), "1 south, west"),
            (expression("cluster.clusterset.k8s.io", "In", &["east"]), "1 east"),
        ] {
            assert_eq!(resolved(&selector, "east"), expected, "{selector}");
        }
        let both = r#"{"matchProperties":{"region.example":"eu"},"matchExpressions":[{"key":"gpu.example","operator":"DoesNotExist"}]}"#;
        assert_eq!(resolved(both, "east"), "1 west", "all requirements count");
    }

    #[test]
    fn same_as_importer_is_the_importers_value() {
        let same = |operator| expression("region.example", operator, &["us", SAME_AS_IMPORTER]);
        let own = expression("cluster.clusterset.k8s.io", "In", &[SAME_AS_IMPORTER]);
        for (selector, importer, expected) in [
            (same("In"), "west", "1 east, west"),
            (same("NotIn"), "west", "1 south"),
            (same("In"), "south", "1 none"),
            (same("NotIn"), "south", "1 none"),
            (own.clone(), "west", "1 west"),
            (own, "south", "1 south"),
        ] {
            assert_eq!(resolved(&selector, importer), expected, "{selector} {importer}");
        }
    }

    #[test]
    fn tiers_are_in_the_order_of_selectors() {
        let own = expression("cluster.clusterset.k8s.io", "In", &[SAME_AS_IMPORTER]);
        let region = r#"{"matchProperties":{"region.example":"@SameAsImporter@"}}"#;
        let selectors =
            format!(r#"[{{"propertySelector":{own}}},{{"propertySelector":{region}}}]"#);
        let of = |importer, clusters: &[&str]| resolved_for(&selectors, importer, clusters);
        assert_eq!(of("west", &["east", "south", "west"]).unwrap(), "1 west; 2 east, west");
        assert_eq!(of("west", &["east"]).unwrap(), "1 none; 2 east");
        assert!(
            of("west", &["east", "north"]).unwrap_err().contains("cluster north are not known")
        );
        assert!(of("north", &["east"]).is_err(), "nobody knows its region");
        let own = format!(
            r#"[{{"propertySelector":{}}}]"#,
            expression("cluster.clusterset.k8s.io", "In", &[SAME_AS_IMPORTER],)
        );
        assert_eq!(resolved_for(&own, "north", &["east", "north"]).unwrap(), "1 north", "ids are");
    }

    #[test]
    fn what_is_wrong_is_refused_with_a_reason() {
        let of = |selector: &str| format!(r#"[{{"propertySelector":{selector}}}]"#);
        let many = format!(
            "[{}]",
            vec![r#"{"propertySelector":{"matchProperties":{"a":"b"}}}"#; 17].join(",")
        );
        for (text, reason) in [
            ("near".to_owned(), "expected ident"),
            ("{}".to_owned(), "invalid type"),
            ("[{}]".to_owned(), "missing field `propertySelector`"),
            (of("{}"), "selector 1: propertySelector is empty"),
            (of(r#"{"matchLabels":{"a":"b"}}"#), "unknown field `matchLabels`"),
            (of(&expression("a", "Near", &["b"])), "unknown variant `Near`"),
            (of(&expression("a", "In", &[])), "a: operator In needs values"),
            (of(&expression("a", "Exists", &["b"])), "a: operator Exists takes no values"),
            (of(&expression("A", "Exists", &[])), "\"A\" is no name of a ClusterProperty"),
            (many, "17 selectors are too many: use 16 at most"),
        ] {
            let error = Selectors::parse(&text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert!(Selectors::parse("[]").unwrap().is_empty());
    }

    #[test]
    fn results_are_bounded() {
        let clusters: BTreeSet<_> =
            (0..1000).map(|n| cluster(&format!("cluster-{n:050}"))).collect();
        let none = expression("a", "DoesNotExist", &[]);
        let selectors = Selectors::parse(&format!(r#"[{{"propertySelector":{none}}}]"#)).unwrap();
        let known = clusters.iter().map(|id| (id.clone(), Arc::default())).collect();
        let error = selectors.resolve(&cluster("c"), &clusters, &known, None).unwrap_err();
        assert_eq!(error.0, Reason::TooManyResults);
    }
}
