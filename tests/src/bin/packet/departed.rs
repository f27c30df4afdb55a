//! VIPs that were handed back, and VIPs whose import has gone.

use mcs_common::VipMode;

use crate::{prelude::*, row::rows};

const ROWS: &str = "
    departed: flows go on | both | open mode:handed-back withdraw >data <data >data
        open mode:gone withdraw >data <data >data
        open mode:7 withdraw >data <data >data
    # Longer than the timeout of a UDP flow without replies.
    departed: UDP without replies ends | UDP | open mode:handed-back withdraw age<31 >data%
";

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    rows(suite, ROWS);
    each(suite, "departed: new packets pass a VIP that was handed back", handed_back);
    each(suite, "departed: new packets to a VIP that has gone are refused", gone);
}

fn handed_back(fixture: &mut Fixture) -> Result {
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

fn gone(fixture: &mut Fixture) -> Result {
    let (client, vip) = (fixture.family.client(1), fixture.family.vip(1));
    fixture.service(Protocol::Tcp, vip, &[fixture.family.pod(1)])?;
    fixture.set_mode(vip, VipMode::GONE)?;
    for packet in [Packet::syn(client, vip), Packet::data(client, vip), Packet::udp(client, vip)] {
        for hook in [Hook::FromPod, Hook::Uplink] {
            fixture.refuses_limited(hook, &packet, Counter::PacketRefusedGone)?;
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
    fixture.drops(Hook::FromPod, &other, Counter::PacketDroppedProtocol)?;
    fixture.drops(Hook::Uplink, &other, Counter::LeakPrevented)?;
    let pieces = Packet::udp(client, vip).payload(&[1; 100]).pieces(&[48]);
    fixture.drops(Hook::Uplink, &pieces[1], Counter::LeakPrevented)
}
