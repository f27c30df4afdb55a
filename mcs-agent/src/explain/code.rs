//! The codes of what `explain` finds.

use std::fmt;

use mcs_kube::program::finding::FindingCode;
pub(super) use mcs_kube::program::finding::{Finding, Severity};

use crate::model::{LeftAloneReason, RejectionReason};

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $code:ident $name:literal $severity:ident $advice:literal;)+) => {
        /// The kinds of findings, without the reasons of the rules. The names are stable.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub(super) enum Code {
            $($(#[doc = $doc])+ $code,)+
        }

        impl Code {
            /// Every code.
            #[cfg(test)]
            pub(super) const ALL: &[Self] = &[$(Self::$code),+];
        }

        impl FindingCode for Code {
            fn name(self) -> &'static str {
                match self { $(Self::$code => $name,)+ }
            }

            fn severity(self) -> Severity {
                match self { $(Self::$code => Severity::$severity,)+ }
            }

            fn advice(self) -> &'static str {
                match self { $(Self::$code => $advice,)+ }
            }
        }
    };
}

codes! {
    /// No ServiceImport has this name.
    UnknownImport "unknown-import" Wrong "compare the name with `mcs-agent services`; does the namespace exist here, and is the service exported?";
    /// No ServiceImport has this address.
    UnknownVip "unknown-vip" Wrong "`mcs-agent services` lists every ClusterSetIP; a name that resolves to this address is out of date";
    /// Nothing of the import can be used; the report does not list why.
    Rejected "rejected" Wrong "`mcs-agent status` lists what is rejected";
    /// The import has no such port.
    UnknownPort "unknown-port" Wrong "connect to a port of the import, or add the port to the exported Service";
    /// The import has no EndpointSlice.
    NoSlices "no-slices" Wrong "look at the exporting clusters: do pods run, and does the controller write EndpointSlices with the label multicluster.kubernetes.io/service-name?";
    /// No endpoint of the port is used.
    NoUsableEndpoint "no-usable-endpoint" Wrong "the fates of the endpoints above say why; make a pod ready in one of the clusters";
    /// Another tier of clusters than the first serves.
    TierEmpty "tier-empty" Note "nothing to do for clients; the fates of the tier's endpoints say why it is empty";
    /// Every cluster with a ready endpoint is out of use.
    AllDrained "all-drained" Note "make a pod of another cluster ready, or end the drain or the weight of 0";
    /// All endpoints that are used terminate.
    AllTerminating "all-terminating" Note "new clients still get pods that are about to end: make another pod ready";
    /// A source cluster gives no sign of life.
    PeerSilent "peer-silent" Note "is the controller of that cluster up, and does it reach the mailbox? `mcs status` says so of each cluster";
    /// Backends answer the agent, and no client of this node.
    ClientsUnanswered "clients-unanswered" Wrong "is there a network policy, or do routes and firewalls of the pod ranges let nodes pass and not pods? `mcs-agent explain --probe` for a pod tries it";
    /// The maps lack what the rules want.
    NotWritten "not-written" Wrong "the agent has not written it: `mcs-agent status` says what is pending; start the agent if it does not run";
    /// The maps lead to an endpoint that the rules do not want.
    StaleBackend "stale-backend" Wrong "the agent has not removed it: `mcs-agent status` says what is pending; start the agent if it does not run";
    /// `--max-memory` has no room for it.
    NoRoom "no-room" Wrong "raise --max-memory (chart: capacity.memory)";
    /// The address was a VIP.
    Departed "departed" Wrong "no import asks for the address any more; resolve the name again";
    /// The maps and the rules do not agree which import a frontend belongs to.
    OtherImport "other-import" Wrong "the maps lead to another import: `mcs-agent status` says what is pending";
    /// A socket hook does not run for the client.
    HookMissing "hook-missing" Wrong "start the agent, which attaches its hooks again within a second; find out who detaches them";
    /// `--socket-lb` leaves this client out.
    SocketLbOff "socket-lb-off" Wrong "start the agent with --socket-lb=all, or rely on the packet path alone";
    /// `--socket-lb` leaves this client out, and the programs of its device translate its packets.
    PacketsOnly "packets-only" Note "nothing to do: the programs of the client's device translate its packets";
    /// The client is not below the agent's cgroup.
    OutsideCgroup "outside-cgroup" Wrong "start the agent with a --cgroup-root that has the client below it";
    /// The program of a device is not attached.
    DeviceHookMissing "device-hook-missing" Wrong "start the agent, which attaches it again within seconds";
    /// The client's device has no programs.
    DeviceLeftAlone "device-left-alone" Note "nothing to do for sockets; packets of VMs and gVisor pods are not translated";
    /// A program of others runs before ours.
    ForeignFirst "foreign-first" Note "it may send connections elsewhere: `bpftool prog show id ID` says whose it is";
    /// A backend has the address of a Service, and a program of others runs before ours.
    UntranslatedBackend "untranslated-backend" Unknown "if that program translates Services, in the place of kube-proxy, connections time out: from Linux 6.17 on `mcs-agent cleanup` and a start of the agent put ours first; else let exports have pod addresses";
    /// The programs leave every VIP alone.
    Released "released" Wrong "start the agent (--orphan=release)";
    /// No agent runs.
    AgentDown "agent-down" Wrong "start the agent: the programs go on with the maps as they are, and follow no change";
    /// The agent has not read its source, or its programs are not attached.
    AgentBehind "agent-behind" Wrong "`mcs-agent status` says what the agent waits for";
    /// The agent runs, and its loop stands still.
    AgentStuck "agent-stuck" Wrong "the programs go on with the maps as they are; is its process stopped, or without CPU (`kubectl describe pod`)? The kubelet starts it again when /livez fails";
    /// The source could not be read.
    SourceUnread "source-unread" Note "the rest is from the maps and from the last report of the agent; fates of endpoints are unknown";
    /// The agent has left no report.
    NoReport "no-report" Unknown "run this where the agent's --run-dir is: in its pod, or on the node with host.runDirectory";
    /// The client cannot be looked at.
    ClientUnseen "client-unseen" Unknown "run this on the node as root; in the pod it takes SYS_ADMIN and SYS_PTRACE (extraCapabilities) and the node's namespaces in /run/netns";
    /// The cgroup or the processes of a pod are not visible.
    PodUnseen "pod-unseen" Note "nothing to do for sockets; to look at the pod's own cgroup and device, run this on the node as root";
    /// The name resolves to nothing.
    DnsNoName "dns-no-name" Wrong "see deploy/dns/README.md, If a name has no answer; does this DNS server serve clusterset.local? A node-local cache has to forward it too";
    /// The name resolves to an address that the import does not have.
    DnsOtherAddress "dns-other-address" Wrong "an answer from before is kept for its time to live; if it stays, another zone or server answers clusterset.local: deploy/dns/README.md";
    /// The DNS server does not answer.
    DnsSilent "dns-silent" Unknown "is it the DNS server of the client, and is it reached from this node?";
    /// The VIP does not answer.
    VipSilent "vip-silent" Wrong "no hook translates for this client, or the backend that was chosen is silent: see the hooks and the backends";
    /// The VIP refuses.
    VipRefused "vip-refused" Wrong "the programs or the backend refuse: see the frontend and the backends";
    /// Backends do not answer.
    BackendSilent "backend-silent" Wrong "their addresses are not routed from this client, or a network policy drops: connect the pod networks, allow the client";
    /// Backends refuse.
    BackendRefused "backend-refused" Wrong "the pods do not listen on this port: compare targetPort of the exported Service";
    /// The probe could not connect from the client.
    ProbeNotAllowed "probe-not-allowed" Unknown "the probe runs where a process of the client is visible, with CAP_SYS_ADMIN: on the node as root, or in an agent's pod that has hostPID";
    /// The probe connected from where the command runs, not from the pod.
    ProbeFromNode "probe-from-node" Note "what applies to the pod alone, such as a network policy or its hooks, is not seen: run `mcs-agent explain --probe` on the node as root";
    /// The probe does not run in a cgroup that the hooks see.
    ProbeOutside "probe-outside" Note "run this in a cgroup below the agent's: the probe's own connections to the VIP are not translated";
    /// UDP is not probed.
    ProbeTcpOnly "probe-tcp-only" Note "the probe connects by TCP alone";
}

