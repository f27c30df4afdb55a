//! Names of groups, labels and annotations that the controller reads and writes.

/// The group of this project's own resources, and the prefix of its annotations.
pub const GROUP: &str = "clusterset.mcs-agent.io";

/// Label of an imported slice: the ServiceImport that it belongs to.
pub use mcs_kube::SERVICE_NAME_LABEL as SERVICE_NAME;
/// Label of an imported slice: the cluster that its endpoints run in.
pub const SOURCE_CLUSTER: &str = "multicluster.kubernetes.io/source-cluster";
/// Label of a slice: the controller that writes it.
pub const SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Label of a ServiceImport: the controller that writes it.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of both managed-by labels.
pub const CONTROLLER: &str = "mcs-controller";
/// Label of an imported slice. kube-proxy leaves slices with it out of its memory.
pub const HEADLESS: &str = "service.kubernetes.io/headless";

/// Label of a slice: the Service that it belongs to.
pub const SLICE_SERVICE: &str = "kubernetes.io/service-name";
/// Annotation of a ServiceImport: the Service that stands for it, for whoever leads to Services alone.
pub const DERIVED_SERVICE: &str = "multicluster.kubernetes.io/derived-service";
/// Label of a Service: what serves it instead of kube-proxy.
pub const SERVICE_PROXY: &str = "service.kubernetes.io/service-proxy-name";

/// Annotation of a slice: when the change of endpoints happened.
pub const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// Annotation of an imported slice: the slice of the source cluster that it is a copy of.
pub const SOURCE_SLICE: &str = "clusterset.mcs-agent.io/source-slice";
/// Annotation of an imported slice: `metadata.generation` of the slice that it is a copy of.
pub const SOURCE_GENERATION: &str = "clusterset.mcs-agent.io/source-generation";
/// Annotation of a ServiceExport: the clusters that the export is for, with commas between. Without it,
/// the export is for all clusters.
pub const AUDIENCE: &str = "clusterset.mcs-agent.io/audience";

/// Exported annotation of a ServiceExport, and with it annotation of the ServiceImports: the cluster selectors of the
/// service as JSON, as long as the definition of ServiceExport has no `spec.clusterSelectors`.
pub const CLUSTER_SELECTORS: &str = "traffic.clusterset.mcs-agent.io/cluster-selectors";

/// The domains of tools that take an object with their label for their own, and delete it if they have not made it: Argo CD,
/// `kubectl apply --prune`, kapp, Rancher.
const PRUNERS: [&str; 4] =
    ["argocd.argoproj.io", "applyset.kubernetes.io", "kapp.k14s.io", "objectset.rio.cattle.io"];
/// The label by which Argo CD does so by default, up to version 2.
const INSTANCE: &str = "app.kubernetes.io/instance";

/// Whether a label or annotation belongs to controllers of ServiceImports, or to a tool that would delete the import, so that
/// no export can set it.
pub(super) fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    key == MANAGED_BY
        || key == INSTANCE
        || ["multicluster.kubernetes.io", "multicluster.x-k8s.io", GROUP].contains(&domain)
        || PRUNERS.contains(&domain)
}

