//! Broken packets: cut short, with false lengths, or changed at random.

use fastrand::Rng;

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    // Refusals cut the packet, which is more than the kernel's check of its sum allows for.
    let media = Medium::UNSUMMED;
    each_on(suite, "hostile: cut short at every byte", media, cut);
    each_on(suite, "hostile: every byte of the headers another one", &[Medium::Ethernet], bytes);
    let two = &[Medium::Ethernet, Medium::Bare];
    each_on(suite, "hostile: every length of the headers", two, lengths);
    each_on(suite, "hostile: a header inside a header inside a header", media, nested);
    each_on(suite, "hostile: broken at random", media, random);
}

/// A packet, and the program that gets it.
pub(crate) type Seeds = Vec<(Hook, Vec<u8>)>;

/// Flows to a pod, and valid packets of every sort.
pub(crate) fn furnish(fixture: &mut Fixture) -> Result<Seeds> {
    fixture.reset(fixture.family, fixture.medium)?;
    let (family, mut seeds) = (fixture.family, Seeds::new());
    for protocol in Protocol::ALL {
        let service = fixture.service_of(protocol, 1, &[1])?;
        let flow = TestFlow::new(family.client(1), &service);
        fixture.established(&flow)?;
        seeds.extend(valid(&flow));
    }
    fixture.set_flows_used(FlowsUsed::YES)?;
    let (client, vip) = (family.client(1), family.vip(1));
    let mut unknown = vip;
    unknown.set_port(7);
    let (echo, _) = family.echo();
    let others = [
        Packet::syn(client, unknown),
        Packet::tcp(client, unknown, flag::ACK).payload(b"anybody there"),
        Packet::udp(client, unknown),
        Packet::other(client.ip(), vip.ip(), 132, &[0xab; 24]),
        Packet::icmp(client.ip(), vip.ip(), (echo, 0, [0, 1, 0, 1]), b"ping"),
    ];
    seeds.extend(others.iter().map(|packet| (Hook::FromPod, packet.bytes())));
    seeds.push((Hook::Uplink, Packet::udp(client, vip).bytes()));
    Ok(seeds)
}

/// Packets of a flow, both ways.
fn valid(flow: &TestFlow) -> Seeds {
    let family = Packet::family_of(flow.client.ip());
    let mut seeds = Seeds::new();
    for side in Side::BOTH {
        let packet = flow.later(side);
        let long = packet.clone().payload(&[0x6d; 90]);
        let (shaped, error) = match family {
            Family::V4 => (packet.clone().options(&[148, 4, 0, 0, 1, 1, 1, 0]), (3, 4)),
            Family::V6 => {
                let chain = [
                    Extension::HopByHop,
                    Extension::Routing { segments_left: 0 },
                    Extension::Atomic,
                ];
                (packet.clone().extensions(&chain), (2, 0))
            }
        };
        let (from, to) = flow.translated_ends(side);
        let quote = flow.translated(side, &packet).bytes();
        let error = Packet::icmp(to.ip(), from.ip(), (error.0, error.1, [0, 0, 5, 0]), &quote);
        let hook = flow.hook(side);
        let other = flow.hook(if side == Side::Client { Side::Backend } else { Side::Client });
        let ours = [packet.clone(), packet.without_checksum(), shaped];
        seeds.extend(ours.iter().map(|packet| (hook, packet.bytes())));
        seeds.extend(long.pieces(&[48]).into_iter().map(|piece| (hook, piece)));
        seeds.push((other, error.bytes()));
    }
    seeds
}

/// Flows that broken packets may make before the table is emptied.
const FLOWS: usize = 200;

/// Sends the packets that `broken` makes of valid ones.
fn try_all(fixture: &mut Fixture, mut broken: impl FnMut(&[u8]) -> Vec<Vec<u8>>) -> Result {
    let seeds = furnish(fixture)?;
    for (hook, seed) in &seeds {
        for (count, packet) in broken(seed).iter().enumerate() {
            if count % FLOWS == FLOWS - 1 {
                furnish(fixture)?;
            }
            fixture.check_invariants(*hook, packet)?;
        }
    }
    Ok(())
}

/// Whether `BPF_PROG_TEST_RUN` accepts such a packet: it wants an IP header if the ethertype says
/// so. [`Medium::Bare`] describes where it reads the ethertype of bare packets.
pub(crate) fn is_runnable(fixture: (Family, Medium), packet: &[u8]) -> bool {
    let (family, medium) = fixture;
    match medium {
        Medium::Vlan | Medium::DoubleVlan => true,
        Medium::Ethernet | Medium::Summed => packet.len() >= family.header(),
        // Shorter ones are filled up.
        Medium::Bare => packet.len() >= 54 && packet[12..14] == family.ethertype().0.to_be_bytes(),
    }
}

fn cut(fixture: &mut Fixture) -> Result {
    let of = (fixture.family, fixture.medium);
    try_all(fixture, |packet| {
        let cuts = (0..packet.len()).map(|length| packet[..length].to_vec());
        cuts.filter(|packet| is_runnable(of, packet)).collect()
    })
}

