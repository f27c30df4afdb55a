//! What `mcs-agent explain` and `mcs explain` find, and what becomes of endpoints.

use super::reasons;

const PENDING: &str = "`mcs-agent status` says what is pending; start the agent if it does not run";
const CONDITIONS: &str =
    "`kubectl describe serviceimport` and `serviceexport` say why, in each cluster";

reasons! {
    /// Of `mcs-agent explain` and `mcs explain`: `wrong` leads to exit status 1, `unknown` to 3, a `note` to
    /// none.
    Code "Findings of explain" "" "explain.md#codes" {
        /// No ServiceImport has this name.
        UnknownImport "unknown-import" Wrong Owner
            "compare with `mcs-agent services`; is the namespace here, and the service exported?";
        /// No ServiceImport has this address.
        UnknownVip "unknown-vip" Wrong Owner
            "`mcs-agent services` lists every ClusterSetIP; is the name's answer out of date?";
        /// Nothing of the import can be used, and the source cannot be read to say why.
        Rejected "rejected" Wrong Operator "`mcs-agent status` lists what is rejected";
        /// The import has no such port: it refuses.
        UnknownPort "unknown-port" Wrong Owner
            "connect to a port of the import, or add the port to the Service";
        /// The import has no EndpointSlice.
        NoSlices "no-slices" Wrong Owner
            "do pods run in the exporting clusters, and does the controller write EndpointSlices here?";
        /// The frontend refuses: the fates of the endpoints say why.
        NoUsableEndpoint "no-usable-endpoint" Wrong Owner
            "make a pod ready in one of the clusters: the fates above say why none is used";
        /// The first [tier](traffic.md#near-first) of clusters has no usable endpoint, and another one
        /// serves.
        TierEmpty "tier-empty" Note Owner "the fates of the tier's endpoints say why it is empty";
        /// Every cluster with a ready endpoint is out of use, as for the fate `drained`: they serve all the
        /// same.
        AllDrained "all-drained" Note Operator
            "make a pod of another cluster ready, or end the drain or the weight of 0";
        /// All endpoints that new clients get terminate.
        AllTerminating "all-terminating" Note Owner
            "make another pod ready: new clients get pods that are about to end";
        /// A source cluster gives no sign of life, and its ClusterPeer has
        /// [`eject-unreachable`](traffic.md#a-silent-cluster).
        PeerSilent "peer-silent" Note PeerOperator
            "is the controller there up, and does it reach the mailbox? `mcs status`";
        /// Backends answer the agent and no client of this node, by [passive
        /// health](traffic.md#passive-health): a network policy, or a way that pods alone lack.
        ClientsUnanswered "clients-unanswered" Wrong Operator
            "do routes, firewalls or a policy let nodes pass and not pods? Try `explain --probe` for a pod";
        /// The rules want it, and the maps do not have it.
        NotWritten "not-written" Wrong Operator PENDING;
        /// The maps lead to an endpoint that the rules do not want.
        StaleBackend "stale-backend" Wrong Operator PENDING;
        /// The rules want it, and `--max-memory` has no room.
        NoRoom "no-room" Wrong Operator "raise --max-memory (chart: capacity.memory)";
        /// The address was a ClusterSetIP: its import is gone.
        Departed "departed" Wrong Owner "no import asks for the address any more; resolve the name again";
        /// Maps and rules do not agree whose frontend it is: the maps lead to another import.
        OtherImport "other-import" Wrong Operator "`mcs-agent status` says what is pending";
        /// Socket hooks do not run for the client.
        HookMissing "hook-missing" Wrong Operator
            "start the agent, which attaches them again; find out who detaches them";
        /// `--socket-lb` leaves the client out.
        SocketLbOff "socket-lb-off" Wrong Operator
            "start the agent with --socket-lb=all, or rely on the packet path alone";
        /// `--socket-lb` leaves the client out, and the programs of its device translate its packets.
        PacketsOnly "packets-only" Note Nobody "";
        /// The client is not below `--cgroup-root`.
        OutsideCgroup "outside-cgroup" Wrong Operator
            "start the agent with a --cgroup-root that has the client below it";
        /// Programs were detached from the client's device.
        DeviceHookMissing "device-hook-missing" Wrong Operator
            "start the agent, which attaches them again within seconds";
        /// The client's device has no programs; sockets need none. Packets of VMs and gVisor pods are not
        /// translated there.
        DeviceLeftAlone "device-left-alone" Note Nobody "";
        /// A program of others runs before ours.
        ForeignFirst "foreign-first" Note Operator
            "it may send connections elsewhere: `bpftool prog show id ID` says whose it is";
        /// A backend has the address of a Service, and a program of others runs before ours, so that it may
        /// leave that address untranslated ([limits](limits.md#what-others-see)).
        UntranslatedBackend "untranslated-backend" Unknown Operator
            "let exports have pod addresses, or from Linux 6.17 on put ours first by `mcs-agent cleanup` \
             and a start";
        /// No agent has given a sign of life for `--orphan-after`: the programs leave every VIP alone.
        Released "released" Wrong Operator "start the agent (--orphan=release)";
        /// No agent runs: nobody follows changes.
        AgentDown "agent-down" Wrong Operator "start the agent: the programs go on with the maps as they are";
        /// The agent has not read its source, or its programs are not attached yet.
        AgentBehind "agent-behind" Wrong Operator "`mcs-agent status` says what the agent waits for";
        /// The agent runs, and has given no sign of life for 5 s: it is stopped, or has no CPU.
        AgentStuck "agent-stuck" Wrong Operator
            "is its process stopped, or without CPU? The kubelet starts it again when /livez fails";
        /// The source cannot be read: maps and report stand in for it. The message says how old the report
        /// is.
        SourceUnread "source-unread" Note Operator
            "mend what the message says: maps and report know no fates of endpoints";
        /// The agent's report is not here.
        NoReport "no-report" Unknown Operator
            "run this where --run-dir is: in the agent's pod, or on the node with host.runDirectory";
        /// The client's cgroup or network namespace cannot be looked at.
        ClientUnseen "client-unseen" Unknown Operator
            "run this on the node as root; in the pod it takes SYS_ADMIN, SYS_PTRACE and /run/netns";
        /// The pod's cgroup was not found, or its processes are not visible: hooks are those of
        /// `--cgroup-root`, or the device was not looked at.
        PodUnseen "pod-unseen" Note Operator
            "run this on the node as root to look at the pod's own cgroup and device";
        /// The DNS server resolves the name to nothing.
        DnsNoName "dns-no-name" Wrong Operator
            "does this server serve clusterset.local, or forward it? deploy/dns/README.md";
        /// The DNS server resolves the name to an address that the import does not have.
        DnsOtherAddress "dns-other-address" Wrong Operator
            "wait for its time to live; does another zone or server answer clusterset.local?";
        /// The DNS server does not answer.
        DnsSilent "dns-silent" Unknown Operator
            "is it the DNS server of the client, and is it reached from this node?";
        /// The probe got no answer from the VIP.
        VipSilent "vip-silent" Wrong Operator "look at the hooks of this client and at the backends";
        /// The VIP refused the probe.
        VipRefused "vip-refused" Wrong Operator "look at the frontend and at the backends";
        /// Backends gave the probe no answer: not routed, or a network policy.
        BackendSilent "backend-silent" Wrong Operator
            "connect the pod networks, and let policies admit the client";
        /// Backends refused the probe: the pods do not listen on the port.
        BackendRefused "backend-refused" Wrong Owner
            "compare targetPort of the exported Service with its pods";
        /// The probe cannot enter the client's network namespace.
        ProbeNotAllowed "probe-not-allowed" Unknown Operator
            "run this on the node as root, or in an agent's pod that has hostPID";
        /// No process of the pod was found: the probe connected from where it runs, to backends alone. A
        /// policy for the pod does not apply there.
        ProbeFromNode "probe-from-node" Note Operator
            "run `mcs-agent explain --probe` on the node as root to see the pod's policies and hooks";
        /// The hooks do not see the probe.
        ProbeOutside "probe-outside" Note Operator "run this in a cgroup below the agent's";
        /// Frontends of UDP were not probed: the probe connects by TCP alone.
        ProbeTcpOnly "probe-tcp-only" Note Nobody "";
        /// No agent runs on the pod's node.
        NoAgent "no-agent" Wrong Operator
            "let the DaemonSet mcs-agent run there (tolerations, nodeSelector), or move the pod";
        /// The pod is not scheduled, or does not run.
        PodNotRunning "pod-not-running" Wrong Owner "`kubectl describe pod` says what it waits for";
        /// The pod's cluster, or without a pod any cluster, has no ServiceImport that is ready.
        NotImported "not-imported" Wrong Owner CONDITIONS;
        /// Without a pod: a port has no ready endpoint, or a node does not serve the import; the message says which.
        NotServed "not-served" Wrong Owner
            "make a pod ready that has the port; `mcs explain POD SERVICE` for a pod of such a node says more";
        /// The command could not be run in the agent's pod, or a node has none.
        AgentUnasked "agent-unasked" Unknown Operator
            "it takes kubectl, list of pods, and create of pods/exec where the agents are";
        /// A cluster does not answer, or does not let the caller read the service's EndpointSlices.
        ClusterUnasked "cluster-unasked" Unknown Operator "name contexts that answer by --context";
        /// What a cluster says of its export or import.
        ClusterNote "cluster-note" Note Owner CONDITIONS;
    }
}

