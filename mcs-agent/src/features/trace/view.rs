//! An event as `trace` prints it: for JSON, or as a row.

use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp, Unit};
use mcs_common::{Counter, Peer, TraceEvent};
use mcs_kube::{program::growing_row, report::TraceView};

use super::{
    Names,
    events::{reason, verdict},
};
use crate::core::{kernel::flows::monotonic_ns, model::Protocol};

/// The widths of the columns: 80 with what is between them.
const COLUMNS: [usize; 4] = [12, 21, 27, 17];

/// The heads of the columns of [`row`].
pub(crate) fn header(is_wide: bool) -> String {
    let heads = ["UTC", "SERVICE", "BACKEND OR REASON", "CLIENT"].map(str::to_owned);
    growing_row(COLUMNS, &heads, is_wide)
}

/// `None` for an event with an unknown reason.
pub(crate) fn of_event(event: &TraceEvent, names: &mut Names) -> Option<TraceView> {
    let reason = reason(event)?;
    let import = names.import(event).map(|record| record.import().to_string());
    let cgroup = names.cgroup(event).map(ToOwned::to_owned);
    Some(named(event, reason, import, names.cluster(event), cgroup, names.pod(event)))
}

fn named(
    event: &TraceEvent,
    reason: Counter,
    import: Option<String>,
    cluster: Option<String>,
    cgroup: Option<PathBuf>,
    pod: Option<String>,
) -> TraceView {
    let of = |peer: &Peer| (peer.port != 0).then(|| (peer.addr.to_ip(), peer.port));
    let (backend, client) = (of(&event.backend), of(&event.client));
    let vip = event.vip.addr.to_ip();
    let is_packet = event.path == TraceEvent::PACKET;
    let bytes: [u8; 16] = bytemuck::cast(event.comm);
    let comm = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    TraceView {
        timestamp: time(event.time_ns),
        verdict: verdict(reason),
        reason: reason.name().into(),
        path: if is_packet { "packet" } else { "socket" }.into(),
        import,
        cluster,
        affinity: (!is_packet).then_some(event.by_affinity != 0),
        vip,
        port: event.vip.port,
        transport: Protocol::from_number(event.protocol).map(|protocol| match protocol {
            Protocol::Tcp => "tcp".into(),
            Protocol::Udp => "udp".into(),
        }),
        family: if vip.is_ipv4() { "ipv4" } else { "ipv6" }.into(),
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
pub(crate) fn row(view: &TraceView, is_wide: bool) -> String {
    let time = view.timestamp.to_string();
    let time = time.get(11..).unwrap_or_default().trim_end_matches('Z');
    let transport = view.transport.as_deref().unwrap_or("-").to_uppercase();
    let service = format!("{}/{transport}", view.service());
    let mut outcome = view.outcome();
    if is_wide && view.affinity == Some(true) {
        outcome += " (affinity)";
    }
    let mut client = view.client();
    if is_wide && let Some(pod) = &view.pod {
        client.extend([" pod ", pod]);
    }
    growing_row(COLUMNS, &[time.to_owned(), service, outcome, client], is_wide)
}

/// The time of a moment of the programs' clock.
fn time(ns: u64) -> Timestamp {
    let ago = i64::try_from(monotonic_ns().saturating_sub(ns)).unwrap_or(0);
    let then = Timestamp::now() - SignedDuration::from_nanos(ago);
    then.round(Unit::Millisecond).unwrap_or(then)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use mcs_common::{Address, BackendRef};
    use mcs_kube::{program::Verdict, report::TraceTotals};

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

    fn west(event: &TraceEvent) -> TraceView {
        let import = format!("shop/{}", "x".repeat(63));
        let text = |text: &str| Some(text.to_owned());
        let reason = reason(event).unwrap();
        named(event, reason, Some(import), text("west"), Some("/a".into()), text("0b5b7ac0"))
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
            let row = row(&west(&event), false);
            assert!(row.chars().count() <= 80, "{row}");
            assert!(row.contains(found) && !row.contains('\x1b'), "{row}");
        }
        assert!(row(&west(&event()), true).contains("(affinity)"));
        assert!(header(false).chars().count() <= 80);
    }

    #[test]
    fn json_has_the_fields_of_the_schema() {
        let schema = include_str!("../../../../deploy/schema/trace.schema.json");
        let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
        let properties = schema["properties"].as_object().unwrap();
        let told = TraceTotals { timestamp: Timestamp::now(), shown: 1, seen: 2, lost: 3 };
        let lines =
            [serde_json::to_value(west(&event())).unwrap(), serde_json::to_value(told).unwrap()];
        let names = lines.iter().flat_map(|line| line.as_object().unwrap().keys());
        let names: std::collections::BTreeSet<_> = names.collect();
        assert_eq!(names, properties.keys().collect());
    }

    #[test]
    fn each_reason_has_a_verdict() {
        for (reason, expected) in [
            (Counter::FlowCreated, Verdict::Translated),
            (Counter::RefusedGone, Verdict::Refused),
            (Counter::PacketRefusedCollision, Verdict::Refused),
            (Counter::PacketDroppedFailed, Verdict::Dropped),
            (Counter::PacketPassed, Verdict::Passed),
        ] {
            assert_eq!(verdict(reason), expected);
        }
    }
}
