//! Fragments: only the first has the ports, and the others follow it.

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    each(suite, "fragments: both ways", both_ways);
    each(suite, "fragments: of a pod's packets to itself", both(hairpin));
    each(suite, "fragments: later ones without the first", of_flow(later_alone));
    each(suite, "fragments: later ones long after the first", of_side(late));
    each(suite, "fragments: another datagram of the same identification", same_id);
    each(suite, "fragments: of two flows with one identification, in turns", both(interleaved));
    each(suite, "fragments: a first one with a part of the header", tiny);
    one(suite, "fragments: other protocols of one identification", Family::V4, other_protocol);
    one(suite, "fragments: extensions among them", Family::V6, of_side(with_extensions));
    one(suite, "fragments: options in them", Family::V4, of_side(with_options));
}

/// Where datagrams are cut.
const CUTS: [usize; 2] = [64, 128];

/// A datagram long enough for three pieces.
fn datagram(flow: &TestFlow, side: Side) -> Packet {
    let payload: Vec<_> = (0..160).collect();
    flow.later(side).payload(&payload)
}

/// The first piece of a datagram goes through.
#[track_caller]
fn first(
    fixture: &mut Fixture,
    flow: TestFlow,
    side: Side,
    packet: &Packet,
    pieces: (&[Vec<u8>], &[Vec<u8>]),
) -> Result {
    let (flags, packet) = (packet.flags(), packet.clone());
    let expect = flow.carried(side, &pieces.1[0]).writes(move |tables| {
        flow.passes(tables, side, flags);
        flow.remembers(tables, side, &packet);
    });
    fixture.expect(flow.hook(side), &pieces.0[0], expect)
}

/// All pieces of a datagram go through, in order.
#[track_caller]
fn carries_pieces(fixture: &mut Fixture, flow: TestFlow, side: Side, packet: &Packet) -> Result {
    let out = flow.translated(side, packet).pieces(&CUTS);
    let pieces = packet.pieces(&CUTS);
    first(fixture, flow, side, packet, (&pieces, &out))?;
    for (piece, out) in pieces.iter().zip(&out).skip(1) {
        fixture.expect(flow.hook(side), piece, flow.carried(side, out))?;
    }
    Ok(())
}

pub(crate) fn both_ways(fixture: &mut Fixture) -> Result {
    for protocol in Protocol::ALL {
        let flow = fixture.open_flow(protocol)?;
        for side in Side::BOTH {
            carries_pieces(fixture, flow, side, &datagram(&flow, side))?;
            carries_pieces(fixture, flow, side, &datagram(&flow, side).id(0xfedc))?;
        }
    }
    begins_a_flow(fixture)
}

/// A flow whose first packet comes in pieces.
fn begins_a_flow(fixture: &mut Fixture) -> Result {
    let flow = fixture.new_flow(Protocol::Udp)?;
    let packet = datagram(&flow, Side::Client);
    let out = flow.translated(Side::Client, &packet).pieces(&CUTS);
    let pieces = packet.pieces(&CUTS);
    let expect =
        flow.carried(Side::Client, &out[0]).counts(&[Counter::FlowCreated]).writes(move |tables| {
            flow.begins(tables, 0);
            flow.remembers(tables, Side::Client, &packet);
        });
    fixture.expect(Hook::FromPod, &pieces[0], expect)?;
    fixture.expect(Hook::FromPod, &pieces[2], flow.carried(Side::Client, &out[2]))?;
    fixture.expect(Hook::FromPod, &pieces[1], flow.carried(Side::Client, &out[1]))
}

fn hairpin(fixture: &mut Fixture, protocol: Protocol) -> Result {
    let flow = fixture.hairpin(protocol)?;
    for side in Side::BOTH {
        carries_pieces(fixture, flow, side, &datagram(&flow, side))?;
    }
    Ok(())
}

fn later_alone(fixture: &mut Fixture, flow: TestFlow) -> Result {
    let reason = Counter::PacketDroppedFragment;
    for side in Side::BOTH {
        for piece in &datagram(&flow, side).pieces(&CUTS)[1..] {
            fixture.rejects(side, piece, reason)?;
        }
    }
    // The first one comes after all.
    for side in Side::BOTH {
        carries_pieces(fixture, flow, side, &datagram(&flow, side))?;
    }
    let other = datagram(&flow, Side::Client).id(77).pieces(&CUTS);
    fixture.drops(Hook::FromPod, &other[1], reason)
}

fn late(fixture: &mut Fixture, flow: TestFlow, side: Side) -> Result {
    // The kernel's own, IP_FRAG_TIME: 30 s.
    let half = Duration::from_secs(15);
    let packet = datagram(&flow, side);
    carries_pieces(fixture, flow, side, &packet)?;
    let out = flow.translated(side, &packet).pieces(&CUTS);
    let last = &packet.pieces(&CUTS)[2];
    fixture.age_fragments(half)?;
    fixture.expect(flow.hook(side), last, flow.carried(side, &out[2]))?;
    fixture.age_fragments(half)?;
    fixture.rejects(side, last, Counter::PacketDroppedFragment)?;
    // Another datagram reuses the identification.
    carries_pieces(fixture, flow, side, &packet)
}

