//! Tests of flows, scans and their report.

use std::{
    mem::take,
    net::{IpAddr, Ipv4Addr},
};

use mcs_common::{BackendRef, Flow, FlowFlags, FlowState, Seen, Tuple};

use super::{Connect, Connects, FlowEntry, FlowPair, FlowScan, Pairing, ScanTotals, is_device};

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
const SECOND: u64 = 1_000_000_000;

fn pod(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 1, 0, last).into()
}

fn vip() -> IpAddr {
    Ipv4Addr::new(10, 99, 0, 1).into()
}

/// Both entries of the flow from a port of 10.1.0.1 to the VIP, which 10.1.0.2 serves: the client's
/// and the one for replies.
pub(super) fn flow(protocol: u8, port: u16) -> [FlowEntry; 2] {
    let client = Tuple::new(pod(1).into(), port, vip().into(), 80, protocol, 7);
    let translated = Tuple::new(pod(1).into(), port, pod(2).into(), 8080, protocol, 7);
    [
        FlowEntry { key: client, flow: entry(translated, 0) },
        FlowEntry { key: translated.reversed(), flow: entry(client.reversed(), FlowFlags::REPLY) },
    ]
}

fn entry(to: Tuple, flags: u32) -> Flow {
    Flow {
        to,
        chosen: BackendRef { id: 1, generation: 1 },
        frontend: 1,
        flags,
        last_seen_ns: 0,
        seen: 0,
        pad: 0,
    }
}

fn totals(entries: impl IntoIterator<Item = FlowEntry>, now_ns: u64) -> ScanTotals {
    let mut scan = FlowScan::new(now_ns, std::sync::Arc::default(), None);
    entries.into_iter().for_each(|entry| scan.add(entry));
    scan.finish()
}

#[test]
fn a_flow_is_due_after_the_timeout_of_its_state() {
    const ANY: u32 = Seen::ANY;
    let cases = [
        ("UDP without an answer", UDP, ANY, Some(0), FlowState::Unreplied, 30),
        ("UDP", UDP, ANY, Some(ANY), FlowState::Replied, 120),
        ("TCP without an answer", TCP, ANY | Seen::SYN, Some(0), FlowState::Unreplied, 120),
        ("TCP", TCP, ANY | Seen::SYN, Some(ANY | Seen::SYN), FlowState::Established, 7440),
        ("TCP, the client has closed", TCP, ANY | Seen::FIN, Some(ANY), FlowState::Closing, 240),
        ("TCP, closed", TCP, ANY | Seen::FIN, Some(ANY | Seen::FIN), FlowState::Closed, 120),
        ("TCP, reset by the server", TCP, ANY, Some(ANY | Seen::RST), FlowState::Reset, 10),
        (
            "TCP without its entry for replies",
            TCP,
            ANY | Seen::SYN,
            None,
            FlowState::Unreplied,
            120,
        ),
        ("UDP without its entry for replies", UDP, ANY, None, FlowState::Unreplied, 30),
    ];
    for (name, protocol, client_seen, reply_seen, state, seconds) in cases {
        let [mut client, mut reply] = flow(protocol, 40_000);
        client.flow.seen = client_seen;
        client.flow.last_seen_ns = 5 * SECOND;
        reply.flow.seen = reply_seen.unwrap_or(0);
        let reply = reply_seen.map(|_| reply);
        let flow = FlowPair::new(client, reply);
        assert_eq!(flow.state(), state, "{name}");
        let due = (5 + seconds) * SECOND + Flow::TOUCH_NS;
        assert!(!flow.is_due(due - 1), "{name}");
        assert!(flow.is_due(due), "{name}");
    }
}

#[test]
fn connections_that_the_programs_translate_are_open_until_they_end() {
    const SYN: u32 = Seen::ANY | Seen::SYN;
    for (protocol, flags, client_seen, reply_seen, seconds, is_open) in [
        (TCP, 0, SYN, 0, 1, true),
        (TCP, 0, SYN, SYN, 7000, true),
        (TCP, 0, SYN, SYN, 7500, false),
        (TCP, 0, SYN | Seen::FIN, SYN, 1, true),
        (TCP, 0, SYN | Seen::FIN, SYN | Seen::FIN, 1, false),
        (TCP, 0, SYN, SYN | Seen::RST, 1, false),
        (TCP, FlowFlags::PASSED, SYN, SYN, 1, false),
        (UDP, 0, Seen::ANY, Seen::ANY, 1, false),
    ] {
        let [mut client, mut reply] = flow(protocol, 40_000);
        client.flow.seen = client_seen;
        reply.flow.seen = reply_seen;
        client.flow.flags |= flags;
        reply.flow.flags |= flags;
        let found = FlowPair::new(client, Some(reply)).is_open_connection(seconds * SECOND);
        assert_eq!(found, is_open, "{protocol} {flags} {client_seen} {reply_seen} {seconds}");
    }
}

