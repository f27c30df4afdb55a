//! An event as `trace` prints it: a line of JSON with the field names of OpenTelemetry where it has one, or a row.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use jiff::{SignedDuration, Timestamp, Unit};
use mcs_common::{Counter, Peer, TraceEvent};
use mcs_kube::program::growing_row;
use serde::Serialize;

use super::{Names, Verdict, filter::reason};
use crate::{flows::monotonic_ns, model::Protocol};

/// A decision. A line of `trace -o json`: fields are added, never renamed. What is not known is absent.
#[derive(Debug, Serialize)]
pub(crate) struct TraceView {
    timestamp: Timestamp,
    #[serde(rename = "mcs.verdict")]
    verdict: Verdict,
    /// The counter that counts it, as `status` names it.
    #[serde(rename = "mcs.reason")]
    reason: &'static str,
    /// `socket` or `packet`.
    #[serde(rename = "mcs.path")]
    path: &'static str,
    /// `NAMESPACE/NAME` of the ServiceImport.
    #[serde(rename = "mcs.import", skip_serializing_if = "Option::is_none")]
    import: Option<String>,
    /// The backend's source cluster.
    #[serde(rename = "mcs.source_cluster", skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    /// Whether session affinity remembered the backend; absent in the packet path.
    #[serde(rename = "mcs.affinity", skip_serializing_if = "Option::is_none")]
    affinity: Option<bool>,
    /// The VIP.
    #[serde(rename = "destination.address")]
    vip: IpAddr,
    #[serde(rename = "destination.port")]
    port: u16,
    #[serde(rename = "network.transport", skip_serializing_if = "Option::is_none")]
    transport: Option<&'static str>,
    #[serde(rename = "network.type")]
    family: &'static str,
    /// The backend.
    #[serde(rename = "network.peer.address", skip_serializing_if = "Option::is_none")]
    backend: Option<IpAddr>,
    #[serde(rename = "network.peer.port", skip_serializing_if = "Option::is_none")]
    backend_port: Option<u16>,
    /// The client, in the packet path.
    #[serde(rename = "source.address", skip_serializing_if = "Option::is_none")]
    client: Option<IpAddr>,
    #[serde(rename = "source.port", skip_serializing_if = "Option::is_none")]
    client_port: Option<u16>,
    #[serde(rename = "process.pid", skip_serializing_if = "Option::is_none")]
    process: Option<u32>,
    #[serde(rename = "thread.name", skip_serializing_if = "Option::is_none")]
    thread: Option<String>,
    #[serde(rename = "process.linux.cgroup", skip_serializing_if = "Option::is_none")]
    cgroup: Option<PathBuf>,
    #[serde(rename = "mcs.cgroup_id", skip_serializing_if = "Option::is_none")]
    cgroup_id: Option<u64>,
    #[serde(rename = "k8s.pod.uid", skip_serializing_if = "Option::is_none")]
    pod: Option<String>,
}

/// How many decisions there were so far. The first and the last line of `trace -o json`, and one after some were lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct TraceTotals {
    pub(crate) timestamp: Timestamp,
    /// Those that were printed.
    #[serde(rename = "mcs.shown")]
    pub(crate) shown: u64,
    /// Those that were looked at.
    #[serde(rename = "mcs.seen")]
    pub(crate) seen: u64,
    /// Those that found no room in the ring buffer.
    #[serde(rename = "mcs.lost")]
    pub(crate) lost: u64,
}

/// The widths of the columns: 80 with what is between them.
const COLUMNS: [usize; 4] = [12, 21, 27, 17];

/// The heads of the columns of [`TraceView::row`].
pub(crate) fn header(is_wide: bool) -> String {
    let heads = ["UTC", "SERVICE", "BACKEND OR REASON", "CLIENT"].map(str::to_owned);
    growing_row(COLUMNS, &heads, is_wide)
}

impl TraceView {
    /// `None` for an event with an unknown reason.
    pub(crate) fn new(event: &TraceEvent, names: &mut Names) -> Option<Self> {
        let reason = reason(event)?;
        let import = names.import(event).map(|record| record.import().to_string());
        let cgroup = names.cgroup(event).map(ToOwned::to_owned);
        Some(Self::named(event, reason, import, names.cluster(event), cgroup, names.pod(event)))
    }

    fn named(
        event: &TraceEvent,
        reason: Counter,
        import: Option<String>,
        cluster: Option<String>,
        cgroup: Option<PathBuf>,
        pod: Option<String>,
    ) -> Self {
        let of = |peer: &Peer| (peer.port != 0).then(|| (peer.addr.to_ip(), peer.port));
        let (backend, client) = (of(&event.backend), of(&event.client));
        let vip = event.vip.addr.to_ip();
        let is_packet = event.path == TraceEvent::PACKET;
        let bytes: [u8; 16] = bytemuck::cast(event.comm);
        let comm = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        Self {
            timestamp: time(event.time_ns),
            verdict: Verdict::of(reason),
            reason: reason.name(),
            path: if is_packet { "packet" } else { "socket" },
            import,
            cluster,
            affinity: (!is_packet).then_some(event.by_affinity != 0),
            vip,
            port: event.vip.port,
            transport: Protocol::from_number(event.protocol).map(|protocol| match protocol {
                Protocol::Tcp => "tcp",
                Protocol::Udp => "udp",
            }),
            family: if vip.is_ipv4() { "ipv4" } else { "ipv6" },
            backend: backend.map(|(ip, _)| ip),
            backend_port: backend.map(|(_, port)| port),
            client: client.map(|(ip, _)| ip),
            client_port: client.map(|(_, port)| port),
            process: (!is_packet).then_some(event.process),
            thread: (!is_packet).then(|| String::from_utf8_lossy(comm).into_owned()),
            cgroup,
            cgroup_id: (event.cgroup != 0).then_some(event.cgroup),
            pod,
        }
    }