fn same_id(fixture: &mut Fixture) -> Result {
    let flow = fixture.open_flow(Protocol::Udp)?;
    carries_pieces(fixture, flow, Side::Client, &datagram(&flow, Side::Client))?;
    // To another frontend of the VIP, which leads elsewhere.
    let mut vip = flow.vip;
    vip.set_port(54);
    let service = fixture.service(Protocol::Udp, vip, &[fixture.family.pod(2)])?;
    let other = TestFlow::new(flow.client, &service);
    fixture.established(&other)?;
    carries_pieces(fixture, other, Side::Client, &datagram(&other, Side::Client))?;
    carries_pieces(fixture, flow, Side::Client, &datagram(&flow, Side::Client))
}

/// Later fragments have no ports, so those of two flows between the same addresses cannot be told apart: they follow the
/// latest first one. RFC 791 and RFC 8200 forbid a sender to use an identification twice at a time.
fn interleaved(fixture: &mut Fixture, protocol: Protocol) -> Result {
    for other_pod in [1, 2] {
        let one = fixture.open_flow(protocol)?;
        let (mut client, mut vip) = (one.client, one.vip);
        client.set_port(50_001);
        vip.set_port(54);
        let service = fixture.service(protocol, vip, &[fixture.family.pod(other_pod)])?;
        let other = TestFlow::new(client, &service);
        fixture.established(&other)?;
        for side in Side::BOTH {
            takes_turns(fixture, &[one, other], side)?;
        }
    }
    Ok(())
}

/// The first pieces of two datagrams, then all others in turns.
fn takes_turns(fixture: &mut Fixture, flows: &[TestFlow; 2], side: Side) -> Result {
    let both = [(flows[0], [1; 160]), (flows[1], [2; 160])];
    let both = both.map(|(flow, payload)| (flow, flow.later(side).payload(&payload)));
    for (flow, packet) in &both {
        let out = flow.translated(side, packet).pieces(&CUTS);
        first(fixture, *flow, side, packet, (&packet.pieces(&CUTS), &out))?;
    }
    for piece in 1..=CUTS.len() {
        for (flow, packet) in &both {
            // Replies of two pods have other sources.
            let followed = if side == Side::Client { &flows[1] } else { flow };
            let out = followed.translated(side, packet).pieces(&CUTS);
            let expect = followed.carried(side, &out[piece]);
            fixture.expect(flow.hook(side), &packet.pieces(&CUTS)[piece], expect)?;
        }
    }
    // A receiver that puts pieces of both together, as it would without a translation, discards the result: the sum in the
    // first piece is not that of such a datagram.
    let (flow, packet) = &both[1];
    let header = if flow.protocol == Protocol::Tcp { 20 } else { 8 };
    let mixed = [vec![2; CUTS[0] - header], vec![1; 160 + header - CUTS[0]]].concat();
    let [right, mixed] = [packet.clone(), packet.clone().payload(&mixed)]
        .map(|packet| flow.translated(side, &packet).pieces(&CUTS).remove(0));
    ensure!(right != mixed, "a datagram of pieces of two flows has the same sum");
    Ok(())
}

fn tiny(fixture: &mut Fixture) -> Result {
    let flow = fixture.open_flow(Protocol::Tcp)?;
    // 8 and 16 bytes of the TCP header (RFC 1858), and all but its options.
    for (side, cut) in [(Side::Client, 8), (Side::Client, 16), (Side::Backend, 16)] {
        let piece = &datagram(&flow, side).pieces(&[cut])[0];
        fixture.rejects(side, piece, Counter::PacketDroppedMalformed)?;
    }
    let syn = flow.first().pieces(&[24]);
    fixture.drops(Hook::FromPod, &syn[0], Counter::PacketDroppedMalformed)
}

fn other_protocol(fixture: &mut Fixture) -> Result {
    let flow = fixture.open_flow(Protocol::Udp)?;
    carries_pieces(fixture, flow, Side::Client, &datagram(&flow, Side::Client))?;
    let tcp = Packet::data(flow.client, flow.vip).payload(&[1; 160]).pieces(&CUTS);
    fixture.drops(Hook::FromPod, &tcp[1], Counter::PacketDroppedFragment)
}

fn with_extensions(fixture: &mut Fixture, flow: TestFlow, side: Side) -> Result {
    let chain = [Extension::HopByHop, Extension::Destination, Extension::LongDestination];
    // This number of extension headers is in the part that is cut: the first piece alone has them.
    (0..chain.len()).try_for_each(|fragmentable| {
        let packet = datagram(&flow, side).extensions(&chain);
        carries_pieces(fixture, flow, side, &Packet { fragmentable, ..packet })
    })
}

fn with_options(fixture: &mut Fixture, flow: TestFlow, side: Side) -> Result {
    let packet = datagram(&flow, side).options(&[148, 4, 0, 0, 1, 1, 1, 0]);
    carries_pieces(fixture, flow, side, &packet)
}