/// Bytes of a packet that are its headers, those inside an error included.
const HEADERS: usize = 110;

fn bytes(fixture: &mut Fixture) -> Result {
    try_all(fixture, |packet| {
        let mut all = Vec::new();
        for at in 0..packet.len().min(HEADERS) {
            let old = packet[at];
            let bits = (0..8).map(|bit| old ^ (1 << bit));
            for byte in bits.chain([0, 0xff, old.wrapping_add(1), old.wrapping_sub(1)]) {
                let mut packet = packet.to_vec();
                packet[at] = byte;
                all.push(packet);
            }
        }
        all
    })
}

fn lengths(fixture: &mut Fixture) -> Result {
    let header = fixture.family.header();
    // The length of the packet; of UDP, TCP and the quote's; and the data offset of TCP.
    let inner = header + 8;
    let length = fixture.family.of(2, 4);
    let words = [length, header + 4, inner + length, inner + header + 4];
    let nibbles = [0, header + 12, inner, inner + header + 12];
    try_all(fixture, |packet| {
        let mut all = Vec::new();
        for at in words {
            let near = [0, 7, 8, 19, 20, 21, 39, 40, 41];
            let length = u16::try_from(packet.len()).unwrap_or_default();
            let around =
                (0..6).map(|less| length - less).chain([length + 1, 0x7fff, 0x8000, 0xffff]);
            for value in near.into_iter().chain(around) {
                let mut packet = packet.to_vec();
                if let Some(word) = packet.get_mut(at..at + 2) {
                    word.copy_from_slice(&value.to_be_bytes());
                    all.push(packet);
                }
            }
        }
        for at in nibbles {
            for value in 0..16 {
                let mut packet = packet.to_vec();
                if let Some(byte) = packet.get_mut(at) {
                    // The low half is the length of an IPv4 header, the high half that of TCP's.
                    *byte = if at % 4 == 0 {
                        (*byte & 0xf0) | value
                    } else {
                        (*byte & 0x0f) | (value << 4)
                    };
                    all.push(packet);
                }
            }
        }
        all
    })
}

fn nested(fixture: &mut Fixture) -> Result {
    furnish(fixture)?;
    let (client, vip) = (fixture.family.client(1), fixture.family.vip(1));
    let kind = fixture.family.of((3, 1, [0; 4]), (1, 0, [0; 4]));
    // Errors about errors about errors.
    let mut packet = Packet::udp(vip, client);
    for depth in 0..6 {
        packet = Packet::icmp(client.ip(), vip.ip(), kind, &packet.bytes());
        fixture
            .check_invariants(Hook::FromPod, &packet.bytes())
            .with_context(|| format!("depth {depth}"))?;
        fixture.check_invariants(Hook::ToPod, &packet.bytes())?;
    }
    // IP in IP, and every chain of extension headers of up to eight.
    let inside = Packet::udp(client, vip).bytes();
    for protocol in [4, 41] {
        let packet = Packet::other(client.ip(), vip.ip(), protocol, &inside);
        fixture.check_invariants(Hook::FromPod, &packet.bytes())?;
    }
    if fixture.family == Family::V4 {
        return Ok(());
    }
    let kinds = [
        Extension::HopByHop,
        Extension::LongDestination,
        Extension::Routing { segments_left: 0 },
        Extension::Routing { segments_left: 1 },
        Extension::Atomic,
        Extension::Authentication,
    ];
    let mut rng = Rng::with_seed(0x6d63_736e);
    for length in 1..=8 {
        for _ in 0..20 {
            let chain: Vec<_> = (0..length).filter_map(|_| rng.choice(kinds)).collect();
            let to_vip = Packet::udp(client, vip).extensions(&chain);
            fixture
                .check_invariants(Hook::FromPod, &to_vip.bytes())
                .with_context(|| format!("{chain:?}"))?;
            let reply = Packet::udp(fixture.family.pod(1), client).extensions(&chain);
            fixture
                .check_invariants(Hook::ToPod, &reply.bytes())
                .with_context(|| format!("{chain:?}"))?;
        }
    }
    Ok(())
}

fn random(fixture: &mut Fixture) -> Result {
    const TRIALS: usize = 40;

    let of = (fixture.family, fixture.medium);
    let mut rng = Rng::with_seed(0x6d63_7372);
    try_all(fixture, |seed| {
        let packets = (0..TRIALS).map(|_| {
            let mut packet = seed.to_vec();
            for _ in 0..rng.usize(1..5) {
                let at = rng.usize(..packet.len().min(HEADERS));
                packet[at] = rng.u8(..);
            }
            match rng.u8(..4) {
                0 => packet.truncate(rng.usize(..packet.len())),
                1 => packet.extend((0..rng.usize(..40)).map(|_| rng.u8(..))),
                _ => {}
            }
            packet
        });
        packets.filter(|packet| is_runnable(of, packet)).collect()
    })
}
