//! Why parts of objects are not used: by the controller, and by the agent.

use super::reasons;

const DISJOINT: &str =
    "give every cluster pod ranges of its own, and correct podCIDRs of the ClusterPeers";

reasons! {
    /// Of endpoints of a peer that the controller does not import. Events with reason
    /// [`EndpointsRefused`](#endpointsrefused) count them, and so does the controller's page.
    Rejection "Endpoints that the controller rejects" "" "clusterset.md#endpoints" {
        /// Their addresses are not its pods': spec.podCIDRs of its ClusterPeer does not have them.
        OutsidePodRanges "outside_pod_ranges" Wrong Operator
            "add the ranges of its pods to spec.podCIDRs of the ClusterPeer";
        /// Every machine has their addresses: loopback, link-local, multicast, metadata service.
        NoPodAddress "no_pod_address" Wrong PeerOperator "let the Service there have pods as endpoints";
        /// Their addresses belong to this cluster: to its Services, ClusterSetIPs, nodes or API server.
        Reserved "reserved" Wrong Operator DISJOINT;
        /// Their addresses belong to pods of this cluster.
        OwnPods "own_pods" Wrong Operator DISJOINT;
        /// Their addresses belong to pods of another ClusterPeer.
        OtherPeer "other_peer" Wrong Operator DISJOINT;
    }
}

reasons! {
    /// Of parts of ServiceImports and EndpointSlices that an agent does not use: in `mcs-agent status`,
    /// `rejection_counts` of its JSON, `mcs_rejections`, and with hyphens in `explain`. The rest of the
    /// object is used, unless the meaning says otherwise.
    RejectionReason "Parts of objects that agents reject" "" "SECURITY.md#what-is-rejected" {
        /// The object is no ServiceImport or EndpointSlice, or cannot be read as one. Nothing of it is used.
        Malformed "malformed" Wrong Operator "correct it: the message says what is wrong";
        /// An entry of `spec.ips` is no IP address, or has a notation that readers interpret differently:
        /// `010.0.0.2`, `::ffff:10.0.0.2`, a zone.
        VipInvalid "vip_invalid" Wrong Operator "correct or remove it";
        /// The ClusterSetIP is unspecified, loopback, link-local (metadata services), multicast or broadcast,
        /// IPv4 within IPv6 too.
        VipForbidden "vip_forbidden" Wrong Operator "assign a unicast address";
        /// `spec.ips` lists the address twice.
        VipDuplicate "vip_duplicate" Wrong Operator "remove one";
        /// The ClusterSetIP is an address of this node, also one that the node gets later.
        VipIsNode "vip_is_node" Wrong Operator "assign another";
        /// The ClusterSetIP is an address of the API server: one of its name, of its Service, or of
        /// `--api-server`.
        VipIsApiServer "vip_is_api_server" Wrong Operator "assign another";
        /// The ClusterSetIP is in a pod range: that of `--pod-cidr`, or of this node (`spec.podCIDRs` of its
        /// Node).
        VipIsPod "vip_is_pod" Wrong Operator "assign another";
        /// The ClusterSetIP is outside the ranges of ClusterSetIPs, and this import was not served with it
        /// before.
        VipOutsideCidr "vip_outside_cidr" Wrong Operator "assign one inside, or allow its range";
        /// Another ServiceImport holds this address, port and protocol: one with slices goes before one
        /// without, then the older, then the first by namespace and name.
        FrontendTaken "frontend_taken" Wrong Operator "give one of them another ClusterSetIP or port";
        /// A port of the import is 0 or above 65535, or its name or number comes twice.
        PortInvalid "port_invalid" Wrong Owner "give it a name and a number of its own, from 1 to 65535";
        /// The protocol of a port is neither TCP nor UDP.
        ProtocolUnsupported "protocol_unsupported" Wrong Owner "use TCP or UDP";
        /// The API does not allow this `sessionAffinity` or its timeout. Nothing of the import is used.
        AffinityInvalid "affinity_invalid" Wrong Owner "use ClientIP or None";
        /// `internalTrafficPolicy` is neither Cluster nor Local. Nothing of the import is used.
        TrafficPolicyInvalid "traffic_policy_invalid" Wrong Owner "use Cluster or Local";
        /// `internalTrafficPolicy: Local` refuses every client while the agent does not know which endpoints
        /// are on its node.
        TrafficPolicyNeedsIdentity "traffic_policy_needs_identity" Wrong Operator
            "set --cluster-id and --node-name";
        /// The annotation `service.cilium.io/affinity` is neither `local`, `remote` nor `none`. It is
        /// ignored.
        ClusterAffinityUnknown "cluster_affinity_unknown" Note Owner "use local, remote or none";
        /// The annotation `service.cilium.io/affinity` is ignored while the agent does not know which
        /// endpoints are in its cluster.
        ClusterAffinityNeedsIdentity "cluster_affinity_needs_identity" Note Operator "set --cluster-id";
        /// The results of the [cluster selectors](traffic.md#near-first) cannot be read: those in the status
        /// of the ServiceImport, or in its annotation `clusterset.mcs-agent.io/cluster-selector-results`. All
        /// clusters are equal.
        SelectorResultsInvalid "selector_results_invalid" Note Operator
            "look at the controller that writes them";
        /// The annotation `traffic.clusterset.mcs-agent.io/cluster-selectors-fallback` is unknown, and
        /// [counts as `none`](traffic.md#a-border).
        BorderInvalid "border_invalid" Wrong Owner "correct the annotation of the ServiceExport";
        /// The annotation `traffic.clusterset.mcs-agent.io/spill` or `failback-delay` is unknown or out of
        /// bounds, and [ignored](traffic.md#what-spill-means).
        SpillInvalid "spill_invalid" Note Owner "correct the annotation of the ServiceExport";
        /// The annotation `traffic.clusterset.mcs-agent.io/passive-health` is neither `on` nor `off`, and
        /// [ignored](traffic.md#passive-health).
        PassiveHealthInvalid "passive_health_invalid" Note Owner
            "correct the annotation of the ServiceExport";
        /// `trafficDistribution` has an unknown value, which is ignored.
        TrafficDistributionUnknown "traffic_distribution_unknown" Note Owner
            "use PreferSameZone or PreferSameNode";
        /// `addressType` of the slice is neither IPv4 nor IPv6. Nothing of the slice is used.
        AddressTypeUnsupported "address_type_unsupported" Wrong Operator "use IPv4 or IPv6";
        /// An endpoint has no address, or one of another family than its slice's.
        EndpointInvalid "endpoint_invalid" Wrong Operator "correct or remove it";
        /// An endpoint is unspecified, loopback, link-local, multicast or broadcast.
        EndpointForbidden "endpoint_forbidden" Wrong Operator "publish a unicast address";
        /// An endpoint is itself a ClusterSetIP: no loops.
        EndpointIsVip "endpoint_is_vip" Wrong Operator "publish a pod's address";
        /// An endpoint has the address of a Service, and a socket program of others, which runs before ours, [may
        /// leave it untranslated](limits.md#what-others-see).
        EndpointUntranslated "endpoint_untranslated" Wrong Operator
            "let exports have pod addresses; or put ours first, from Linux 6.17 on, by `mcs-agent cleanup` and a \
             start; or start the agent with --service-backends=use if others translate packets";
        /// A port of the slice is 0 or above 65535.
        EndpointPortInvalid "endpoint_port_invalid" Wrong Operator "use 1 to 65535";
        /// A namespace or name of an import is longer than a label. The name of a source cluster is shortened
        /// instead.
        NameTooLong "name_too_long" Wrong Owner "use a shorter one";
        /// It does not fit into `--max-memory`. All other objects are served.
        Capacity "capacity" Wrong Operator "raise it in proportion";
    }
}

