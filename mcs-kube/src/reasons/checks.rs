//! Checks of a running agent, and of the clusters of a clusterset.

use super::reasons;

const STATUS: &str = "`mcs-agent status` on the node says what fails, and why";
const CONDITION: &str = "the reason that the message names says what to do";
const LINK: &str = "the last refusal in the message names what to mend; without one, see the controller's log there";
const DNS: &str = "write what lacks by `mcs dns apply`";

reasons! {
    /// A check passes while its meaning holds. `mcs-agent status`, `/readyz?verbose` and `mcs_check_ok`
    /// evaluate the same checks. An agent is not ready while one fails that is `wrong`; with a `note` alone
    /// it is degraded.
    Check "Checks of an agent" "health: " "troubleshooting.md#checks" {
        /// Every resource has been read completely since the start. Else the API server is down, or a right
        /// or a CRD is missing: [McsSourceLost](runbook.md#mcssourcelost).
        Sync "sync" Wrong Operator STATUS;
        /// What was read can be followed. Else it stays in force: an [outage of the API
        /// server](runbook.md#mcssourcelost) makes no agent unready.
        Source "source" Note Operator STATUS;
        /// The attached programs are this agent's. Else it switches those of an earlier one as soon as the
        /// source is synced.
        Programs "programs" Wrong Operator STATUS;
        /// The socket hooks are attached and run. Else somebody detaches them, or another program runs before
        /// them.
        Hooks "hooks" Wrong Operator STATUS;
        /// Devices have their programs: [McsDeviceFailing](runbook.md#mcsdevicefailing).
        Devices "devices" Wrong Operator STATUS;
        /// No packet to a ClusterSetIP can leave the node by an uplink that has its program, and no reply can
        /// pass by our programs on a pod's device. Else a program of others runs before ours, or the node has
        /// a network card and no uplink, which `--uplinks=none` accepts.
        Guard "guard" Note Operator STATUS;
        /// Pins and the cgroup are in place. Else the bpffs was unmounted, or the pins cannot be restored.
        Places "places" Wrong Operator STATUS;
        /// The maps hold the desired state: [McsWritesFail](runbook.md#mcswritesfail).
        Maps "maps" Wrong Operator STATUS;
        /// The HTTP addresses are open. Else a port is in use, and the log names the flag.
        Addresses "addresses" Wrong Operator STATUS;
        /// `--vip-cidr` has every ClusterSetIP that is served. What was served is served on: [correct the
        /// ranges](runbook.md#mcsagentnotready).
        Ranges "ranges" Wrong Operator STATUS;
        /// Something is served, or no import is rejected for the ranges of ClusterSetIPs; and nothing is
        /// served outside of the ranges that mcs-controller writes. Imports with addresses of Services do not
        /// count. Else the agents lack the range of the controllers.
        Imports "imports" Note Operator STATUS;
        /// What imports ask for fits into `--max-memory`:
        /// [McsRejectedForCapacity](runbook.md#mcsrejectedforcapacity).
        Capacity "capacity" Note Operator STATUS;
        /// Pods of other clusters answer this node, and no program of others runs before ours where a backend
        /// is a Service. Else [connections to such a backend may time out](limits.md#what-others-see), or
        /// packets are lost on the way to the pods that `status` names:
        /// [McsNodeUnreachesPods](runbook.md#mcsnodeunreachespods). `--probe-peers=off` ends the second part
        /// alone.
        Reach "reach" Note Operator STATUS;
    }
}