/// The rules' own reasons say what to do.
pub(super) fn of_rule(severity: Severity, code: impl fmt::Display, message: &str) -> Finding {
    let code = code.to_string().replace('_', "-");
    Finding { severity, code, message: message.to_owned(), advice: "" }
}

/// Whether the import is served all the same.
pub(super) const fn is_ignored(reason: RejectionReason) -> bool {
    reason.is_of_preference() || matches!(reason, RejectionReason::TrafficDistributionUnknown)
}

/// The code of an import that is left alone.
pub(super) fn left_alone(reason: LeftAloneReason, message: &str) -> Finding {
    of_rule(Severity::Wrong, reason, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::Fate;

    /// Rows of a table: the code, and the cell after it.
    fn rows(document: &str) -> Vec<(String, String)> {
        let cells = |line: &str| {
            let mut cells = line.split(" | ").map(|cell| cell.trim_matches(['|', ' ']).to_owned());
            let code = cells.next()?.strip_prefix('`')?.strip_suffix('`')?.to_owned();
            // The options have a table of their own.
            if code.starts_with('-') {
                return None;
            }
            Some((code, cells.next()?))
        };
        document.lines().filter(|line| line.starts_with("| `")).filter_map(cells).collect()
    }

    #[test]
    fn the_document_has_every_code() {
        // `mcs explain` has codes of its own.
        let document = include_str!("../../../deploy/explain.md").split("## mcs explain").next();
        let written = rows(document.unwrap());
        let fates = [
            Fate::Used,
            Fate::NotReady,
            Fate::Terminating,
            Fate::OtherNode,
            Fate::Drained,
            Fate::Ejected,
            Fate::NoSlot,
            Fate::OtherTier,
            Fate::FailbackDelay,
            Fate::TopologyHint,
            Fate::Farther,
            Fate::Duplicate,
            Fate::NoSuchPort,
            Fate::NoRoom,
            Fate::NotWritten,
        ];
        let codes = Code::ALL.iter().map(|code| (code.name(), code.severity().name()));
        let codes = codes.map(|(name, severity)| (name.to_owned(), severity.to_owned()));
        let fates = fates.map(|fate| (fate.to_string(), "fate".to_owned()));
        let mut expected: Vec<_> = codes.chain(fates).collect();
        let mut written: Vec<_> = written.into_iter().collect();
        expected.sort();
        written.sort();
        assert_eq!(written, expected);
    }

    #[test]
    fn reasons_of_the_rules_have_hyphens() {
        let finding = of_rule(Severity::Wrong, RejectionReason::VipOutsideCidr, "x");
        assert_eq!(finding.code, "vip-outside-cidr");
        assert_eq!(left_alone(LeftAloneReason::Headless, "x").code, "headless");
        assert_eq!(Fate::Rejected(RejectionReason::EndpointIsVip).to_string(), "endpoint-is-vip");
    }
}