#[test]
fn flows_say_what_became_of_connects() {
    const SYN: u32 = Seen::ANY | Seen::SYN;
    const RST: u32 = Seen::ANY | Seen::RST;
    let second = Connect::Failed(SECOND + 7);
    for (protocol, flags, client_seen, reply_seen, again, said) in [
        (TCP, 0, SYN, SYN, 0, Some(Connect::Answered(7))),
        (TCP, 0, SYN, SYN | RST, 0, Some(Connect::Answered(7))),
        (TCP, 0, SYN, RST, 0, Some(Connect::Failed(7))),
        (TCP, 0, SYN, 0, SECOND, Some(second)),
        (TCP, 0, SYN, 0, 0, None),
        // It began before its entries did.
        (TCP, 0, Seen::ANY, 0, SECOND, None),
        (TCP, 0, Seen::ANY, RST, 0, None),
        (TCP, FlowFlags::PASSED, SYN, 0, SECOND, None),
        (UDP, 0, Seen::ANY, 0, SECOND, None),
    ] {
        let [mut client, mut reply] = flow(protocol, 40_000);
        (client.flow.seen, client.flow.last_seen_ns) = (client_seen, 7 + again);
        (reply.flow.seen, reply.flow.last_seen_ns) = (reply_seen, 7);
        client.flow.flags |= flags;
        reply.flow.flags |= flags;
        let found = FlowPair::new(client, Some(reply)).connect();
        assert_eq!(found, said, "{protocol} {flags} {client_seen} {reply_seen} {again}");
        assert_eq!(FlowPair::new(client, None).connect(), None);
    }
}

#[test]
fn a_connection_answers_once() {
    let accepted = |port, at| {
        let [mut client, mut reply] = flow(TCP, port);
        client.flow.seen = Seen::ANY | Seen::SYN;
        (reply.flow.seen, reply.flow.last_seen_ns) = (Seen::ANY | Seen::SYN, at);
        FlowPair::new(client, Some(reply))
    };
    let answered = |connects: &Connects| {
        assert_eq!(connects.records().len(), 1);
        connects.records().values().next().unwrap().answered_ns
    };
    // Nobody knows when those of the first sweep began.
    let mut connects = Connects::default();
    connects.add(&accepted(1, 10));
    assert_eq!(answered(&connects), 0);
    let mut connects = connects.next();
    connects.add(&accepted(1, 20));
    assert_eq!(answered(&connects), 0, "an old connection goes on");
    connects.add(&accepted(2, 15));
    assert_eq!(answered(&connects), 15);
    let mut connects = connects.next();
    connects.add(&accepted(2, 30));
    assert_eq!(answered(&connects), 0);
}

/// A TCP flow of a device that the backend reset at this time.
fn failed(port: u16, device: u32, at: u64) -> FlowPair {
    let [mut client, mut reply] = flow(TCP, port);
    for entry in [&mut client, &mut reply] {
        (entry.key.device, entry.flow.to.device) = (device, device);
    }
    (client.flow.seen, client.flow.last_seen_ns) = (Seen::ANY | Seen::SYN, at);
    (reply.flow.seen, reply.flow.last_seen_ns) = (Seen::ANY | Seen::RST, at);
    FlowPair::new(client, Some(reply))
}

#[test]
fn a_flow_fails_once() {
    let mut connects = Connects::default();
    let mut sweep = |flows: &[FlowPair]| {
        connects = take(&mut connects).next();
        for flow in flows {
            connects.add(flow);
        }
        connects.records().values().map(|record| record.failed).sum::<u64>()
    };
    let [first, second, third] = [failed(1, 3, 20), failed(2, 3, 30), failed(3, 4, 40)];
    assert_eq!(sweep(&[first]), 1);
    assert_eq!(sweep(&[first, second, third]), 2);
    assert_eq!(sweep(&[first, second, third]), 0);
    // Whatever failed before anybody asked does not count.
    let mut connects = Connects::default();
    connects.add(&first);
    assert_eq!(connects.records().values().next().unwrap().failed, 0);
}

#[test]
fn the_latest_failures_of_each_device_count() {
    let mut flows = vec![failed(1, 3, 20), failed(2, 3, 10), failed(3, 3, 30), failed(4, 4, 5)];
    let of = |flows: &[FlowPair]| {
        let mut connects = Connects::default();
        for flow in flows {
            connects.add(flow);
        }
        let (_, record) = connects.records().iter().next().unwrap();
        assert!(
            record.failures.iter().all(|one| one.latest_ns == 0 || is_device(one.netns_cookie))
        );
        let mut times = record.failures.map(|one| (one.latest_ns, one.before_ns));
        times.sort_unstable();
        times
    };
    assert_eq!(of(&flows), [(0, 0), (0, 0), (5, 0), (30, 20)]);
    flows.reverse();
    assert_eq!(of(&flows), [(0, 0), (0, 0), (5, 0), (30, 20)]);
    // There is room for four. Who failed earliest leaves.
    let crowd: Vec<_> = (1..=9_u32).map(|device| failed(9, device, device.into())).collect();
    assert_eq!(of(&crowd), [(6, 0), (7, 0), (8, 0), (9, 0)]);
    let reversed: Vec<_> = crowd.into_iter().rev().collect();
    assert_eq!(of(&reversed), [(6, 0), (7, 0), (8, 0), (9, 0)]);
}

