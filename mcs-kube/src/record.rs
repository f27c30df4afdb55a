//! ServiceImports that are a controller's record of an exported service, and not an import.

use std::collections::BTreeMap;

/// On an imported EndpointSlice: the ServiceImport of the same namespace that it belongs to. On a ServiceImport with another
/// name: the service of which it is a record. The KEP has this key on EndpointSlices alone.
pub const SERVICE_NAME_LABEL: &str = "multicluster.kubernetes.io/service-name";
/// On Submariner's records: the namespace of the service, as label or annotation.
const SOURCE_NAMESPACE_KEY: &str = "lighthouse.submariner.io/sourceNamespace";

/// The service that labels or annotations of a ServiceImport name, unless it has the name of the import. No agent serves such
/// an import.
pub fn record_of(
    import: &str,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> Option<String> {
    let maps = [labels, annotations];
    let mut names = maps.iter().filter_map(|map| map.get(SERVICE_NAME_LABEL));
    let name = names.find(|name| !name.is_empty() && ***name != *import)?;
    let namespace = maps.iter().find_map(|map| map.get(SOURCE_NAMESPACE_KEY));
    Some(namespace.map_or_else(|| name.clone(), |namespace| format!("{namespace}/{name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_name_other_than_its_own_makes_a_record() {
        let of = |name: &str| vec![(SERVICE_NAME_LABEL, name.to_owned())];
        let placed = || {
            let namespace = (SOURCE_NAMESPACE_KEY, "shop".to_owned());
            [of("nginx"), vec![namespace]].concat()
        };
        for (labels, annotations, expected) in [
            (of("nginx"), vec![], Some("nginx")),
            (vec![], of("nginx"), Some("nginx")),
            (of("web"), of("nginx"), Some("nginx")),
            (placed(), vec![], Some("shop/nginx")),
            (vec![], placed(), Some("shop/nginx")),
            (of("web"), of("web"), None),
            (of(""), vec![], None),
            (vec![], vec![], None),
        ] {
            let [labels, annotations] = [labels, annotations]
                .map(|map| map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect());
            let record = record_of("web", &labels, &annotations);
            assert_eq!(record.as_deref(), expected, "{labels:?} {annotations:?}");
        }
    }
}
