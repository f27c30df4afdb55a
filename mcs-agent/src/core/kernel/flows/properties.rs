//! What holds of the sweep whatever the packets are.

use std::collections::BTreeMap;

use mcs_common::{Flow, FlowState, Seen, Tuple};
use proptest::{collection::vec, prelude::*, sample::select};

use super::{
    FlowEntry, FlowPair, FlowScan,
    tests::{TCP, UDP, flow},
};

const SECOND: u64 = 1_000_000_000;
const FLOWS: u16 = 4;

/// What happens to one of a few flows.
#[derive(Clone, Copy, Debug)]
enum Event {
    Packet { reply: bool, flags: u32 },
    Eviction { reply: bool },
}

/// The table as the programs keep it, and when a packet was really translated by each entry.
#[derive(Default)]
struct Model {
    table: BTreeMap<Tuple, Flow>,
    packets: BTreeMap<Tuple, u64>,
}

impl Model {
    fn do_event(&mut self, number: u16, event: Event, now: u64) {
        let entries = flow(if number.is_multiple_of(2) { TCP } else { UDP }, number);
        match event {
            Event::Packet { reply, flags } => self.packet(entries, reply, flags, now),
            Event::Eviction { reply } => {
                self.table.remove(&entries[usize::from(reply)].key);
            }
        }
    }

    fn packet(&mut self, entries: [FlowEntry; 2], reply: bool, flags: u32, now: u64) {
        let [one, other] = if reply { [entries[1], entries[0]] } else { entries };
        let flags = if one.key.protocol == TCP { flags } else { 0 };
        if let Some(flow) = self.table.get_mut(&one.key) {
            flow.seen = Seen::after(flow.seen, flags);
            if Flow::is_outdated(flow.last_seen_ns, now) {
                flow.last_seen_ns = now;
                self.insert(&other, now, 0);
            }
        } else if reply {
            return;
        } else {
            self.insert(&other, now, 0);
            self.insert(&one, now, Seen::after(0, flags));
        }
        self.packets.insert(one.key, now);
    }

    fn insert(&mut self, entry: &FlowEntry, now: u64, seen: u32) {
        self.table.entry(entry.key).or_insert_with(|| {
            self.packets.remove(&entry.key);
            Flow { last_seen_ns: now, seen, ..entry.flow }
        });
    }

    /// Each flow with the time of the latest packet that its entries have translated.
    fn flows(&self) -> Vec<(FlowPair, u64)> {
        let entry = |key: Tuple| self.table.get(&key).map(|&flow| FlowEntry { key, flow });
        let first = |key: &Tuple| {
            let one = entry(*key)?;
            let flow = FlowPair::new(one, entry(one.other_key()));
            let packets = flow.entries().filter_map(|entry| self.packets.get(&entry.key));
            Some((flow, packets.copied().max().unwrap_or(0)))
        };
        self.table.keys().filter_map(first).collect()
    }

    fn sweep(&mut self, now: u64) -> usize {
        let mut scan = FlowScan::new(now, std::sync::Arc::default(), None);
        self.table.iter().for_each(|(&key, &flow)| scan.add(FlowEntry { key, flow }));
        let totals = scan.finish();
        for entry in totals.due.iter().flat_map(FlowPair::entries) {
            self.table.remove(&entry.key);
        }
        totals.due.len()
    }
}

fn timeout(flow: &FlowPair) -> u64 {
    flow.state().timeout_ns(flow.client().protocol)
}

fn event() -> impl Strategy<Value = Event> {
    let flags = select(vec![0, Seen::SYN, Seen::ACK, Seen::FIN | Seen::ACK, Seen::RST]);
    prop_oneof![
        9 => (any::<bool>(), flags).prop_map(|(reply, flags)| Event::Packet { reply, flags }),
        1 => any::<bool>().prop_map(|reply| Event::Eviction { reply }),
    ]
}

/// Around the ends of timeouts above all.
fn pause() -> impl Strategy<Value = u64> {
    let timeouts: Vec<u64> = FlowState::ALL
        .iter()
        .flat_map(|state| [TCP, UDP].map(|protocol| state.timeout_ns(protocol)))
        .collect();
    prop_oneof![
        4 => 0..SECOND,
        2 => 0..10 * SECOND,
        2 => (select(timeouts), 0..SECOND)
            .prop_map(|(timeout, jitter)| timeout + jitter - SECOND / 2),
    ]
}

proptest! {
    #[test]
    fn a_flow_is_forgotten_when_its_timeout_has_passed_and_not_before(
        steps in vec((pause(), 0..FLOWS, event(), any::<bool>()), 1..60)
    ) {
        let mut model = Model::default();
        let mut now = 1_000 * SECOND;
        for (pause, number, event, sweeps) in steps {
            now += pause;
            if sweeps {
                let before = model.flows();
                model.sweep(now);
                for (flow, packet) in before {
                    let there = flow.entries().all(|entry| model.table.contains_key(&entry.key));
                    let idle = now - packet;
                    prop_assert!(there || idle >= timeout(&flow), "{flow:?} idle for {idle}");
                    let gone = flow.entries().all(|entry| !model.table.contains_key(&entry.key));
                    let late = now - flow.last_seen_ns() >= timeout(&flow) + Flow::TOUCH_NS;
                    prop_assert!(gone || !late, "{flow:?} stays");
                }
            }
            model.do_event(number, event, now);
        }
        // In the end nothing is left.
        now += FlowState::Established.timeout_ns(TCP) + Flow::TOUCH_NS;
        model.sweep(now);
        prop_assert!(model.table.is_empty());
    }
}
