//! Cilium. Its imports follow KEP-1645, and have annotations beside it.

/// On a ServiceImport: whether endpoints of this cluster or of the others are preferred.
pub(in crate::source) const AFFINITY_ANNOTATION: &str = "service.cilium.io/affinity";
