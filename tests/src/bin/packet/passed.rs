//! Connections that are older than the service of their VIP: they pass unchanged.

use mcs_common::{FlowEvictions, FlowState};

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    each(suite, "passed: TCP without a SYN", without_syn);
    each(suite, "passed: to an unknown port, and without a backend", whatever_the_port);
    each(suite, "passed: replies, and all later packets", whole_connection);
    each(suite, "passed: keep-alive probes after two hours", keep_alive);
    each(suite, "passed: fragments", fragments);
    each(suite, "passed: not once flows may be evicted", evicted);
    each(suite, "passed: again when no evicted flow is left", long_ago);
    each(suite, "passed: a SYN begins a flow", syn_begins);
}

fn service(fixture: &mut Fixture, backends: &[u8]) -> Result<Service> {
    fixture.reset(fixture.family, fixture.medium)?;
    fixture.set_evictions(FlowEvictions { entries: 0, limit: 1000, latest_ns: 0 })?;
    let backends: Vec<_> = backends.iter().map(|pod| fixture.family.pod(*pod)).collect();
    fixture.service(Protocol::Tcp, fixture.family.vip(1), &backends)
}

/// The flow of a connection that passes: its backend is the VIP itself.
fn passing(fixture: &Fixture, service: &Service) -> TestFlow {
    let pick = Pick { address: service.vip, chosen: BackendRef::default() };
    TestFlow::with(fixture.family.client(1), &Service { frontend: 0, ..service.clone() }, pick)
}

/// Expects both entries of a connection that passes.
fn begins(flow: TestFlow, flags: u8) -> impl FnOnce(&mut Tables) {
    move |tables| {
        flow.begins(tables, flags);
        for side in Side::BOTH {
            if let Some(entry) = tables.flows.get_mut(&flow.key(side)) {
                entry.value.flags |= FlowFlags::PASSED;
            }
        }
    }
}

fn passes(fixture: &mut Fixture, flow: TestFlow, packet: &Packet) -> Result {
    let expect =
        Expect::next(packet).counts(&[Counter::PacketPassed]).writes(begins(flow, packet.flags()));
    fixture.expect(Hook::FromPod, packet, expect)
}

fn without_syn(fixture: &mut Fixture) -> Result {
    let ack = flag::ACK;
    for flags in [ack, ack | flag::PSH, ack | flag::FIN, flag::RST, ack | flag::SYN, 0] {
        let service = service(fixture, &[1, 2])?;
        let flow = passing(fixture, &service);
        let packet = Packet::tcp(flow.client, flow.vip, flags);
        passes(fixture, flow, &packet)?;
    }
    Ok(())
}

fn whatever_the_port(fixture: &mut Fixture) -> Result {
    let empty = service(fixture, &[])?;
    let flow = passing(fixture, &empty);
    passes(fixture, flow, &flow.later(Side::Client))?;
    let mut unknown = service(fixture, &[1])?;
    unknown.vip.set_port(7);
    let flow = passing(fixture, &unknown);
    passes(fixture, flow, &flow.later(Side::Client))
}

/// Later packets pass by the flow, whatever is evicted meanwhile.
fn whole_connection(fixture: &mut Fixture) -> Result {
    let service = service(fixture, &[1])?;
    let flow = passing(fixture, &service);
    passes(fixture, flow, &flow.later(Side::Client))?;
    fixture.set_evicted()?;
    for flags in [flag::ACK, flag::FIN | flag::ACK] {
        for side in Side::BOTH {
            let (from, to) = flow.ends(side);
            let packet = Packet::tcp(from, to, flags).payload(&[3; 700]);
            let expect = Expect::next(&packet).writes(move |tables| {
                flow.passes(tables, side, flags);
            });
            match side {
                Side::Client => {
                    let expect = expect.counts(&[Counter::PacketPassed]);
                    fixture.expect(Hook::FromPod, &packet, expect)?;
                }
                Side::Backend => fixture.expect(Hook::ToPod, &packet, expect)?,
            }
        }
    }
    Ok(())
}

