//! Packets that the device will cut into segments (GSO), as far as `BPF_PROG_TEST_RUN` supports them.

use etherparse::Ipv4Header;
use mcs_common::Counter;
use mcs_tests::suite::Suite;

use crate::{
    each,
    expect::Expect,
    fixture::{Fixture, Hook, SEGMENT},
    packet::{Protocol, built},
    test_flow::Side,
};

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    each(suite, "segments: translated as one packet", as_one);
    each(suite, "segments: more than a length can say", big);
    each(suite, "segments: a length of 0 without segments", no_segments);
}

fn as_one(fixture: &mut Fixture) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let flow = fixture.open_flow(protocol)?;
        fixture.segment = SEGMENT;
        for side in Side::BOTH {
            fixture.carries(&flow, side, &flow.later(side).payload(&[0x2d; 3000]))?;
        }
    }
    Ok(())
}

/// The packet with lengths of 0: its own length says nothing, as with BIG TCP.
fn without_length(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes[0] >> 4 == 6 {
        bytes[4..6].fill(0);
        return bytes;
    }
    let (header, payload) = built(Ipv4Header::from_slice(&bytes));
    let mut header = Ipv4Header { total_len: 0, ..header };
    header.header_checksum = header.calc_header_checksum();
    [header.to_bytes().as_slice(), payload].concat()
}

fn big(fixture: &mut Fixture) -> anyhow::Result<()> {
    let flow = fixture.open_flow(Protocol::Tcp)?;
    fixture.segment = SEGMENT;
    for side in Side::BOTH {
        let packet = flow.later(side).payload(&[0x3a; 2900]);
        let flags = packet.flags();
        let out = without_length(flow.translated(side, &packet).bytes());
        let expect =
            flow.carried(side, &out).writes(move |tables| flow.passes(tables, side, flags));
        fixture.expect(flow.hook(side), without_length(packet.bytes()), expect)?;
    }
    Ok(())
}

fn no_segments(fixture: &mut Fixture) -> anyhow::Result<()> {
    let flow = fixture.open_flow(Protocol::Tcp)?;
    let bytes = |side| without_length(flow.later(side).payload(&[0x3a; 900]).bytes());
    let dropped = Expect::dropped(Counter::PacketDroppedMalformed);
    fixture.expect(Hook::FromPod, bytes(Side::Client), dropped)?;
    fixture.ignores(Hook::ToPod, bytes(Side::Backend))
}
