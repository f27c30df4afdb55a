//! What may stand between the link header and the ports.

use anyhow::Context as _;
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
    one(suite, "headers: options", Family::V4, options);
    one(suite, "headers: extensions", Family::V6, extensions);
    one(suite, "headers: extensions that are not looked behind", Family::V6, refused_extensions);
    one(suite, "headers: an authentication header", Family::V6, authentication);
    each(suite, "headers: what else a header says", rest);
    each(suite, "headers: bytes behind the packet", trailer);
}

fn talk(lab: &mut Lab, protocol: Protocol) -> anyhow::Result<Talk> {
    lab.reset(lab.family, lab.medium)?;
    let service = lab.service(protocol, lab.family.vip(1), &[lab.family.pod(1)])?;
    Ok(Talk::new(lab.family.client(1), &service))
}

/// Sends packets of every protocol both ways, after `shape` had a go at them.
fn both_ways(lab: &mut Lab, shape: impl Fn(Packet) -> Packet) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let talk = talk(lab, protocol)?;
        lab.opens(&talk, &shape(talk.first()))?;
        for side in Side::BOTH {
            lab.carries(&talk, side, &shape(talk.later(side)))?;
        }
    }
    Ok(())
}

fn options(lab: &mut Lab) -> anyhow::Result<()> {
    let record_route = [&[7, 39, 4][..], &[0; 36], &[0]].concat();
    let timestamp = [68, 12, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let options: [&[u8]; 5] =
        [&[1, 1, 1, 0], &[148, 4, 0, 0], &timestamp, &record_route, &[0x9e; 40]];
    for options in options {
        both_ways(lab, |packet| packet.options(options)).context(format!("{options:?}"))?;
    }
    Ok(())
}

/// As many as are looked behind.
const MOST: &[Extension] = &[
    Extension::HopByHop,
    Extension::Destination,
    Extension::Routing { segments_left: 0 },
    Extension::Atomic,
    Extension::LongDestination,
    Extension::Destination,
];

fn extensions(lab: &mut Lab) -> anyhow::Result<()> {
    let single = MOST.iter().map(std::slice::from_ref);
    let nested = [&MOST[..2], &MOST[2..4], &MOST[1..5], MOST];
    for extensions in single.chain(nested) {
        both_ways(lab, |packet| packet.extensions(extensions))
            .context(format!("{extensions:?}"))?;
    }
    Ok(())
}

fn refused_extensions(lab: &mut Lab) -> anyhow::Result<()> {
    let too_many = [MOST, &[Extension::Destination]].concat();
    let refused: [&[Extension]; 3] = [
        &[Extension::Routing { segments_left: 1 }],
        &[Extension::HopByHop, Extension::Routing { segments_left: 3 }],
        &too_many,
    ];
    for extensions in refused {
        not_translated(lab, extensions, Counter::PacketDroppedMalformed)
            .context(format!("{extensions:?}"))?;
    }
    Ok(())
}

fn authentication(lab: &mut Lab) -> anyhow::Result<()> {
    // It signs the addresses.
    let chains: [&[Extension]; 2] =
        [&[Extension::Authentication], &[Extension::HopByHop, Extension::Authentication]];
    chains.iter().try_for_each(|chain| not_translated(lab, chain, Counter::PacketDroppedProtocol))
}

fn not_translated(lab: &mut Lab, chain: &[Extension], reason: Counter) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let talk = talk(lab, protocol)?;
        lab.expect(Hook::FromPod, talk.first().extensions(chain), Expect::dropped(reason))?;
        // With a flow that it would belong to.
        lab.established(&talk)?;
        let packet = |side| talk.later(side).extensions(chain);
        lab.expect(Hook::FromPod, packet(Side::Client), Expect::dropped(reason))?;
        lab.ignores(Hook::ToPod, packet(Side::Backend))?;
    }
    Ok(())
}

fn rest(lab: &mut Lab) -> anyhow::Result<()> {
    for (class, hops) in [(0xb8, 1), (0x03, 255), (0xff, 64)] {
        both_ways(lab, |packet| Packet { class, hops, id: 0xffff, ..packet })?;
    }
    Ok(())
}

fn trailer(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let talk = talk(lab, protocol)?;
        // As Ethernet pads short frames.
        let padded = |packet: &Packet| [packet.bytes(), vec![0x77; 18]].concat();
        let first = talk.first();
        let sent = lab.send(Hook::FromPod, padded(&first))?;
        let flags = first.flags();
        let expect = talk
            .carried(Side::Client, &padded(&talk.translated(Side::Client, &first)))
            .counts(&[Counter::FlowCreated])
            .writes(move |tables| talk.begins(tables, flags));
        lab.compare(&sent, expect)?;
        for side in Side::BOTH {
            let packet = talk.later(side);
            let flags = packet.flags();
            let expect = talk
                .carried(side, &padded(&talk.translated(side, &packet)))
                .writes(move |tables| talk.passes(tables, side, flags));
            lab.expect(talk.hook(side), padded(&packet), expect)?;
        }
    }
    Ok(())
}
