//! Removal of backends: existing TCP flows stay, new flows go to other backends.

use std::net::SocketAddr;

use mcs_common::Counter;
use mcs_tests::suite::Suite;

use crate::{
    each,
    expect::Expect,
    fixture::{Fixture, Hook, Service},
    packet::{DEVICE, Packet, Protocol, flag},
    test_flow::{Side, TestFlow},
};

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    each(suite, "removal: TCP stays until it ends", tcp_stays);
    each(suite, "removal: a SYN starts a new flow", syn_moves);
    each(suite, "removal: UDP moves at once", udp_moves);
    each(suite, "removal: UDP stays with a kept backend, and new flows go elsewhere", udp_stays);
    each(suite, "removal: of the last backend", last);
    each(suite, "removal: of a backend whose id is used again", id_used_again);
    each(suite, "removal: of another backend", of_another);
    each(suite, "end of a flow: a SYN that is sent again", syn_again);
    each(suite, "end of a flow: a SYN after it was closed", syn_after_close);
    each(suite, "end of a flow: a SYN after it was reset", syn_after_reset);
    each(suite, "end of a flow: a direct connection from its port", direct_after);
    each(suite, "owner: packets of another device", of_another_device);
}

/// Opens a flow to one of these pods, and then gives the frontend only other backends.
fn moved(
    fixture: &mut Fixture,
    protocol: Protocol,
    pods: &[u8],
    later: &[u8],
) -> anyhow::Result<(TestFlow, Service)> {
    fixture.reset(fixture.family, fixture.medium)?;
    let backends = |fixture: &Fixture, pods: &[u8]| -> Vec<SocketAddr> {
        pods.iter().map(|pod| fixture.family.pod(*pod)).collect()
    };
    let mut service = fixture.service(protocol, fixture.family.vip(1), &backends(fixture, pods))?;
    let (flow, _) = fixture.opens_with_any_choice(fixture.family.client(1), &service)?;
    fixture.answers(&flow)?;
    let backends = backends(fixture, later);
    fixture.change(&mut service, &backends)?;
    Ok((flow, service))
}

/// Checks that the client's packet ends its flow and begins another one to a backend of the frontend.
#[track_caller]
fn starts_new_flow(
    fixture: &mut Fixture,
    old: TestFlow,
    service: &Service,
    packet: &Packet,
) -> anyhow::Result<TestFlow> {
    let flow = fixture.opens_with(service, packet, move |tables, _| old.ends_in(tables))?;
    fixture.answers(&flow)?;
    Ok(flow)
}

fn tcp_stays(fixture: &mut Fixture) -> anyhow::Result<()> {
    let (flow, _) = moved(fixture, Protocol::Tcp, &[1], &[2])?;
    for side in Side::BOTH {
        fixture.carries(&flow, side, &flow.later(side))?;
    }
    for side in Side::BOTH {
        let (from, to) = flow.ends(side);
        fixture.carries(&flow, side, &Packet::tcp(from, to, flag::FIN | flag::ACK))?;
        fixture.carries(&flow, side, &Packet::tcp(from, to, flag::ACK))?;
    }
    Ok(())
}

fn syn_moves(fixture: &mut Fixture) -> anyhow::Result<()> {
    let (flow, service) = moved(fixture, Protocol::Tcp, &[1], &[2])?;
    let new = starts_new_flow(fixture, flow, &service, &flow.first())?;
    assert_ne!(new.pick, flow.pick);
    // The client does not know the old backend, so late packets of it are not translated.
    fixture.ignores(Hook::ToPod, flow.later(Side::Backend))
}

fn udp_moves(fixture: &mut Fixture) -> anyhow::Result<()> {
    let (flow, service) = moved(fixture, Protocol::Udp, &[1], &[2, 3])?;
    let new = starts_new_flow(fixture, flow, &service, &flow.later(Side::Client))?;
    assert_ne!(new.pick, flow.pick);
    fixture.carries(&new, Side::Client, &new.later(Side::Client))?;
    // Late replies of the old backend still come from the VIP.
    fixture.carries(&flow, Side::Backend, &flow.later(Side::Backend))
}

fn udp_stays(fixture: &mut Fixture) -> anyhow::Result<()> {
    let (flow, mut service) = moved(fixture, Protocol::Udp, &[1, 2], &[1, 2])?;
    fixture.keep(&mut service, flow.pick)?;
    for side in Side::BOTH {
        fixture.carries(&flow, side, &flow.later(side))?;
    }
    let (other, _) = fixture.opens_with_any_choice(fixture.family.client(2), &service)?;
    assert_ne!(other.pick, flow.pick);
    fixture.keep(&mut service, other.pick)?;
    assert!(service.backends.is_empty());
    for side in Side::BOTH {
        fixture.carries(&flow, side, &flow.later(side))?;
    }
    Ok(())
}

fn last(fixture: &mut Fixture) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let (flow, _) = moved(fixture, protocol, &[1], &[])?;
        if protocol == Protocol::Tcp {
            fixture.carries(&flow, Side::Client, &flow.later(Side::Client))?;
        }
        fixture.carries(&flow, Side::Backend, &flow.later(Side::Backend))?;
        fixture.allow_refusals(0)?;
        let expect = Expect::dropped(Counter::PacketRefusedNoBackend)
            .counts(&[Counter::RefusalLimited])
            .writes(move |tables| flow.ends_in(tables));
        fixture.expect(Hook::FromPod, flow.first(), expect)?;
    }
    Ok(())
}

