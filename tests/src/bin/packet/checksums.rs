//! Checksums: the programs update them by the difference, with the result of a new computation.

use fastrand::Rng;

use crate::{prelude::*, row::rows};

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    rows(suite, "checksums: a UDP checksum of 0 stays 0 | UDP | >first:nosum! =data:nosum");
    each(suite, "checksums: one that becomes 0", of_side(becomes_zero));
    one(suite, "checksums: an IPv4 header's that becomes 0", Family::V4, header_becomes_zero);
    each(suite, "checksums: a wrong one stays wrong", of_side(wrong));
    each(suite, "checksums: packets of all sorts", random);
}

/// The place of the checksum of the payload's protocol in a packet without options.
fn checksum_at(packet: &Packet) -> usize {
    Packet::family_of(packet.src).header()
        + if packet.protocol() == Protocol::Tcp.number() { 16 } else { 6 }
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
) -> Result<Packet> {
    let checksum = |packet: &Packet| word(&translated(packet).bytes(), at);
    let packet = with_word(checksum(&with_word(0)));
    // UDP writes 0 as 0xffff.
    ensure!(matches!(checksum(&packet), 0 | 0xffff), "the checksum is not 0");
    Ok(packet)
}

fn becomes_zero(fixture: &mut Fixture, flow: TestFlow, side: Side) -> Result {
    let with_word = |word: u16| flow.later(side).payload(&word.to_be_bytes());
    let at = checksum_at(&with_word(0));
    let becomes = zeroed(with_word, |packet| flow.translated(side, packet), at)?;
    fixture.carries(&flow, side, &becomes)?;
    fixture.carries(&flow, side, &zeroed(with_word, Packet::clone, at)?)
}

fn header_becomes_zero(fixture: &mut Fixture) -> Result {
    const CHECKSUM: usize = 10;

    let flow = fixture.open_flow(Protocol::Udp)?;
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

fn wrong(fixture: &mut Fixture, flow: TestFlow, side: Side) -> Result {
    [1, 0x100, 0x8000, 0xfffe].into_iter().try_for_each(|error| {
        let packet = flow.later(side);
        let bytes = [&packet, &flow.translated(side, &packet)].map(|one| spoilt(one, error));
        fixture.carries_as(&flow, side, &packet, bytes)
    })
}

fn random(fixture: &mut Fixture) -> Result {
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