    /// A row of the table. With `is_wide` nothing is cut, and more is told of the client.
    pub(crate) fn row(&self, is_wide: bool) -> String {
        let time = self.timestamp.to_string();
        let time = time.get(11..).unwrap_or_default().trim_end_matches('Z');
        let transport = self.transport.unwrap_or("-").to_uppercase();
        let service = match &self.import {
            Some(import) => format!("{import}:{}/{transport}", self.port),
            None => format!("{}/{transport}", SocketAddr::new(self.vip, self.port)),
        };
        let address =
            |ip: Option<IpAddr>, port: Option<u16>| Some(SocketAddr::new(ip?, port?).to_string());
        let mut result = match address(self.backend, self.backend_port) {
            Some(backend) => match &self.cluster {
                Some(cluster) => format!("{backend} {cluster}"),
                None => backend,
            },
            None => self.reason.to_owned(),
        };
        if is_wide && self.affinity == Some(true) {
            result += " (affinity)";
        }
        let thread: String = self.thread.iter().flat_map(|name| name.escape_debug()).collect();
        let mut client = match (address(self.client, self.client_port), self.process) {
            (Some(client), _) => client,
            (None, Some(process)) => format!("{thread}/{process}"),
            (None, None) => "-".to_owned(),
        };
        if is_wide && let Some(pod) = &self.pod {
            client.extend([" pod ", pod]);
        }
        growing_row(COLUMNS, &[time.to_owned(), service, result, client], is_wide)
    }
}

/// The time of a moment of the programs' clock.
fn time(ns: u64) -> Timestamp {
    let ago = i64::try_from(monotonic_ns().saturating_sub(ns)).unwrap_or(0);
    let then = Timestamp::now() - SignedDuration::from_nanos(ago);
    then.round(Unit::Millisecond).unwrap_or(then)
}

#[cfg(test)]
mod tests {
    use mcs_common::{Address, BackendRef};

    use super::*;

    fn peer(ip: &str, port: u16) -> Peer {
        Peer::new(Address::from(ip.parse::<IpAddr>().unwrap()), port)
    }

    fn event() -> TraceEvent {
        let mut comm = [0; 16];
        comm[..7].copy_from_slice(b"cu\x1b[31m");
        TraceEvent {
            time_ns: monotonic_ns(),
            vip: peer("10.99.0.10", 80),
            backend: peer("10.20.1.5", 8080),
            client: peer("10.1.0.5", 40_000),
            chosen: BackendRef { id: 1, generation: 1 },
            cgroup: 7,
            comm: bytemuck::cast(comm),
            frontend: 1,
            reason: Counter::ConnectTranslated as u32,
            process: 4711,
            protocol: 6,
            path: TraceEvent::SOCKET,
            by_affinity: 1,
            pad: 0,
        }
    }

    fn view(event: &TraceEvent) -> TraceView {
        let import = format!("shop/{}", "x".repeat(63));
        let text = |text: &str| Some(text.to_owned());
        let reason = reason(event).unwrap();
        TraceView::named(
            event,
            reason,
            Some(import),
            text("west"),
            Some("/a".into()),
            text("0b5b7ac0"),
        )
    }

    #[test]
    fn rows_fit_80_columns_and_show_no_control_characters() {
        let refused = TraceEvent {
            backend: peer("::", 0),
            reason: Counter::PacketRefusedUnknownPort as u32,
            path: TraceEvent::PACKET,
            ..event()
        };
        for (event, found) in
            [(event(), "10.20.1.5:8080 west"), (refused, "packet_refused_unknown_port")]
        {
            let row = view(&event).row(false);
            assert!(row.chars().count() <= 80, "{row}");
            assert!(row.contains(found) && !row.contains('\x1b'), "{row}");
        }
        assert!(view(&event()).row(true).contains("(affinity)"));
        assert!(header(false).chars().count() <= 80);
    }

    #[test]
    fn json_has_the_fields_of_the_schema() {
        let schema = include_str!("../../../deploy/schema/trace.schema.json");
        let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
        let properties = schema["properties"].as_object().unwrap();
        let told = TraceTotals { timestamp: Timestamp::now(), shown: 1, seen: 2, lost: 3 };
        let lines =
            [serde_json::to_value(view(&event())).unwrap(), serde_json::to_value(told).unwrap()];
        let names = lines.iter().flat_map(|line| line.as_object().unwrap().keys());
        let names: std::collections::BTreeSet<_> = names.collect();
        assert_eq!(names, properties.keys().collect());
    }

    #[test]
    fn each_reason_has_a_verdict() {
        for (reason, verdict) in [
            (Counter::FlowCreated, Verdict::Translated),
            (Counter::RefusedGone, Verdict::Refused),
            (Counter::PacketRefusedCollision, Verdict::Refused),
            (Counter::PacketDroppedFailed, Verdict::Dropped),
            (Counter::PacketPassed, Verdict::Passed),
        ] {
            assert_eq!(Verdict::of(reason), verdict);
        }
    }
}
