//! Packets that the device is to cut into segments, as far as `BPF_PROG_TEST_RUN` has them.

use etherparse::Ipv4Header;
use mcs_common::Counter;
use mcs_tests::suite::Suite;

use crate::{
    each,
    expect::Expect,
    lab::{Hook, Lab, SEGMENT},
    packet::{Protocol, built},
    talk::{Side, Talk},
};

pub(crate) fn cases(suite: &mut Suite<Lab>) {
    each(suite, "segments: translated as one packet", as_one);
    each(suite, "segments: more than a length can say", big);
    each(suite, "segments: a length of 0 without segments", no_segments);
}

fn talk(lab: &mut Lab, protocol: Protocol) -> anyhow::Result<Talk> {
    lab.reset(lab.family, lab.medium)?;
    let service = lab.service(protocol, lab.family.vip(1), &[lab.family.pod(1)])?;
    let talk = Talk::new(lab.family.client(1), &service);
    lab.established(&talk)?;
    Ok(talk)
}

fn as_one(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let talk = talk(lab, protocol)?;
        lab.segment = SEGMENT;
        for side in Side::BOTH {
            lab.carries(&talk, side, &talk.later(side).payload(&[0x2d; 3000]))?;
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

fn big(lab: &mut Lab) -> anyhow::Result<()> {
    let talk = talk(lab, Protocol::Tcp)?;
    lab.segment = SEGMENT;
    for side in Side::BOTH {
        let packet = talk.later(side).payload(&[0x3a; 2900]);
        let flags = packet.flags();
        let out = without_length(talk.translated(side, &packet).bytes());
        let expect =
            talk.carried(side, &out).writes(move |tables| talk.passes(tables, side, flags));
        lab.expect(talk.hook(side), without_length(packet.bytes()), expect)?;
    }
    Ok(())
}

fn no_segments(lab: &mut Lab) -> anyhow::Result<()> {
    let talk = talk(lab, Protocol::Tcp)?;
    let bytes = |side| without_length(talk.later(side).payload(&[0x3a; 900]).bytes());
    let dropped = Expect::dropped(Counter::PacketDroppedMalformed);
    lab.expect(Hook::FromPod, bytes(Side::Client), dropped)?;
    lab.ignores(Hook::ToPod, bytes(Side::Backend))
}
