//! No packet to a VIP leaves the node.

use mcs_common::Counter;
use mcs_tests::suite::Suite;

use crate::{
    each,
    expect::Expect,
    family::Family,
    lab::{Hook, Lab},
    packet::{Extension, Packet, Protocol},
    talk::{Side, Talk},
};

pub(crate) fn cases(suite: &mut Suite<Lab>) {
    each(suite, "uplink: packets to a VIP", to_vip);
    each(suite, "uplink: packets that are translated", translated);
    each(suite, "uplink: a VIP elsewhere in a packet", elsewhere);
}

fn to_vip(lab: &mut Lab) -> anyhow::Result<()> {
    let (client, vip) = (lab.family.client(1), lab.family.vip(1));
    lab.service(Protocol::Tcp, vip, &[lab.family.pod(1)])?;
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
    packets.push(match lab.family {
        Family::V4 => Packet::udp(client, vip).options(&[0x9e; 40]),
        Family::V6 => Packet::udp(client, vip).extensions(&[Extension::LongDestination; 9]),
    });
    // What the other programs would find malformed.
    packets.push(Packet::other(client.ip(), vip.ip(), 6, &[1; 3]));
    packets.push(Packet::other(client.ip(), vip.ip(), 17, &[]));
    for packet in &packets {
        lab.expect(Hook::Uplink, packet, Expect::dropped(Counter::LeakPrevented))?;
    }
    for piece in Packet::udp(client, vip).payload(&[1; 100]).pieces(&[48, 96]) {
        lab.expect(Hook::Uplink, piece, Expect::dropped(Counter::LeakPrevented))?;
    }
    Ok(())
}

fn translated(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        lab.reset(lab.family, lab.medium)?;
        let service = lab.service(protocol, lab.family.vip(1), &[lab.family.pod(1)])?;
        let talk = Talk::new(lab.family.client(1), &service);
        lab.established(&talk)?;
        for side in Side::BOTH {
            let packet = talk.later(side);
            lab.ignores(Hook::Uplink, talk.translated(side, &packet))?;
        }
    }
    Ok(())
}

fn elsewhere(lab: &mut Lab) -> anyhow::Result<()> {
    let (client, vip) = (lab.family.client(1), lab.family.vip(1));
    lab.service(Protocol::Tcp, vip, &[lab.family.pod(1)])?;
    let stranger = lab.family.stranger();
    lab.ignores(Hook::Uplink, Packet::syn(vip, stranger))?;
    let quote = Packet::syn(client, vip).bytes();
    let kind = (3, 0, [0; 4]);
    lab.ignores(Hook::Uplink, Packet::icmp(client.ip(), stranger.ip(), kind, &quote))?;
    // A tunnel hides it.
    lab.ignores(Hook::Uplink, Packet::other(client.ip(), stranger.ip(), 4, &quote))
}
