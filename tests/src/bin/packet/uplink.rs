//! No packet to a VIP leaves the node.

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    each(suite, "uplink: packets to a VIP", to_vip);
    each(suite, "uplink: packets that are translated", of_side(translated));
    each(suite, "uplink: a VIP elsewhere in a packet", elsewhere);
}

pub(crate) fn to_vip(fixture: &mut Fixture) -> Result {
    let (client, vip) = (fixture.family.client(1), fixture.family.vip(1));
    fixture.service(Protocol::Tcp, vip, &[fixture.family.pod(1)])?;
    let mut unknown = vip;
    unknown.set_port(7);
    let icmp = |kind| Packet::icmp(client.ip(), vip.ip(), (kind, 0, [0; 4]), &[0; 48]);
    let mut packets = vec![
        Packet::syn(client, vip),
        Packet::data(client, vip),
        Packet::udp(client, vip),
        Packet::syn(client, unknown),
        icmp(8),
        icmp(128),
        icmp(3),
        icmp(1),
    ];
    for protocol in [2, 4, 41, 47, 50, 132, 255] {
        packets.push(Packet::other(client.ip(), vip.ip(), protocol, &[1; 24]));
    }
    packets.push(match fixture.family {
        Family::V4 => Packet::udp(client, vip).options(&[0x9e; 40]),
        Family::V6 => Packet::udp(client, vip).extensions(&[Extension::LongDestination; 9]),
    });
    // Packets that the other programs reject as malformed.
    packets.push(Packet::other(client.ip(), vip.ip(), 6, &[1; 3]));
    packets.push(Packet::other(client.ip(), vip.ip(), 17, &[]));
    for packet in &packets {
        fixture.drops(Hook::Uplink, packet, Counter::LeakPrevented)?;
    }
    for piece in Packet::udp(client, vip).payload(&[1; 100]).pieces(&[48, 96]) {
        fixture.drops(Hook::Uplink, piece, Counter::LeakPrevented)?;
    }
    Ok(())
}

fn translated(fixture: &mut Fixture, flow: TestFlow, side: Side) -> Result {
    fixture.ignores(Hook::Uplink, flow.translated(side, &flow.later(side)))
}

fn elsewhere(fixture: &mut Fixture) -> Result {
    let (client, vip) = (fixture.family.client(1), fixture.family.vip(1));
    fixture.service(Protocol::Tcp, vip, &[fixture.family.pod(1)])?;
    let stranger = fixture.family.stranger();
    fixture.ignores(Hook::Uplink, Packet::syn(vip, stranger))?;
    let quote = Packet::syn(client, vip).bytes();
    let kind = (3, 0, [0; 4]);
    fixture.ignores(Hook::Uplink, Packet::icmp(client.ip(), stranger.ip(), kind, &quote))?;
    // A tunnel hides the VIP.
    fixture.ignores(Hook::Uplink, Packet::other(client.ip(), stranger.ip(), 4, &quote))
}
