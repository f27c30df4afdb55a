//! Fragments: the first has the ports, the others follow it.

use std::time::Duration;

use mcs_common::Counter;
use mcs_tests::suite::Suite;

use crate::{
    each,
    expect::Expect,
    family::Family,
    lab::{Hook, Lab},
    one,
    packet::{Extension, Packet, Protocol},
    talk::{Side, Talk},
};

pub(crate) fn cases(suite: &mut Suite<Lab>) {
    each(suite, "fragments: both ways", both_ways);
    each(suite, "fragments: of a pod's packets to itself", hairpin);
    each(suite, "fragments: later ones without the first", later_alone);
    each(suite, "fragments: later ones long after the first", late);
    each(suite, "fragments: another datagram of the same identification", same_id);
    each(suite, "fragments: a first one without the whole header", tiny);
    one(suite, "fragments: other protocols of one identification", Family::V4, other_protocol);
    one(suite, "fragments: extensions among them", Family::V6, with_extensions);
    one(suite, "fragments: options in them", Family::V4, with_options);
}

/// Where datagrams are cut.
const CUTS: [usize; 2] = [64, 128];

fn talk(lab: &mut Lab, protocol: Protocol) -> anyhow::Result<Talk> {
    lab.reset(lab.family, lab.medium)?;
    let service = lab.service(protocol, lab.family.vip(1), &[lab.family.pod(1)])?;
    Ok(Talk::new(lab.family.client(1), &service))
}

/// A datagram long enough for three pieces.
fn datagram(talk: &Talk, side: Side) -> Packet {
    let payload: Vec<_> = (0..160).collect();
    talk.later(side).payload(&payload)
}

/// The first piece of a datagram goes through.
#[track_caller]
fn first(
    lab: &mut Lab,
    talk: Talk,
    side: Side,
    packet: &Packet,
    pieces: (&[Vec<u8>], &[Vec<u8>]),
) -> anyhow::Result<()> {
    let (flags, packet) = (packet.flags(), packet.clone());
    let expect = talk.carried(side, &pieces.1[0]).writes(move |tables| {
        talk.passes(tables, side, flags);
        talk.remembers(tables, side, &packet);
    });
    lab.expect(talk.hook(side), &pieces.0[0], expect)
}

/// All pieces of a datagram go through, in order.
#[track_caller]
fn carries_pieces(lab: &mut Lab, talk: Talk, side: Side, packet: &Packet) -> anyhow::Result<()> {
    let out = talk.translated(side, packet).pieces(&CUTS);
    let pieces = packet.pieces(&CUTS);
    first(lab, talk, side, packet, (&pieces, &out))?;
    for (piece, out) in pieces.iter().zip(&out).skip(1) {
        lab.expect(talk.hook(side), piece, talk.carried(side, out))?;
    }
    Ok(())
}

fn both_ways(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let talk = talk(lab, protocol)?;
        lab.established(&talk)?;
        for side in Side::BOTH {
            carries_pieces(lab, talk, side, &datagram(&talk, side))?;
            carries_pieces(lab, talk, side, &datagram(&talk, side).id(0xfedc))?;
        }
    }
    begins_a_flow(lab)
}

/// A flow whose first packet comes in pieces.
fn begins_a_flow(lab: &mut Lab) -> anyhow::Result<()> {
    let talk = talk(lab, Protocol::Udp)?;
    let packet = datagram(&talk, Side::Client);
    let out = talk.translated(Side::Client, &packet).pieces(&CUTS);
    let pieces = packet.pieces(&CUTS);
    let expect =
        talk.carried(Side::Client, &out[0]).counts(&[Counter::FlowCreated]).writes(move |tables| {
            talk.begins(tables, 0);
            talk.remembers(tables, Side::Client, &packet);
        });
    lab.expect(Hook::FromPod, &pieces[0], expect)?;
    lab.expect(Hook::FromPod, &pieces[2], talk.carried(Side::Client, &out[2]))?;
    lab.expect(Hook::FromPod, &pieces[1], talk.carried(Side::Client, &out[1]))
}

fn hairpin(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        lab.reset(lab.family, lab.medium)?;
        let client = lab.family.client(1);
        let mut backend = client;
        backend.set_port(8080);
        let service = lab.service(protocol, lab.family.vip(1), &[backend])?;
        let talk = Talk::new(client, &service);
        lab.established(&talk)?;
        for side in Side::BOTH {
            carries_pieces(lab, talk, side, &datagram(&talk, side))?;
        }
    }
    Ok(())
}

