//! VIPs that were handed back, and VIPs whose import has gone.

use std::time::Duration;

use mcs_common::{Counter, VipMode};
use mcs_tests::suite::Suite;

use crate::{
    each,
    expect::Expect,
    fixture::{Fixture, Hook},
    packet::{Packet, Protocol},
    test_flow::{Side, TestFlow},
};

/// Longer than the timeout of a UDP flow without replies.
const IDLE: Duration = Duration::from_secs(31);

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    each(suite, "departed: flows go on", flows_go_on);
    each(suite, "departed: UDP without replies ends", silent_udp_ends);
    each(suite, "departed: new packets pass a VIP that was handed back", handed_back);
    each(suite, "departed: new packets to a VIP that has gone are refused", gone);
}

/// A flow to a VIP that gets this mode, and loses its frontend.
fn departs(fixture: &mut Fixture, protocol: Protocol, mode: u32) -> anyhow::Result<TestFlow> {
    fixture.reset(fixture.family, fixture.medium)?;
    let vip = fixture.family.vip(1);
    let service = fixture.service(protocol, vip, &[fixture.family.pod(1)])?;
    let flow = TestFlow::new(fixture.family.client(1), &service);
    fixture.established(&flow)?;
    fixture.set_mode(vip, mode)?;
    fixture.withdraw(&service)?;
    Ok(flow)
}

fn flows_go_on(fixture: &mut Fixture) -> anyhow::Result<()> {
    for mode in [VipMode::HANDED_BACK, VipMode::GONE, 7] {
        for protocol in Protocol::ALL {
            let flow = departs(fixture, protocol, mode)?;
            for side in [Side::Client, Side::Backend, Side::Client] {
                fixture.carries(&flow, side, &flow.later(side))?;
            }
        }
    }
    Ok(())
}

fn silent_udp_ends(fixture: &mut Fixture) -> anyhow::Result<()> {
    let flow = departs(fixture, Protocol::Udp, VipMode::HANDED_BACK)?;
    fixture.age_flow(&flow.key(Side::Backend), IDLE)?;
    let packet = flow.later(Side::Client);
    let expect = Expect::next(&packet).writes(move |tables| flow.ends_in(tables));
    fixture.expect(Hook::FromPod, &packet, expect)
}

fn handed_back(fixture: &mut Fixture) -> anyhow::Result<()> {
    let (client, vip) = (fixture.family.client(1), fixture.family.vip(1));
    fixture.service(Protocol::Tcp, vip, &[fixture.family.pod(1)])?;
    fixture.set_mode(vip, VipMode::HANDED_BACK)?;
    let ping = Packet::icmp(client.ip(), vip.ip(), (8, 0, [0; 4]), &[0; 48]);
    let packets = [
        Packet::syn(client, vip),
        Packet::data(client, vip),
        Packet::udp(client, vip),
        ping,
        Packet::other(client.ip(), vip.ip(), 132, &[1; 24]),
        Packet::other(client.ip(), vip.ip(), 47, &[1; 24]),
        Packet::other(client.ip(), vip.ip(), 6, &[1; 3]),
    ];
    for packet in packets {
        fixture.ignores(Hook::FromPod, packet.clone())?;
        fixture.ignores(Hook::Uplink, packet)?;
    }
    Ok(())
}

fn gone(fixture: &mut Fixture) -> anyhow::Result<()> {
    let (client, vip) = (fixture.family.client(1), fixture.family.vip(1));
    fixture.service(Protocol::Tcp, vip, &[fixture.family.pod(1)])?;
    fixture.set_mode(vip, VipMode::GONE)?;
    for packet in [Packet::syn(client, vip), Packet::data(client, vip), Packet::udp(client, vip)] {
        for hook in [Hook::FromPod, Hook::Uplink] {
            fixture.allow_refusals(0)?;
            let expect =
                Expect::dropped(Counter::PacketRefusedGone).counts(&[Counter::RefusalLimited]);
            fixture.expect(hook, &packet, expect)?;
        }
    }
    for hook in [Hook::FromPod, Hook::Uplink] {
        fixture.allow_refusals(1)?;
        let syn = Packet::syn(client, vip);
        let expect =
            Expect::back(crate::refusals::reset(&syn)).counts(&[Counter::PacketRefusedGone]);
        fixture.expect(hook, &syn, expect)?;
    }
    let other = Packet::other(client.ip(), vip.ip(), 47, &[1; 24]);
    fixture.expect(Hook::FromPod, &other, Expect::dropped(Counter::PacketDroppedProtocol))?;
    fixture.expect(Hook::Uplink, &other, Expect::dropped(Counter::LeakPrevented))?;
    let pieces = Packet::udp(client, vip).payload(&[1; 100]).pieces(&[48]);
    fixture.expect(Hook::Uplink, &pieces[1], Expect::dropped(Counter::LeakPrevented))
}
