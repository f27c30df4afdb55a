//! Reasons of conditions and of Events.

use super::reasons;

const ALIKE: &str = "make the Services of the clusters alike: the oldest export decides";
const POLICY: &str = "let admissionPolicy of the chart keep others out; accounts with all rights pass it, such as members of \
     system:masters";
const NEW_CREDENTIALS: &str =
    "make new credentials by `mcs link`, or delete the ClusterPeer to end the import";

reasons! {
    /// Of conditions of ServiceExports, ServiceImports and ClusterPeers, and of Events. A ClusterPeer's
    /// condition is False where the reason is `wrong`, Unknown where it is `unknown`, and True where it is a
    /// `note`.
    Reason "Conditions and Events" "" "clusterset.md#what-an-import-has" {
        /// The Service can be exported.
        Valid Note Nobody "";
        /// There is no Service of this name, or none can have it: it is no DNS label.
        NoService Wrong Owner "create it, or delete the ServiceExport";
        /// The Service has type ExternalName, or is headless and has [cluster
        /// selectors](traffic.md#what-is-refused): these alone are left out then.
        InvalidServiceType Wrong Owner
            "export a Service that has endpoints; a headless one without cluster selectors";
        /// The [cluster selectors](traffic.md#what-is-refused) are wrong. The Service is exported, and
        /// imports prefer the clusters that they preferred before.
        InvalidClusterSelector Wrong Owner "correct the selector that the message names";
        /// Agents of importing clusters ignore [an annotation](traffic.md#what-is-refused): `spill`,
        /// `failback-delay` or `passive-health`; or the audience has names that no cluster can have. The
        /// Service is exported without their effect.
        InvalidAnnotation Wrong Owner "correct the annotation that the message names, or remove it";
        /// The namespace is `default` or `kube-*`, or the operator excludes it.
        NamespaceNotExportable Wrong Operator
            "let the controller export from it (chart: export), or export from another one";
        /// A namespace exports more than it may, and the youngest exports are left out; or a peer publishes
        /// more than `spec.limits` of its ClusterPeer: what was imported stays, what is new does not come,
        /// and nothing is deleted.
        OverLimit Wrong Operator
            "export less, or raise the limit: export.perNamespace of the chart, or spec.limits of the \
             ClusterPeer";
        /// Peers can read the export.
        Exported Note Nobody "";
        /// The export, or a part of it, cannot be written into the mailbox; the message says which part and
        /// why.
        Failed Wrong Operator "mend what the API server's words name: a right, a quota, a policy, the size";
        /// The controller could not [renew the Lease](runbook.md#mcsmailboxsilent) of its mailbox for a
        /// minute: other clusters keep what they have.
        NotRenewed Wrong Operator
            "is the API server of the mailbox up, and the token valid? The log says why";
        /// The controller could not read this cluster's exports, Services or EndpointSlices for a minute:
        /// other clusters hear of no change. Their ClusterPeers say `Synced=False/Incomplete`.
        NotRead Wrong Operator "mend what the API server's words name";
        /// It is not done or not known yet: the message says what is waited for. An import whose `Ready` is
        /// False waits for an [address](clusterset.md#addresses): all are in use or reserved, unless all
        /// clusters get a larger range (`vipCidrs`).
        Pending Unknown Nobody "";
        /// The clusters that export the service agree.
        NoConflicts Note Nobody "";
        /// Two ports have one name, or one protocol and number. The older export's counts, and the other is
        /// taken out of the slices of its cluster.
        PortConflict Wrong Owner ALIKE;
        /// One cluster exports a ClusterSetIP, another one a headless Service.
        TypeConflict Wrong Owner ALIKE;
        /// The clusters have different `sessionAffinity`.
        SessionAffinityConflict Wrong Owner ALIKE;
        /// The clusters have different timeouts of session affinity.
        SessionAffinityConfigConflict Wrong Owner ALIKE;
        /// The clusters have different `exportedLabels`.
        LabelsConflict Wrong Owner ALIKE;
        /// The clusters have different `exportedAnnotations`.
        AnnotationsConflict Wrong Owner ALIKE;
        /// The clusters have different `internalTrafficPolicy`.
        InternalTrafficPolicyConflict Wrong Owner ALIKE;
        /// The clusters have different `trafficDistribution`.
        TrafficDistributionConflict Wrong Owner ALIKE;
        /// The clusters have different [cluster selectors](traffic.md#near-first).
        ClusterSelectorsConflict Wrong Owner ALIKE;
        /// An export lacks an IP family of the import. One that has none of them is left out.
        IPFamilyConflict Wrong Owner ALIKE;
        /// The clusters that the message names lack the namespace, so they do not import the service.
        NamespaceMissing Wrong Owner
            "create it there, or name the clusters that the export is for in annotation \
             clusterset.mcs-agent.io/audience";
        /// No cluster lacks the namespace any more.
        NamespaceFound Note Nobody "";
        /// The import has its addresses and slices; or an endpoint is ready for each port, as the message
        /// counts.
        Ready Note Nobody "";
        /// The API server of this cluster [refuses an object](clusterset.md#what-an-api-server-refuses) of an
        /// import, or keeps the controller from telling agents of a weight or drain. The message has its
        /// words. What it takes is used.
        Refused Wrong Operator "mend what the API server's words name: a quota, a policy, a right";
        /// Nothing of the imports is refused.
        Written Note Nobody "";
        /// The conditions of an export are older than its spec.
        Older Note Operator "does a controller run? Wait until it has judged the new spec";
        /// Two ServiceImports have one address: clients of one can get the endpoints of the other.
        AddressShared Wrong Operator
            "delete one of the two, and the controller makes it again with another address";
        /// No Service has the [adopted address](clusterset.md#adopted-addresses) of the import any more, and
        /// the API server may give it to another one.
        AddressInServiceRange Wrong Operator
            "make the derived Service again with this clusterIP to keep the address; else the import gets \
             another one";
        /// An [adopted address](clusterset.md#adopted-addresses) was given up: the import has another one.
        AddressChanged Wrong Owner "let clients that keep the former address resolve the name again";
        /// The exports have IPv6 alone and this cluster's Services IPv4 alone, or the other way round.
        IPFamilyNotSupported Wrong Owner "export a Service of a family that this cluster's Services have";
        /// No endpoint of any cluster is ready.
        NoneReady Wrong Owner "look at the pods of the clusters that export the service";
        /// Clients are refused: no endpoint of a cluster inside of the [border](traffic.md#a-border) is ready.
        NoneInsideBorder Wrong Owner
            "look at the pods of the clusters that the message names, or let selectors match more clusters";
        /// Clients of a port are refused: no endpoint is ready for it, while others are ready.
        PortNotReady Wrong Owner
            "compare targetPort of the Service with its pods in the clusters that the message names";
        /// The ready endpoints of a cluster lack a port that its Service has, and other clusters serve it.
        PortPartlyReady Note Owner
            "compare targetPort of the Service with its pods in the clusters that the message names";
        /// The ClusterProperties of a cluster are not known, so its [selectors](traffic.md#what-is-refused)
        /// keep their last results.
        PropertiesUnknown Wrong Operator
            "is the peer's mailbox read, and of a version that has them? `mcs status`";
        /// The results of the [selectors](traffic.md#what-is-refused) have more than 32 KiB: the last ones
        /// stay.
        TooManyResults Wrong Owner "use fewer selectors";
        /// The controller knows of nothing that keeps agents from serving the import; or the ClusterPeer and
        /// its Secret are used as they are.
        Accepted Note Nobody "";
        /// The ServiceImport has no port, so agents serve nothing of it.
        NoPorts Wrong Owner "let its controller give it the ports of the Service";
        /// An address of an import of others is outside of [the controller's
        /// ranges](clusterset.md#addresses): agents that accept these alone reject it.
        AddressOutsideRanges Unknown Operator
            "let both controllers have addresses of the same ranges (vipCidrs)";
        /// Another controller has written the ServiceImport, so this one [leaves it
        /// alone](clusterset.md#beside-another-controller).
        LeftAlone Wrong Operator "with --adopt (chart: adopt) this controller takes it over";
        /// Endpoints of a peer are [rejected](runbook.md#mcspeerendpointsrefused): their addresses are not
        /// its pods'.
        EndpointsRefused Wrong Operator
            "add the ranges of its pods to podCIDRs, or keep ranges of clusters apart";
        /// No endpoint of it is refused any more.
        EndpointsAccepted Note Nobody "";
        /// Somebody else rewrites the conditions of a ServiceExport, so [this controller writes them less and
        /// less](clusterset.md#beside-another-controller).
        StatusContested Wrong Operator "let one controller of a cluster have the ServiceExports";
        /// Somebody else rewrites a ServiceImport of this controller, or its status.
        ImportContested Wrong Operator POLICY;
        /// Somebody else rewrites an EndpointSlice of this controller.
        SlicesContested Wrong Operator POLICY;
        /// Somebody else rewrites a derived Service of this controller.
        ServiceContested Wrong Operator POLICY;
        /// The value of a ClusterProperty [cannot be used](traffic.md#what-is-refused): what it said before
        /// counts, or the strictest border.
        InvalidValue Wrong Operator "correct the value";
        /// The value of a ClusterProperty can be used again.
        ValueUsed Note Nobody "";
        /// The controller may not write what agents read: [they go by what they were told
        /// before](traffic.md#what-is-refused).
        NotTold Wrong Operator "mend what the API server's words name";
        /// Agents are told of the ClusterProperty again.
        Told Note Nobody "";
        /// The spec of a ClusterPeer cannot be used. That of before counts, or nothing new is imported where
        /// the controller knows none.
        InvalidSpec Wrong Operator "correct the field that the message names";
        /// The Secret of a ClusterPeer is missing. The mailbox is not read, and what was imported stays.
        NoSecret Wrong Operator NEW_CREDENTIALS;
        /// The Secret of a ClusterPeer has a kubeconfig that cannot be used. The former one counts, if there
        /// is one.
        InvalidKubeconfig Wrong Operator NEW_CREDENTIALS;
        /// There are no credentials to read the mailbox: `Accepted` says why.
        NoCredentials Wrong Operator NEW_CREDENTIALS;
        /// The mailbox can be read.
        Connected Note Nobody "";
        /// The mailbox [cannot be read](runbook.md#mcspeerunreachable): the message has the API server's
        /// words. What was imported stays.
        Unreadable Wrong Operator
            "is the API server up and reached, and does the account exist? `mcs check` says what to do";
        /// The mailbox can be read until its token expires, and the token [was not
        /// renewed](runbook.md#mcstokennotrenewed).
        TokenNotRenewed Note Operator NEW_CREDENTIALS;
        /// Everything that the cluster exports was read.
        Synced Note Nobody "";
        /// The same, and this cluster lacks the namespaces of services that the message names, so it does not
        /// import them.
        NamespacesMissing Note Operator
            "create the namespaces, or let the controller do so (createNamespaces)";
        /// Nobody has said whose mailbox it is. What was imported stays.
        NoPublisher Wrong PeerOperator "does the controller run there, and is it the right mailbox?";
        /// The mailbox is [another cluster's](runbook.md#mcspeeridentity). Nothing new of it is used.
        OtherCluster Wrong Operator
            "correct the ClusterPeer; for a cluster that was made anew: `mcs link --replace`";
        /// The mailbox is older than what was read before, as one from a backup. What was imported stays.
        OlderThanBefore Wrong PeerOperator "wait: the publisher notices, and writes everything again";
        /// The publisher has not published everything. What was imported stays.
        Incomplete Wrong PeerOperator
            "look at the controller there, and the conditions of its ServiceExports";
        /// The mailbox has another number of services than its Lease says. What was imported stays.
        CountDiffers Wrong PeerOperator
            "who else deletes objects of the mailbox? The publisher writes them again";
        /// The mailbox has no more than `spec.limits` allows.
        WithinLimits Note Nobody "";
        /// The publisher has given [no sign of life](runbook.md#mcspeerstale) for `staleAfter`. Its endpoints
        /// stay.
        Stale Wrong PeerOperator
            "look at the controller there; if the cluster is gone for good: `mcs forget ID`";
        /// The publisher renews its Lease.
        Fresh Note Nobody "";
        /// `spec.clusterId` is this cluster itself.
        OwnId Wrong Operator "correct spec.clusterId";
        /// The mailbox is that of the cluster.
        Matches Note Nobody "";
        /// The peer says [another clusterset](runbook.md#mcspeerincompatible). Its services are imported all
        /// the same.
        OtherClusterset Wrong Operator "correct the ClusterProperty clusterset.k8s.io of one";
        /// The peer has [other ranges of ClusterSetIPs](runbook.md#mcspeerincompatible): new services have
        /// another address in each cluster.
        OtherVipRanges Wrong Operator "give both controllers the same --vip-cidr (chart: vipCidrs)";
        /// The versions of the controllers [differ](README.md#versions-and-skew) by more than one minor
        /// version.
        VersionSkew Wrong Operator "upgrade the older one";
        /// The peer has the same clusterset and ranges, and a version that fits.
        Compatible Note Nobody "";
        /// A pod range of the peer [overlaps](runbook.md#mcspeerrangesoverlap) with this cluster's pods,
        /// nodes, Services or ClusterSetIPs.
        OverlapsOwn Wrong Operator "correct spec.podCIDRs, or vipCidrs or podCidrs of the chart";
        /// A pod range of the peer [overlaps](runbook.md#mcspeerrangesoverlap) with one of another peer.
        Overlap Wrong Operator "correct spec.podCIDRs of both";
        /// `spec.podCIDRs` of the ClusterPeer is empty: endpoints can have any address.
        NoRanges Unknown Operator "give spec.podCIDRs of the ClusterPeer";
        /// The ranges of this cluster's pods are not known, so nothing was compared with them. No other
        /// cluster that is known has addresses of the peer's ranges.
        OwnRangesUnknown Unknown Operator "give them with --pod-cidr (chart: podCidrs)";
        /// No other cluster that is known has addresses of the peer's ranges.
        Disjoint Note Nobody "";
        /// Nobody connects to [pods of peers](../mcs-controller/README.md#whether-pods-are-reached):
        /// `--probe-peers=off`.
        Off Unknown Nobody "";
        /// No ready endpoint with a TCP port was imported from the peer, so there is nothing to connect to.
        NoEndpoints Unknown Nobody "";
        /// Pods of the peer answer the controller.
        Reached Note Nobody "";
        /// [No pod of the peer answers](runbook.md#mcspodsunreachable) in one IP family.
        NotReached Wrong Operator
            "add the routes to the pod ranges in both clusters, or let firewalls pass them";
        /// [Some pods of the peer do not answer](runbook.md#mcspodsunreachable).
        PartlyReached Wrong Operator "are the silent ones on one node? Compare its routes and firewalls";
        /// Pods of the peer answer, and see another source address than that of this cluster's pods: so do
        /// network policies and logs.
        Masqueraded Note Operator
            "do not masquerade addresses on the way to pods of other clusters, if policies there need them";
    }
}
