//! Everything between the link header and the ports: options, extension headers, padding.

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    one(suite, "headers: options", Family::V4, options);
    one(suite, "headers: extensions", Family::V6, extensions);
    one(suite, "headers: extensions that are not looked behind", Family::V6, refused_extensions);
    one(suite, "headers: an authentication header", Family::V6, authentication);
    each(suite, "headers: what else a header says", rest);
    each(suite, "headers: bytes behind the packet", both(trailer));
}

/// Sends packets of every protocol both ways, after `shape` has changed them.
fn both_ways(fixture: &mut Fixture, shape: impl Fn(Packet) -> Packet) -> Result {
    Protocol::ALL.into_iter().try_for_each(|protocol| {
        let flow = fixture.new_flow(protocol)?;
        fixture.opens(&flow, &shape(flow.first()))?;
        let mut sides = Side::BOTH.into_iter();
        sides.try_for_each(|side| fixture.carries(&flow, side, &shape(flow.later(side))))
    })
}

fn options(fixture: &mut Fixture) -> Result {
    let record_route = [&[7, 39, 4][..], &[0; 36], &[0]].concat();
    let timestamp = [68, 12, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let options: [&[u8]; 5] =
        [&[1, 1, 1, 0], &[148, 4, 0, 0], &timestamp, &record_route, &[0x9e; 40]];
    for options in options {
        both_ways(fixture, |packet| packet.options(options)).context(format!("{options:?}"))?;
    }
    Ok(())
}

/// The most extension headers that the programs skip.
const MOST: &[Extension] = &[
    Extension::HopByHop,
    Extension::Destination,
    Extension::Routing { segments_left: 0 },
    Extension::Atomic,
    Extension::LongDestination,
    Extension::Destination,
];

fn extensions(fixture: &mut Fixture) -> Result {
    let single = MOST.iter().map(std::slice::from_ref);
    let nested = [&MOST[..2], &MOST[2..4], &MOST[1..5], MOST];
    for extensions in single.chain(nested) {
        both_ways(fixture, |packet| packet.extensions(extensions))
            .context(format!("{extensions:?}"))?;
    }
    Ok(())
}

fn refused_extensions(fixture: &mut Fixture) -> Result {
    let too_many = [MOST, &[Extension::Destination]].concat();
    let refused: [&[Extension]; 3] = [
        &[Extension::Routing { segments_left: 1 }],
        &[Extension::HopByHop, Extension::Routing { segments_left: 3 }],
        &too_many,
    ];
    for extensions in refused {
        not_translated(fixture, extensions, Counter::PacketDroppedMalformed)
            .context(format!("{extensions:?}"))?;
    }
    Ok(())
}

fn authentication(fixture: &mut Fixture) -> Result {
    // It signs the addresses.
    let chains: [&[Extension]; 2] =
        [&[Extension::Authentication], &[Extension::HopByHop, Extension::Authentication]];
    chains
        .iter()
        .try_for_each(|chain| not_translated(fixture, chain, Counter::PacketDroppedProtocol))
}

fn not_translated(fixture: &mut Fixture, chain: &[Extension], reason: Counter) -> Result {
    for protocol in Protocol::ALL {
        let flow = fixture.new_flow(protocol)?;
        fixture.drops(Hook::FromPod, flow.first().extensions(chain), reason)?;
        // With a flow that it would belong to.
        fixture.established(&flow)?;
        let packet = |side| flow.later(side).extensions(chain);
        Side::BOTH.into_iter().try_for_each(|side| fixture.rejects(side, packet(side), reason))?;
    }
    Ok(())
}

fn rest(fixture: &mut Fixture) -> Result {
    for (class, hops) in [(0xb8, 1), (0x03, 255), (0xff, 64)] {
        both_ways(fixture, |packet| Packet { class, hops, id: 0xffff, ..packet })?;
    }
    Ok(())
}

fn trailer(fixture: &mut Fixture, protocol: Protocol) -> Result {
    let flow = fixture.new_flow(protocol)?;
    // As Ethernet pads short frames.
    let padded = |packet: &Packet| [packet.bytes(), vec![0x77; 18]].concat();
    let (first, flags) = (flow.first(), flow.first().flags());
    let expect = flow
        .carried(Side::Client, &padded(&flow.translated(Side::Client, &first)))
        .counts(&[Counter::FlowCreated])
        .writes(move |tables| flow.begins(tables, flags));
    fixture.expect(Hook::FromPod, padded(&first), expect)?;
    Side::BOTH.into_iter().try_for_each(|side| {
        let packet = flow.later(side);
        let bytes = [&packet, &flow.translated(side, &packet)].map(padded);
        fixture.carries_as(&flow, side, &packet, bytes)
    })
}
