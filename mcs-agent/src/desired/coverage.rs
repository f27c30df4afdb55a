//! Which of an import's slices are here.

use std::{collections::BTreeSet, sync::Arc};

use crate::model::{EndpointSlice, ServiceImport};

/// Which of an import's slices are here. A slice without endpoints counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Coverage {
    /// None.
    NoSlices,
    /// All, as far as the import and its slices tell.
    Complete,
    /// Not those of these clusters, which `status.clusters` names. Never empty.
    Missing(Vec<Arc<str>>),
}

impl Coverage {
    /// Compares the source clusters of the slices with [`ServiceImport::clusters`].
    ///
    /// A slice without a source cluster can be of any, and one of a cluster that the import does not
    /// name shows that its status lags. Then nothing counts as missing.
    pub(super) fn of<'a>(
        import: &ServiceImport,
        slices: impl Iterator<Item = &'a EndpointSlice>,
    ) -> Self {
        let mut slices = slices.peekable();
        if slices.peek().is_none() {
            return Self::NoSlices;
        }
        if import.clusters.is_empty() {
            return Self::Complete;
        }
        let mut here = BTreeSet::new();
        for slice in slices {
            if import.clusters.binary_search(&slice.source_cluster).is_err() {
                return Self::Complete;
            }
            here.insert(&*slice.source_cluster);
        }
        let missing: Vec<Arc<str>> =
            import.clusters.iter().filter(|cluster| !here.contains(&***cluster)).cloned().collect();
        if missing.is_empty() { Self::Complete } else { Self::Missing(missing) }
    }

    /// Whether the import has slices.
    pub(super) fn has_slices(&self) -> bool {
        *self != Self::NoSlices
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture::{import, slice};

    #[test]
    fn clusters_without_a_slice_are_missing() {
        let missing =
            |names: &[&str]| Coverage::Missing(names.iter().copied().map(Arc::from).collect());
        for (clusters, slices, expected) in [
            (vec![], vec![], Coverage::NoSlices),
            (vec!["a", "b"], vec![], Coverage::NoSlices),
            (vec![], vec!["a"], Coverage::Complete),
            (vec!["a", "b"], vec!["a"], missing(&["b"])),
            (vec!["a", "b", "c"], vec!["b", "b"], missing(&["a", "c"])),
            (vec!["a", "b"], vec!["b", "a"], Coverage::Complete),
            (vec!["a", "b"], vec!["", ""], Coverage::Complete),
            (vec!["a", "b"], vec!["a", ""], Coverage::Complete),
            (vec!["a", "b"], vec!["a", "c"], Coverage::Complete),
        ] {
            let import = ServiceImport {
                clusters: clusters.iter().copied().map(Arc::from).collect(),
                ..import("shop/web")
            };
            let slices: Vec<EndpointSlice> = slices
                .into_iter()
                .map(|cluster| slice("shop/web-a", "web").cluster(cluster))
                .collect();
            assert_eq!(Coverage::of(&import, slices.iter()), expected, "{clusters:?} {slices:?}");
        }
    }
}
