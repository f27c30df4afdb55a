//! Checksums: changed by the difference, to what a new one would be.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use etherparse::checksum::Sum16BitWords;
use fastrand::Rng;
use mcs_common::Counter;
use mcs_tests::suite::Suite;

use crate::{
    each,
    family::Family,
    lab::{Hook, Lab},
    one,
    packet::{Packet, Protocol},
    talk::{Side, Talk},
};

pub(crate) fn cases(suite: &mut Suite<Lab>) {
    each(suite, "checksums: a UDP checksum of 0 stays 0", none);
    each(suite, "checksums: one that becomes 0", becomes_zero);
    one(suite, "checksums: an IPv4 header's that becomes 0", Family::V4, header_becomes_zero);
    each(suite, "checksums: a wrong one stays wrong", wrong);
    each(suite, "checksums: packets of all sorts", random);
}

fn talk(lab: &mut Lab, protocol: Protocol) -> anyhow::Result<Talk> {
    lab.reset(lab.family, lab.medium)?;
    let service = lab.service(protocol, lab.family.vip(1), &[lab.family.pod(1)])?;
    Ok(Talk::new(lab.family.client(1), &service))
}

fn none(lab: &mut Lab) -> anyhow::Result<()> {
    let talk = talk(lab, Protocol::Udp)?;
    lab.opens(&talk, &talk.first().without_checksum())?;
    for side in Side::BOTH {
        lab.carries(&talk, side, &talk.later(side).without_checksum())?;
    }
    Ok(())
}

/// Where the checksum of the payload's protocol stands in the packet, which has no options.
fn checksum_at(packet: &Packet) -> usize {
    let header = if packet.src.is_ipv4() { 20 } else { 40 };
    header + if packet.protocol() == Protocol::Tcp.number() { 16 } else { 6 }
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Makes a checksum of the packet 0: its own, or the one it has after `translated`. A word that is the
/// checksum which stands there without it adds up to that.
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

fn becomes_zero(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let talk = talk(lab, protocol)?;
        lab.established(&talk)?;
        for side in Side::BOTH {
            let with_word = |word: u16| talk.later(side).payload(&word.to_be_bytes());
            let at = checksum_at(&with_word(0));
            let becomes = zeroed(with_word, |packet| talk.translated(side, packet), at)?;
            lab.carries(&talk, side, &becomes)?;
            lab.carries(&talk, side, &zeroed(with_word, Packet::clone, at)?)?;
        }
    }
    Ok(())
}

fn header_becomes_zero(lab: &mut Lab) -> anyhow::Result<()> {
    const CHECKSUM: usize = 10;

    let talk = talk(lab, Protocol::Udp)?;
    lab.established(&talk)?;
    for side in Side::BOTH {
        let with_word = |id: u16| talk.later(side).id(id.into());
        let becomes = zeroed(with_word, |packet| talk.translated(side, packet), CHECKSUM)?;
        lab.carries(&talk, side, &becomes)?;
        lab.carries(&talk, side, &zeroed(with_word, Packet::clone, CHECKSUM)?)?;
    }
    Ok(())
}

/// Makes the checksum at `at` wrong by `error`.
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

fn wrong(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let talk = talk(lab, protocol)?;
        lab.established(&talk)?;
        for side in Side::BOTH {
            for error in [1, 0x100, 0x8000, 0xfffe] {
                let packet = talk.later(side);
                let flags = packet.flags();
                let out = spoilt(&talk.translated(side, &packet), error);
                let expect =
                    talk.carried(side, &out).writes(move |tables| talk.passes(tables, side, flags));
                lab.expect(talk.hook(side), spoilt(&packet, error), expect)?;
            }
        }
    }
    Ok(())
}

fn random(lab: &mut Lab) -> anyhow::Result<()> {
    let mut rng = Rng::with_seed(0x6d63_7361);
    for _ in 0..100 {
        let protocol = rng.choice(Protocol::ALL).context("there are two")?;
        lab.reset(lab.family, lab.medium)?;
        let host = rng.u8(..);
        let mut port = |end: SocketAddr| SocketAddr::new(end.ip(), rng.u16(1..));
        let (vip, pod) = (port(lab.family.vip(1)), port(lab.family.pod(9)));
        let client = port(lab.family.client(host));
        let service = lab.service(protocol, vip, &[pod])?;
        let talk = Talk::new(client, &service);
        let mut packet = |side| {
            let payload: Vec<_> = (0..rng.usize(..64)).map(|_| rng.u8(..)).collect();
            talk.later(side).payload(&payload).id(rng.u16(..).into()).hops(rng.u8(1..))
        };
        lab.opens(&talk, &packet(Side::Client))?;
        for _ in 0..4 {
            for side in Side::BOTH {
                lab.carries(&talk, side, &packet(side))?;
            }
        }
    }
    // The last one stands for a packet that nobody asked for.
    let stranger = Packet::udp(lab.family.pod(200), lab.family.client(200));
    lab.ignores(Hook::ToPod, stranger)?;
    assert_eq!(lab.tables.counters.get(Counter::PacketDroppedFailed.name()), Some(&0));
    Ok(())
}