reasons! {
    /// Rows of `mcs check`. The meaning is what it fails for; the message says what was found. What you may
    /// not ask is `skipped`.
    ClusterCheck "Checks of a clusterset" "mcs check: " "clusterset.md#check-it" {
        /// The cluster does not answer.
        ApiServer "api server" Unknown Operator "is its API server up, and does the kubeconfig lead there?";
        /// Two of the clusters have one id: nothing else of them is checked then.
        Id "id" Wrong Operator "change the ClusterProperty cluster.clusterset.k8s.io of all but one";
        /// A CRD is missing, or lacks a version.
        Types "types" Wrong Operator "install the CRDs of mcs-api, and the chart mcs-controller";
        /// The controller lacks a right.
        Rights "rights" Wrong Operator "install the chart again, or apply its ClusterRole";
        /// No replica of the controller renews its Lease. What `peer`, `namespaces`, `exports` and `imports`
        /// say is as of then.
        Controller "controller" Wrong Operator "look at the Deployment mcs-controller and its log";
        /// Cilium's operator deletes imports of this controller, or writes conditions of the same exports.
        OtherControllers "other controllers" Wrong Operator
            "set admissionPolicy=true, or turn Cilium's mcsapi off";
        /// A node has no ready agent, or one of those that are asked has not followed the API server for a
        /// minute.
        Agents "agents" Wrong Operator STATUS;
        /// Ranges of ClusterSetIPs overlap with Services or pods.
        Addresses "addresses" Wrong Operator "give all clusters other ranges (vipCidrs)";
        /// The weight, drain or preference of the cluster [cannot be used](traffic.md#what-is-refused).
        Settings "settings" Wrong Operator "correct the ClusterProperty that the message names";
        /// There is no ClusterPeer, or none of a cluster that exports to this one; or they cannot be listed.
        Peers "peers" Wrong Operator "run `mcs link` with the kubeconfigs of all clusters";
        /// A [condition](#conditions-and-events) of a ClusterPeer does not hold, endpoints are rejected, or
        /// the peer has another uid or other pod ranges. It is `skipped` while it is not known whether the
        /// peer is read now.
        Peer "peer" Wrong Operator CONDITION;
        /// Services of a peer wait for a namespace, or for one that is being deleted.
        Namespaces "namespaces" Note Operator "create it, or let the controller do so (createNamespaces)";
        /// The slices of an exported Service lack ready pods that it selects, or have others.
        Endpoints "endpoints" Wrong Owner
            "compare targetPort of the Service with its pods; does the controller manager write its slices?";
        /// A ServiceExport is not exported, for [the reason](#conditions-and-events) in the message.
        Exports "exports" Wrong Owner CONDITION;
        /// The mailbox has not what the cluster exports: ports, fields, audience or endpoints.
        Mailbox "mailbox" Wrong Operator LINK;
        /// An export of another cluster has no import, or another one. Or an import is not ready, a port has
        /// no ready endpoint or clusters disagree, for [the reason](#conditions-and-events) in the message.
        Imports "imports" Wrong Owner CONDITION;
        /// The imported slices have other ready endpoints than their source.
        Slices "slices" Wrong Operator LINK;
        /// An agent's table lacks an import, one of its ports or ready endpoints, or has others; or agents
        /// [have no room](runbook.md#mcsrejectedforcapacity).
        Tables "tables" Wrong Operator "`mcs explain` says what the agents make of the service";
        /// CoreDNS is too old.
        DnsVersion "dns version" Wrong Operator "upgrade CoreDNS to 1.12.2 or newer";
        /// CoreDNS lacks the zone clusterset.local.
        DnsConfiguration "dns configuration" Wrong Operator DNS;
        /// CoreDNS has not read its Corefile since it was changed.
        DnsRestart "dns restart" Wrong Operator "`kubectl rollout restart -n kube-system deployment/coredns`";
        /// CoreDNS may not list ServiceImports or EndpointSlices.
        DnsRights "dns rights" Wrong Operator
            "apply deploy/dns/coredns-rbac.yaml, or let the chart mcs do so";
        /// The cache on the nodes does not forward the zone.
        NodeLocalDns "node-local dns" Wrong Operator DNS;
        /// A node does not reach pods of another cluster, as its agent says: one row for each node.
        Reach "reach" Wrong Operator
            "compare the node's routes and firewalls with those of one that reaches; `mcs-agent status`";
        /// ClusterSetIPs do not answer a client on a node, whose table has backends for them: one row for each node, whose agent tries
        /// a few. It is a warning if they answer no node and others do.
        ByAddress "by address" Wrong Operator "`mcs explain POD SERVICE --probe`, for a pod of that node";
        /// Pods of the cluster do not reach pods of a peer. The message names the node of the pod that has
        /// tried.
        Pods "pods" Wrong Operator "compare routes and firewalls with those of a pair that reaches";
        /// A service does not answer by its name, or DNS does not answer a node. The message says what DNS
        /// answers, which [tells the cause](dns/README.md#if-a-name-has-no-answer).
        ByName "by name" Wrong Operator DNS;
        /// An import has one address in one cluster and [another one](clusterset.md#other-ranges) in another.
        /// Adopted addresses may differ.
        SameAddresses "same addresses" Note Operator "give all controllers the same ranges (vipCidrs)";
        /// A small answer of a controller of another cluster arrives, and one of 64 KiB does not; or a backend
        /// answers a small echo request, and [no full one](faults.md#large-answers): a path with a smaller MTU
        /// loses full packets.
        LargeAnswers "large answers" Wrong Operator
            "give pods the MTU of the path, or let ICMP of packets that are too big pass";
        /// It never fails: it says which source address pods of another cluster see.
        SourceAddress "source address" Note Nobody "";
    }
}