#[test]
fn the_later_packet_of_both_directions_counts() {
    for (client_seen, reply_seen) in [(100, 3), (3, 100)] {
        let [mut client, mut reply] = flow(UDP, 40_000);
        client.flow.last_seen_ns = client_seen * SECOND;
        reply.flow.last_seen_ns = reply_seen * SECOND;
        assert_eq!(FlowPair::new(client, Some(reply)).last_seen_ns(), 100 * SECOND);
    }
    // Another CPU has seen one since this one read the clock.
    let [mut client, _] = flow(UDP, 40_000);
    client.flow.last_seen_ns = 100 * SECOND;
    assert!(!FlowPair::new(client, None).is_due(99 * SECOND));
}

#[test]
fn either_entry_tells_the_whole_flow() {
    for (protocol, port) in [(TCP, 40_000), (UDP, 40_001)] {
        let [client, reply] = flow(protocol, port);
        for flow in [
            FlowPair::new(client, Some(reply)),
            FlowPair::new(reply, Some(client)),
            FlowPair::new(client, None),
            FlowPair::new(reply, None),
        ] {
            assert_eq!(flow.client(), client.key);
            assert_eq!(flow.translated(), client.flow.to);
        }
    }
}

#[test]
fn entries_come_together_in_any_order() {
    let [a_client, a_reply] = flow(TCP, 1);
    let [b_client, b_reply] = flow(TCP, 2);
    let mut pairing = Pairing::default();
    assert_eq!(pairing.add(a_reply), None);
    assert_eq!(pairing.add(b_client), None);
    assert_eq!(pairing.add(a_client), Some(FlowPair::new(a_client, Some(a_reply))));
    assert_eq!(pairing.rest().collect::<Vec<_>>(), [FlowPair::new(b_client, None)]);
    let reply_alone = totals([b_reply], SECOND);
    assert_eq!((reply_alone.usage.entries, reply_alone.usage.halves), (1, 1));
    // The client has another backend now, or a direct connection from the same port.
    let [_, left_behind] = flow(UDP, 3);
    let mut given_way = b_reply;
    given_way.flow.flags |= FlowFlags::PASSED;
    assert_eq!(totals([left_behind, given_way], SECOND).usage.halves, 0);
}

/// A flow whose entry for replies was evicted, and whose place another one has taken since.
#[test]
fn an_entry_of_another_flow_is_no_pair() {
    let [loser, _] = flow(UDP, 1);
    let [mut winner, mut reply] = flow(UDP, 1);
    winner.key.dst = Ipv4Addr::new(10, 99, 0, 2).into();
    reply.flow.to = winner.key.reversed();
    for entries in [[loser, winner, reply], [reply, loser, winner], [winner, reply, loser]] {
        let found = totals(entries, SECOND);
        assert_eq!((found.usage.entries, found.usage.halves), (3, 1));
    }
    assert_eq!(FlowPair::new(loser, Some(reply)), FlowPair::new(loser, None));
}

#[test]
fn a_scan_counts_what_stays_and_names_what_goes() {
    let mut entries = Vec::new();
    for (protocol, port, seen, last_seen) in [
        (TCP, 1, Seen::ANY, 100),
        (TCP, 2, Seen::ANY, 100),
        (TCP, 3, Seen::ANY | Seen::RST, 100),
        (TCP, 4, Seen::ANY | Seen::RST, 5),
        (UDP, 5, Seen::ANY, 100),
    ] {
        for mut entry in flow(protocol, port) {
            entry.flow.seen = seen;
            entry.flow.last_seen_ns = last_seen * SECOND;
            entries.push(entry);
        }
    }
    let found = totals(entries, 101 * SECOND);
    assert_eq!((found.usage.entries, found.usage.halves), (10, 0));
    let due: Vec<_> = found.due.iter().map(|flow| flow.client().src_port).collect();
    assert_eq!(due, [4]);
    let counts: Vec<_> = found
        .usage
        .states
        .iter()
        .flat_map(|(protocol, states)| {
            states.iter().map(move |(state, count)| format!("{protocol} {state} {count}"))
        })
        .collect();
    assert_eq!(counts, ["TCP established 2", "TCP reset 1", "UDP replied 1"]);
}

#[test]
fn usage_reads_as_one_line() {
    let mut usage = super::FlowUsage { max: 65_536, forgotten: 7, ..Default::default() };
    assert_eq!(usage.to_string(), "0 of 65536, 7 forgotten");
    for (protocol, state, count) in
        [("TCP", "closed", 1), ("TCP", "established", 2), ("UDP", "replied", 3)]
    {
        usage.states.entry(protocol.to_owned()).or_default().insert(state.to_owned(), count);
    }
    assert_eq!(
        usage.to_string(),
        "6 of 65536 (TCP: 1 closed, 2 established; UDP: 3 replied), 7 forgotten"
    );
    usage = super::FlowUsage { max: 256, halves: 2, ..Default::default() };
    assert_eq!(usage.to_string(), "0 of 256, 0 forgotten, 2 lost an entry");
}
