//! Packets that the device will cut into segments (GSO), as far as `BPF_PROG_TEST_RUN` supports them.

use etherparse::Ipv4Header;

use crate::{prelude::*, row::rows};

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    rows(suite, "segments: translated as one packet | both | open segment =data:3000");
    each(suite, "segments: more than a length can say", big);
    each(suite, "segments: a length of 0 without segments", no_segments);
}

/// The packet with lengths of 0: its own length says nothing, as with BIG TCP.
fn without_length(packet: &Packet) -> Vec<u8> {
    let mut bytes = packet.bytes();
    if bytes[0] >> 4 == 6 {
        bytes[4..6].fill(0);
        return bytes;
    }
    let (header, payload) = built(Ipv4Header::from_slice(&bytes));
    let mut header = Ipv4Header { total_len: 0, ..header };
    header.header_checksum = header.calc_header_checksum();
    [header.to_bytes().as_slice(), payload].concat()
}

fn big(fixture: &mut Fixture) -> Result {
    let flow = fixture.open_flow(Protocol::Tcp)?;
    fixture.segment = SEGMENT;
    Side::BOTH.into_iter().try_for_each(|side| {
        let packet = flow.later(side).payload(&[0x3a; 2900]);
        let bytes = [&packet, &flow.translated(side, &packet)].map(without_length);
        fixture.carries_as(&flow, side, &packet, bytes)
    })
}

fn no_segments(fixture: &mut Fixture) -> Result {
    let flow = fixture.open_flow(Protocol::Tcp)?;
    Side::BOTH.into_iter().try_for_each(|side| {
        let packet = without_length(&flow.later(side).payload(&[0x3a; 900]));
        fixture.rejects(side, packet, Counter::PacketDroppedMalformed)
    })
}
