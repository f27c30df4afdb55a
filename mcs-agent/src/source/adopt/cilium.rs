//! Cilium. Its imports follow KEP-1645, and have annotations beside it.

/// On a ServiceImport: whether endpoints of this cluster or of the others are preferred. Cilium takes it from the exports.
pub(in crate::source) const AFFINITY_ANNOTATION: &str = "service.cilium.io/affinity";
/// How a controller hands an import with a derived Service to the agent. Cilium's operator removes the annotation from a
/// ServiceImport, and heeds it neither on a Service nor as metadata of a ServiceExport.
pub(in crate::source) const PUBLISH: &str = "to hand it to the agent, let its controller publish \
    the EndpointSlices of every cluster here (Cilium: \
    service.cilium.io/global-sync-endpoint-slices=true in spec.exportedAnnotations of the ServiceExports; the oldest \
    export decides)";