fn id_used_again(fixture: &mut Fixture) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let (flow, mut service) = moved(fixture, protocol, &[1], &[])?;
        let pick = fixture.reuse(&mut service, flow.pick, fixture.family.pod(2))?;
        if protocol == Protocol::Tcp {
            for side in Side::BOTH {
                fixture.carries(&flow, side, &flow.later(side))?;
            }
        }
        let new = starts_new_flow(fixture, flow, &service, &flow.first())?;
        assert_eq!(new.pick, pick);
    }
    Ok(())
}

fn of_another(fixture: &mut Fixture) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let (flow, mut service) = moved(fixture, protocol, &[1, 2, 3], &[1, 2, 3])?;
        let own = flow.pick.address;
        for backends in [vec![own], vec![fixture.family.pod(4), own, fixture.family.pod(5)]] {
            fixture.change(&mut service, &backends)?;
            for side in Side::BOTH {
                fixture.carries(&flow, side, &flow.later(side))?;
            }
            fixture.carries(&flow, Side::Client, &flow.first())?;
        }
    }
    Ok(())
}

fn syn_again(fixture: &mut Fixture) -> anyhow::Result<()> {
    let (flow, _) = moved(fixture, Protocol::Tcp, &[1, 2, 3], &[1, 2, 3])?;
    for _ in 0..3 {
        fixture.carries(&flow, Side::Client, &flow.first())?;
    }
    // A half-closed connection has not ended.
    let (from, to) = flow.ends(Side::Client);
    fixture.carries(&flow, Side::Client, &Packet::tcp(from, to, flag::FIN | flag::ACK))?;
    fixture.carries(&flow, Side::Client, &flow.first())
}

/// A SYN after the flow has ended.
fn syn_after(fixture: &mut Fixture, end: &[(Side, u8)]) -> anyhow::Result<()> {
    let (flow, service) = moved(fixture, Protocol::Tcp, &[1, 2, 3], &[1, 2, 3])?;
    for (side, flags) in end {
        let (from, to) = flow.ends(*side);
        fixture.carries(&flow, *side, &Packet::tcp(from, to, *flags))?;
    }
    // Late packets still belong to the old flow.
    fixture.carries(&flow, Side::Backend, &flow.later(Side::Backend))?;
    for (side, flags) in end {
        let (from, to) = flow.ends(*side);
        fixture.carries(&flow, *side, &Packet::tcp(from, to, *flags))?;
    }
    let syn = Packet::tcp(flow.client, flow.vip, flag::SYN | flag::ECN);
    let new = starts_new_flow(fixture, flow, &service, &syn)?;
    assert_eq!(new.pick, flow.pick, "the same tuple leads to the same backend");
    for side in Side::BOTH {
        fixture.carries(&new, side, &new.later(side))?;
    }
    Ok(())
}

fn syn_after_close(fixture: &mut Fixture) -> anyhow::Result<()> {
    let fin = flag::FIN | flag::ACK;
    syn_after(fixture, &[(Side::Client, fin), (Side::Backend, fin), (Side::Client, flag::ACK)])?;
    syn_after(fixture, &[(Side::Backend, fin), (Side::Client, fin), (Side::Backend, flag::ACK)])
}

fn syn_after_reset(fixture: &mut Fixture) -> anyhow::Result<()> {
    for side in Side::BOTH {
        syn_after(fixture, &[(side, flag::RST)])?;
        syn_after(fixture, &[(side, flag::RST | flag::ACK)])?;
    }
    Ok(())
}

fn direct_after(fixture: &mut Fixture) -> anyhow::Result<()> {
    for ends in
        [&[(Side::Client, flag::RST)][..], &[(Side::Client, flag::FIN), (Side::Backend, flag::FIN)]]
    {
        let (flow, _) = moved(fixture, Protocol::Tcp, &[1], &[1])?;
        let (from, to) = flow.ends(Side::Backend);
        let accepted = Packet::tcp(from, to, flag::SYN | flag::ACK);
        // While the connection is open, this is the backend's answer.
        fixture.carries(&flow, Side::Backend, &accepted)?;
        for (side, flags) in ends {
            let (from, to) = flow.ends(*side);
            fixture.carries(&flow, *side, &Packet::tcp(from, to, flags | flag::ACK))?;
        }
        let expect = Expect::next(&accepted).writes(move |tables| flow.ends_in(tables));
        fixture.expect(Hook::ToPod, &accepted, expect)?;
        fixture.ignores(Hook::ToPod, flow.later(Side::Backend))?;
    }
    Ok(())
}

fn of_another_device(fixture: &mut Fixture) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let (flow, _) = moved(fixture, protocol, &[1, 2, 3], &[1, 2, 3])?;
        fixture.hand_over(DEVICE + 8)?;
        fixture.ignores(Hook::ToPod, flow.later(Side::Backend))?;
        fixture.opens(&flow, &flow.first())?;
        for side in Side::BOTH {
            fixture.carries(&flow, side, &flow.later(side))?;
        }
    }
    Ok(())
}