reasons! {
    /// Of ServiceImports that an agent does not serve on purpose: they claim no address. `left_alone` in
    /// JSON, and with hyphens in `explain`. The message says how to hand the import to the agent.
    LeftAloneReason "Imports that agents leave alone" "" "limits.md#which-objects-are-used" {
        /// It names another service than itself in `multicluster.kubernetes.io/service-name` (label or
        /// annotation): it is its controller's record, and nobody serves it.
        Record "record" Note Nobody "";
        /// It is headless: DNS serves it.
        Headless "headless" Note Owner "to get a ClusterSetIP, export a Service that has a ClusterIP";
        /// `status.endpointSliceObjects` is Absent: its controller's dataplane serves it.
        NotPublished "not_published" Note Operator "let its controller publish its EndpointSlices here";
        /// It has a derived Service and no slice: kube-proxy or its replacement serves it.
        DerivedService "derived_service" Note Operator "let its controller publish its EndpointSlices here";
        /// It has a derived Service, no `endpointSliceObjects`, and no slice of a cluster of
        /// `status.clusters`, or of the family of a ClusterSetIP: kube-proxy or its replacement serves it. A
        /// slice without endpoints counts. Clusters are compared only if every slice names one.
        SlicesIncomplete "slices_incomplete" Note Operator
            "let its controller publish the slices of all clusters here";
        /// It is adopted from Antrea, and an endpoint is in the Service range of the cluster: the derived
        /// Service serves it.
        ClusterIpEndpoints "cluster_ip_endpoints" Note Operator
            "let its controller publish addresses of pods";
        /// It has no slice, its status is not `Present`, and every ClusterSetIP is in the Service range of
        /// the cluster, or can be: the Service with that address serves it.
        ServiceRange "service_range" Note Operator
            "give the agent the Service range (--service-cidr), or let its controller publish slices";
        /// `spec.ips` is empty: nobody serves it yet.
        NoClusterSetIp "no_cluster_set_ip" Note Operator "does its controller assign an address?";
    }
}
