//! Packets of which a program can read only the Ethernet header in place.

use mcs_common::Counter;
use mcs_tests::suite::{Suite, skip};

use crate::{
    each_on,
    expect::Expect,
    fixture::{Fixture, Hook},
    kernel::InPlace,
    medium::Medium,
    packet::{Packet, Protocol},
    test_flow::{Side, TestFlow},
};

/// The kernel takes no packet for which it knows a sum in two parts.
const MEDIA: &[Medium] = &[Medium::Ethernet];

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    each_on(suite, "in place: only the link header, of a flow", MEDIA, flows);
    each_on(suite, "in place: only the link header, at an uplink", MEDIA, uplink);
}

fn split(fixture: &mut Fixture) -> anyhow::Result<()> {
    if !fixture.can_split()? {
        return Err(skip("BPF_PROG_TEST_RUN of this kernel takes only packets in one part"));
    }
    fixture.in_place = InPlace::LinkHeader;
    Ok(())
}

fn flows(fixture: &mut Fixture) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        fixture.reset(fixture.family, fixture.medium)?;
        split(fixture)?;
        let vip = fixture.family.vip(1);
        let service = fixture.service(protocol, vip, &[fixture.family.pod(1)])?;
        let flow = TestFlow::new(fixture.family.client(1), &service);
        fixture.established(&flow)?;
        for side in Side::BOTH {
            fixture.carries(&flow, side, &flow.later(side).payload(&[0x4b; 300]))?;
        }
        let (client, other) = (fixture.family.client(1), fixture.family.client(2));
        for hook in [Hook::FromPod, Hook::ToPod] {
            fixture.ignores(hook, Packet::data(client, other))?;
        }
    }
    Ok(())
}

fn uplink(fixture: &mut Fixture) -> anyhow::Result<()> {
    split(fixture)?;
    let (client, vip) = (fixture.family.client(1), fixture.family.vip(1));
    fixture.service(Protocol::Tcp, vip, &[fixture.family.pod(1)])?;
    let dropped = Expect::dropped(Counter::LeakPrevented);
    fixture.expect(Hook::Uplink, Packet::data(client, vip), dropped)?;
    fixture.ignores(Hook::Uplink, Packet::data(client, fixture.family.pod(1)))
}