/// Label of the copy of a slice in a mailbox: the namespace of its service.
pub const MAILBOX_NAMESPACE: &str = "clusterset.mcs-agent.io/namespace";
/// Label of the copy of a slice in a mailbox: the name of its service.
pub const MAILBOX_SERVICE: &str = "clusterset.mcs-agent.io/service";
/// Label of the copy of a slice in a mailbox: the cluster that publishes it.
pub const MAILBOX_CLUSTER: &str = "clusterset.mcs-agent.io/cluster";
/// Key of a Secret beside its kubeconfig. With [`ALL_MAILBOXES`] the account may read all mailboxes of a hub.
pub const MAILBOXES: &str = "mailboxes";
/// The value of [`MAILBOXES`] on a hub.
pub const ALL_MAILBOXES: &str = "all";
/// Annotation of what lets a cluster read the mailboxes of a hub: the ids of its peers there, with commas between.
pub const READS: &str = "clusterset.mcs-agent.io/reads";
/// The Lease in a mailbox that says whether what is there is complete.
pub const PUBLISHER_LEASE: &str = "publisher";
/// Annotation of what a publisher writes, and of what is imported of it: [`Stamp`](super::Stamp).
pub const WRITTEN: &str = "clusterset.mcs-agent.io/written";
/// Annotation of an ExportedService: `true` if it is about to be deleted, because nothing is exported any more.
pub const WITHDRAWN: &str = "clusterset.mcs-agent.io/withdrawn";
/// Annotation of an ExportedService: fields of `spec`, with commas between, without which a reader must not import it.
pub const MUST_UNDERSTAND: &str = "clusterset.mcs-agent.io/must-understand";
/// Annotation of that Lease: the run of the controller that publishes.
pub const RUN: &str = "clusterset.mcs-agent.io/run";
/// Annotation of that Lease: the uid of the namespace `kube-system` of the publisher's cluster.
pub const CLUSTER_UID: &str = "clusterset.mcs-agent.io/cluster-uid";
/// Annotation of that Lease: how many services the API server has refused.
pub const FAILED: &str = "clusterset.mcs-agent.io/failed";
/// Annotation of that Lease: the names of these services, with commas between.
pub const REFUSED: &str = "clusterset.mcs-agent.io/refused";
/// Annotation of that Lease: the namespaces of exports of peers that this cluster lacks, with commas between.
pub const LACKING: &str = "clusterset.mcs-agent.io/missing-namespaces";
/// Annotation of that Lease: the version of what the publisher writes.
pub const SCHEMA: &str = "clusterset.mcs-agent.io/schema";
/// Annotation of that Lease: `true` if the publisher has ended.
pub const RELEASED: &str = "clusterset.mcs-agent.io/released";
/// Annotation of that Lease: the name of the clusterset.
pub const CLUSTERSET: &str = "clusterset.mcs-agent.io/clusterset";
/// Annotation of that Lease: the ranges of the clusterset's VIPs, with commas between.
pub const VIP_RANGES: &str = "clusterset.mcs-agent.io/vip-ranges";
/// Annotation of that Lease: the version of the controller. Of the chart's types: the version of the chart.
pub const SOFTWARE: &str = "clusterset.mcs-agent.io/version";
/// Annotation of that Lease: where the controller says which source address it sees, with commas between.
pub const CONTROLLERS: &str = "clusterset.mcs-agent.io/controllers";
/// Annotation of that Lease: `true` once everything of that run is published.
pub const COMPLETE: &str = "clusterset.mcs-agent.io/complete";
/// Annotation of that Lease: the number of ExportedServices in the mailbox.
pub const PUBLISHED: &str = "clusterset.mcs-agent.io/exported-services";
/// Annotation of that Lease: `true` if readers are to prefer other clusters.
pub const DRAIN: &str = "clusterset.mcs-agent.io/drain";
/// Annotation of that Lease: from when on readers are to move their former clients too.
pub const DRAIN_DEADLINE: &str = "clusterset.mcs-agent.io/drain-deadline";
/// Annotation of that Lease: the ClusterProperties of the cluster that readers may know, as JSON.
pub const PROPERTIES: &str = "clusterset.mcs-agent.io/properties";
/// ClusterProperty with the id of the cluster (KEP-2149).
pub const CLUSTER_ID_PROPERTY: &str = "cluster.clusterset.k8s.io";
/// ClusterProperty: `local-first` if clients in this cluster are to prefer its own endpoints, where the owner of a service
/// says nothing.
pub const PREFERENCE_PROPERTY: &str = "preference.clusterset.mcs-agent.io";
/// ClusterProperty: `true`, or a deadline, if this cluster asks all importers to prefer other clusters.
pub const DRAIN_PROPERTY: &str = "drain.clusterset.mcs-agent.io";
/// ClusterProperty: the weight of this cluster for the clients in it.
pub const WEIGHT_PROPERTY: &str = "weight.clusterset.mcs-agent.io";
/// ClusterProperty: who serves in this cluster where no cluster that the selectors of a service match can, for every service
/// with selectors. The stricter one of this and what the owner wants counts.
pub const FALLBACK_PROPERTY: &str = "cluster-selectors-fallback.clusterset.mcs-agent.io";
/// ClusterProperty with the name of the clusterset (KEP-2149).
pub const CLUSTERSET_PROPERTY: &str = "clusterset.k8s.io";
/// The name of a clusterset that nobody has named.
pub const UNNAMED_CLUSTERSET: &str = "clusterset";
