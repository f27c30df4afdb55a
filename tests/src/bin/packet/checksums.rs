//! Checksums: the programs update them by the difference, with the result of a new computation.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use etherparse::checksum::Sum16BitWords;
use fastrand::Rng;
use mcs_common::Counter;
use mcs_tests::suite::Suite;

use crate::{
    each,
    family::Family,
    fixture::{Fixture, Hook},
    one,
    packet::{Packet, Protocol},
    test_flow::{Side, TestFlow},
};

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    each(suite, "checksums: a UDP checksum of 0 stays 0", none);
    each(suite, "checksums: one that becomes 0", becomes_zero);
    one(suite, "checksums: an IPv4 header's that becomes 0", Family::V4, header_becomes_zero);
    each(suite, "checksums: a wrong one stays wrong", wrong);
    each(suite, "checksums: packets of all sorts", random);
}

fn none(fixture: &mut Fixture) -> anyhow::Result<()> {
    let flow = fixture.new_flow(Protocol::Udp)?;
    fixture.opens(&flow, &flow.first().without_checksum())?;
    for side in Side::BOTH {
        fixture.carries(&flow, side, &flow.later(side).without_checksum())?;
    }
    Ok(())
}

/// The place of the checksum of the payload's protocol in a packet without options.
fn checksum_at(packet: &Packet) -> usize {
    let header = if packet.src.is_ipv4() { 20 } else { 40 };
    header + if packet.protocol() == Protocol::Tcp.number() { 16 } else { 6 }
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Makes the checksum of the packet 0, before or after `translated`. The word of the packet is the checksum that the packet has with
/// the word 0: both add up to 0.
fn zeroed(
    with_word: impl Fn(u16) -> Packet,
    translated: impl Fn(&Packet) -> Packet,
    at: usize,
) -> anyhow::Result<Packet> {
    let checksum = |packet: &Packet| word(&translated(packet).bytes(), at);
    let packet = with_word(checksum(&with_word(0)));
    // UDP writes 0 as 0xffff.
    ensure!(matches!(checksum(&packet), 0 | 0xffff), "the checksum is not 0");
    Ok(packet)
}

fn becomes_zero(fixture: &mut Fixture) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let flow = fixture.new_flow(protocol)?;
        fixture.established(&flow)?;
        for side in Side::BOTH {
            let with_word = |word: u16| flow.later(side).payload(&word.to_be_bytes());
            let at = checksum_at(&with_word(0));
            let becomes = zeroed(with_word, |packet| flow.translated(side, packet), at)?;
            fixture.carries(&flow, side, &becomes)?;
            fixture.carries(&flow, side, &zeroed(with_word, Packet::clone, at)?)?;
        }
    }
    Ok(())
}

fn header_becomes_zero(fixture: &mut Fixture) -> anyhow::Result<()> {
    const CHECKSUM: usize = 10;

    let flow = fixture.new_flow(Protocol::Udp)?;
    fixture.established(&flow)?;
    for side in Side::BOTH {
        let with_word = |id: u16| flow.later(side).id(id.into());
        let becomes = zeroed(with_word, |packet| flow.translated(side, packet), CHECKSUM)?;
        fixture.carries(&flow, side, &becomes)?;
        fixture.carries(&flow, side, &zeroed(with_word, Packet::clone, CHECKSUM)?)?;
    }
    Ok(())
}

/// Adds `error` to the checksum at `at`.
pub(crate) fn spoil(bytes: &mut [u8], at: usize, error: u16) {
    let sum = Sum16BitWords::new().add_2bytes([bytes[at], bytes[at + 1]]);
    let sum = sum.add_2bytes(error.to_be_bytes());
    // The complement of the complement. etherparse adds words as they lie in memory.
    let checksum = !sum.ones_complement();
    bytes[at..at + 2].copy_from_slice(&checksum.to_ne_bytes());
}

/// The packet with a checksum that is wrong by `error`.
fn spoilt(packet: &Packet, error: u16) -> Vec<u8> {
    let mut bytes = packet.bytes();
    spoil(&mut bytes, checksum_at(packet), error);
    bytes
}

fn wrong(fixture: &mut Fixture) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let flow = fixture.new_flow(protocol)?;
        fixture.established(&flow)?;
        for side in Side::BOTH {
            for error in [1, 0x100, 0x8000, 0xfffe] {
                let packet = flow.later(side);
                let flags = packet.flags();
                let out = spoilt(&flow.translated(side, &packet), error);
                let expect =
                    flow.carried(side, &out).writes(move |tables| flow.passes(tables, side, flags));
                fixture.expect(flow.hook(side), spoilt(&packet, error), expect)?;
            }
        }
    }
    Ok(())
}

fn random(fixture: &mut Fixture) -> anyhow::Result<()> {
    let mut rng = Rng::with_seed(0x6d63_7361);
    for _ in 0..100 {
        let protocol = rng.choice(Protocol::ALL).context("there are two")?;
        fixture.reset(fixture.family, fixture.medium)?;
        fixture.set_evicted()?;
        let host = rng.u8(..);
        let mut port = |end: SocketAddr| SocketAddr::new(end.ip(), rng.u16(1..));
        let (vip, pod) = (port(fixture.family.vip(1)), port(fixture.family.pod(9)));
        let client = port(fixture.family.client(host));
        let service = fixture.service(protocol, vip, &[pod])?;
        let flow = TestFlow::new(client, &service);
        let mut packet = |side| {
            let payload: Vec<_> = (0..rng.usize(..64)).map(|_| rng.u8(..)).collect();
            flow.later(side).payload(&payload).id(rng.u16(..).into()).hops(rng.u8(1..))
        };
        fixture.opens(&flow, &packet(Side::Client))?;
        for _ in 0..4 {
            for side in Side::BOTH {
                fixture.carries(&flow, side, &packet(side))?;
            }
        }
    }
    // The last one stands for a packet that nobody asked for.
    let stranger = Packet::udp(fixture.family.pod(200), fixture.family.client(200));
    fixture.ignores(Hook::ToPod, stranger)?;
    assert_eq!(fixture.tables.counters.get(Counter::PacketDroppedFailed.name()), Some(&0));
    Ok(())
}