/// A probe is one byte behind, without data or with a byte that means nothing (RFC 9293, 3.8.4).
fn keep_alive(fixture: &mut Fixture) -> Result {
    // By default Linux waits so long, and RFC 9293 allows no less.
    let idle = Duration::from_hours(2);
    ensure!(idle.as_nanos() < FlowState::Established.timeout_ns(Protocol::Tcp.number()).into());
    let service = service(fixture, &[1])?;
    let flow = passing(fixture, &service);
    passes(fixture, flow, &flow.later(Side::Client))?;
    // Without its flow the packet would go to a backend, as a packet of an evicted flow does.
    fixture.set_evicted()?;
    for garbage in [&[][..], &[0]] {
        for prober in Side::BOTH {
            for side in Side::BOTH {
                fixture.age_flow(&flow.key(side), idle)?;
            }
            let (from, to) = flow.ends(prober);
            let mut probe = Packet::tcp(from, to, flag::ACK).payload(garbage);
            let Body::Tcp { header, .. } = &mut probe.body else { panic!("no TCP") };
            header.sequence_number -= 1;
            let answer = Packet::tcp(to, from, flag::ACK);
            let answers = if prober == Side::Client { Side::Backend } else { Side::Client };
            for (side, packet) in [(prober, probe), (answers, answer)] {
                let expect = Expect::next(&packet)
                    .writes(move |tables| flow.passes(tables, side, flag::ACK));
                let counters: &[_] =
                    if side == Side::Client { &[Counter::PacketPassed] } else { &[] };
                fixture.expect(flow.hook(side), &packet, expect.counts(counters))?;
            }
        }
    }
    Ok(())
}

fn fragments(fixture: &mut Fixture) -> Result {
    let service = service(fixture, &[1])?;
    let flow = passing(fixture, &service);
    let packet = flow.later(Side::Client).payload(&[3; 100]);
    let [first, later] = &packet.pieces(&[64])[..] else { panic!("not two pieces") };
    let expect = Expect::next(first).counts(&[Counter::PacketPassed]);
    let remembers = packet.clone();
    let expect = expect.writes(begins(flow, packet.flags())).writes(move |tables| {
        flow.remembers(tables, Side::Client, &remembers);
        for entry in tables.fragments.values_mut() {
            entry.value.flags |= FlowFlags::PASSED;
        }
    });
    fixture.expect(Hook::FromPod, first, expect)?;
    let expect = Expect::next(later).counts(&[Counter::PacketPassed]);
    fixture.expect(Hook::FromPod, later, expect)
}

/// From one flow beyond the limit on.
fn evicted(fixture: &mut Fixture) -> Result {
    let service = service(fixture, &[1])?;
    fixture.set_evictions(FlowEvictions { entries: 0, limit: 4, latest_ns: 0 })?;
    for (host, is_evicting) in [(2, false), (3, false), (4, true)] {
        let flow = TestFlow::new(fixture.family.client(host), &service);
        fixture.opens(&flow, &flow.first())?;
        assert_eq!(fixture.evictions()?.latest_ns != 0, is_evicting, "{host}");
    }
    let flow = TestFlow::new(fixture.family.client(1), &service);
    fixture.opens(&flow, &flow.later(Side::Client))
}

fn long_ago(fixture: &mut Fixture) -> Result {
    let service = service(fixture, &[1])?;
    let timeout = Duration::from_nanos(FlowState::Established.timeout_ns(6));
    fixture.set_evicted_before(timeout / 2)?;
    let flow = TestFlow::new(fixture.family.client(2), &service);
    fixture.opens(&flow, &flow.later(Side::Client))?;
    fixture.set_evicted_before(timeout)?;
    let flow = passing(fixture, &service);
    passes(fixture, flow, &flow.later(Side::Client))
}

fn syn_begins(fixture: &mut Fixture) -> Result {
    let service = service(fixture, &[1])?;
    let old = passing(fixture, &service);
    passes(fixture, old, &old.later(Side::Client))?;
    assert_eq!(fixture.tables.flows_used, FlowsUsed::YES);
    let new = TestFlow::new(old.client, &service);
    let flags = new.first().flags();
    let expect = new.outcome(Side::Client, &new.first()).counts(&[Counter::FlowCreated]);
    let expect = expect.writes(move |tables| {
        old.ends_in(tables);
        new.begins(tables, flags);
    });
    fixture.expect(Hook::FromPod, new.first(), expect)?;
    fixture.answers(&new)?;
    fixture.carries(&new, Side::Client, &new.later(Side::Client))
}