fn later_alone(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let talk = talk(lab, protocol)?;
        lab.established(&talk)?;
        let dropped = || Expect::dropped(Counter::PacketDroppedFragment);
        for piece in &datagram(&talk, Side::Client).pieces(&CUTS)[1..] {
            lab.expect(Hook::FromPod, piece, dropped())?;
        }
        for piece in &datagram(&talk, Side::Backend).pieces(&CUTS)[1..] {
            lab.ignores(Hook::ToPod, piece)?;
        }
        // The first one comes after all.
        for side in Side::BOTH {
            carries_pieces(lab, talk, side, &datagram(&talk, side))?;
        }
        let other = datagram(&talk, Side::Client).id(77).pieces(&CUTS);
        lab.expect(Hook::FromPod, &other[1], dropped())?;
    }
    Ok(())
}

fn late(lab: &mut Lab) -> anyhow::Result<()> {
    // The kernel's own, IP_FRAG_TIME: 30 s.
    let half = Duration::from_secs(15);
    for protocol in Protocol::ALL {
        let talk = talk(lab, protocol)?;
        lab.established(&talk)?;
        for side in Side::BOTH {
            let packet = datagram(&talk, side);
            carries_pieces(lab, talk, side, &packet)?;
            let out = talk.translated(side, &packet).pieces(&CUTS);
            let pieces = packet.pieces(&CUTS);
            lab.age_fragments(half)?;
            lab.expect(talk.hook(side), &pieces[2], talk.carried(side, &out[2]))?;
            lab.age_fragments(half)?;
            match side {
                Side::Client => {
                    let dropped = Expect::dropped(Counter::PacketDroppedFragment);
                    lab.expect(Hook::FromPod, &pieces[2], dropped)?;
                }
                Side::Backend => lab.ignores(Hook::ToPod, &pieces[2])?,
            }
            // The identification is used anew.
            carries_pieces(lab, talk, side, &packet)?;
        }
    }
    Ok(())
}

fn same_id(lab: &mut Lab) -> anyhow::Result<()> {
    let talk = talk(lab, Protocol::Udp)?;
    lab.established(&talk)?;
    carries_pieces(lab, talk, Side::Client, &datagram(&talk, Side::Client))?;
    // To another frontend of the VIP, which leads elsewhere.
    let mut vip = talk.vip;
    vip.set_port(54);
    let service = lab.service(Protocol::Udp, vip, &[lab.family.pod(2)])?;
    let other = Talk::new(talk.client, &service);
    lab.established(&other)?;
    carries_pieces(lab, other, Side::Client, &datagram(&other, Side::Client))?;
    carries_pieces(lab, talk, Side::Client, &datagram(&talk, Side::Client))
}

fn tiny(lab: &mut Lab) -> anyhow::Result<()> {
    let talk = talk(lab, Protocol::Tcp)?;
    lab.established(&talk)?;
    // 8 and 16 bytes of the TCP header (RFC 1858), and all but its options.
    for (side, cut) in [(Side::Client, 8), (Side::Client, 16), (Side::Backend, 16)] {
        let piece = &datagram(&talk, side).pieces(&[cut])[0];
        match side {
            Side::Client => {
                let dropped = Expect::dropped(Counter::PacketDroppedMalformed);
                lab.expect(Hook::FromPod, piece, dropped)?;
            }
            Side::Backend => lab.ignores(Hook::ToPod, piece)?,
        }
    }
    let syn = talk.first().pieces(&[24]);
    lab.expect(Hook::FromPod, &syn[0], Expect::dropped(Counter::PacketDroppedMalformed))
}

fn other_protocol(lab: &mut Lab) -> anyhow::Result<()> {
    let talk = talk(lab, Protocol::Udp)?;
    lab.established(&talk)?;
    carries_pieces(lab, talk, Side::Client, &datagram(&talk, Side::Client))?;
    let tcp = Packet::data(talk.client, talk.vip).payload(&[1; 160]).pieces(&CUTS);
    lab.expect(Hook::FromPod, &tcp[1], Expect::dropped(Counter::PacketDroppedFragment))
}

fn with_extensions(lab: &mut Lab) -> anyhow::Result<()> {
    let chain = [Extension::HopByHop, Extension::Destination, Extension::LongDestination];
    for protocol in Protocol::ALL {
        let talk = talk(lab, protocol)?;
        lab.established(&talk)?;
        for side in Side::BOTH {
            // So many of them in the pieces themselves, of which the first alone has them.
            for fragmentable in 0..chain.len() {
                let packet = datagram(&talk, side).extensions(&chain);
                let packet = Packet { fragmentable, ..packet };
                carries_pieces(lab, talk, side, &packet)?;
            }
        }
    }
    Ok(())
}

fn with_options(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let talk = talk(lab, protocol)?;
        lab.established(&talk)?;
        for side in Side::BOTH {
            let packet = datagram(&talk, side).options(&[148, 4, 0, 0, 1, 1, 1, 0]);
            carries_pieces(lab, talk, side, &packet)?;
        }
    }
    Ok(())
}