reasons! {
    /// An endpoint has one fate for each port of the import. A rejected one has the reason of its
    /// [rejection](#parts-of-objects-that-agents-reject) instead.
    Fate "Fates of endpoints" "fate: " "explain.md#fates-of-endpoints" {
        /// New clients get it.
        Used "used" Note Nobody "";
        /// It is not ready in its cluster.
        NotReady "not-ready" Note Nobody "";
        /// It terminates, and others are ready.
        Terminating "terminating" Note Nobody "";
        /// `internalTrafficPolicy` is Local, and it is not on this node.
        OtherNode "other-node" Note Nobody "";
        /// Its cluster is outside the border that the owner of the service, or the operator of the cluster, has set.
        OutsideBorder "outside-border" Note Nobody "";
        /// Its cluster is out of use (drained, of weight 0, withdrawn or ejected), and another one has a
        /// ready endpoint.
        Drained "drained" Note Nobody "";
        /// It does not answer clients of this node (passive health).
        Ejected "ejected" Note Nobody "";
        /// Clusters that are preferred have a usable endpoint.
        OtherTier "other-tier" Note Nobody "";
        /// Its tier has spilled, and gets clients back after `failback-delay`.
        FailbackDelay "failback-delay" Note Nobody "";
        /// Its hints name other nodes or zones, and those of others name this one.
        TopologyHint "topology-hint" Note Nobody "";
        /// Others are nearer (`trafficDistribution`).
        Farther "farther" Note Nobody "";
        /// The share of its cluster is smaller than one slot for each endpoint, and others have the slots.
        NoSlot "no-slot" Note Nobody "";
        /// Another endpoint has its address.
        Duplicate "duplicate" Note Nobody "";
        /// Its slice has no port with the name and protocol of the import's.
        NoSuchPort "no-such-port" Note Nobody "";
        /// The rules want it, and `--max-memory` has no room.
        NoRoom "no-room" Note Nobody "";
        /// The rules want it, and the maps do not have it.
        NotWritten "not-written" Note Nobody "";
    }
}
