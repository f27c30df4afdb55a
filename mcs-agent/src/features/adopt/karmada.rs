//! Karmada. A `MultiClusterService` leaves no import in a member cluster: a Service of its name has the VIP, and Karmada
//! dispatches slices of the other clusters to it. A ServiceImport that Karmada propagates has a Service `derived-NAME`
//! with the slices of all clusters.

use std::collections::BTreeMap;

/// Who keeps Karmada's slices.
pub(super) const MANAGERS: &[&str] = &[DISPATCHER, COLLECTOR];
/// Keeps slices of a `MultiClusterService`, in every cluster but their own.
const DISPATCHER: &str = "endpointslice-dispatch-controller.karmada.io";
/// Keeps slices of a ServiceImport.
const COLLECTOR: &str = "endpointslice-controller.karmada.io";

/// The label selector of Services.
pub(super) const SERVICE_SELECTOR: &str = "karmada.io/managed=true";
/// On everything that Karmada propagates.
const MANAGED_LABEL: &str = "karmada.io/managed";
/// On dispatched slices: the cluster of their endpoints.
pub(super) const PROVIDER_ANNOTATION: &str = "endpointslice.karmada.io/provision-cluster";
/// On everything that Karmada propagates: `karmada-es-` and the name of the member cluster.
pub(super) const WORK_NAMESPACE_ANNOTATION: &str = "work.karmada.io/namespace";
const WORK_NAMESPACE_PREFIX: &str = "karmada-es-";

/// What Karmada uses a slice for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// It is of another cluster, for a `MultiClusterService`.
    Dispatched,
    /// It is of any cluster, for a ServiceImport.
    Imported,
}

/// The role of a slice with this manager.
pub(super) fn role(manager: &str) -> Option<Role> {
    match manager {
        DISPATCHER => Some(Role::Dispatched),
        COLLECTOR => Some(Role::Imported),
        _ => None,
    }
}

/// The Service of this import, if Karmada has propagated it.
pub(super) fn service_of(name: &str, labels: &BTreeMap<String, String>) -> Option<String> {
    let is_managed = labels.get(MANAGED_LABEL).is_some_and(|value| value == "true");
    is_managed.then(|| format!("derived-{name}"))
}

/// The name that Karmada has for the cluster of an object with this [`WORK_NAMESPACE_ANNOTATION`].
pub(super) fn own_cluster(work_namespace: &str) -> Option<&str> {
    work_namespace.strip_prefix(WORK_NAMESPACE_PREFIX)
}

/// Karmada's prefix of imported slices, and that of its design document.
const IMPORTED: [&str; 2] = ["imported-", "import-"];

/// The cluster of an imported slice. Its name is `imported-CLUSTER-SLICE`, and Kubernetes names slices `SERVICE-SUFFIX`.
pub(super) fn cluster_of_imported<'a>(slice: &'a str, service: &str) -> Option<&'a str> {
    let rest = IMPORTED.iter().find_map(|prefix| slice.strip_prefix(prefix))?;
    let end = rest.rfind(&format!("-{service}-"))?;
    Some(&rest[..end]).filter(|cluster| !cluster.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_imported_slice_names_its_cluster() {
        for (slice, service, cluster) in [
            ("imported-c1-web-xpvgt", "web", Some("c1")),
            ("imported-eu-west-web-1-web-1-x7f2k", "web-1", Some("eu-west-web-1")),
            ("imported-imported-web-x7f2k", "web", Some("imported")),
            ("import-member1-web-x7f2k", "web", Some("member1")),
            ("imported-member1-other-x7f2k", "web", None),
            ("member1-web-x7f2k", "web", None),
            ("imported--web-x7f2k", "web", None),
        ] {
            assert_eq!(cluster_of_imported(slice, service), cluster, "{slice}");
        }
    }
}
