//! Backends that go: what is there stays, what is new goes elsewhere.

use std::net::SocketAddr;

use mcs_common::Counter;
use mcs_tests::suite::Suite;

use crate::{
    each,
    expect::Expect,
    lab::{Hook, Lab, Service},
    packet::{DEVICE, Packet, Protocol, flag},
    talk::{Side, Talk},
};

pub(crate) fn cases(suite: &mut Suite<Lab>) {
    each(suite, "removal: TCP stays until it ends", tcp_stays);
    each(suite, "removal: a SYN begins anew", syn_moves);
    each(suite, "removal: UDP moves at once", udp_moves);
    each(suite, "removal: of the last backend", last);
    each(suite, "removal: of a backend whose id is used again", id_used_again);
    each(suite, "removal: of another backend", of_another);
    each(suite, "end of a flow: a SYN that is sent again", syn_again);
    each(suite, "end of a flow: a SYN after it was closed", syn_after_close);
    each(suite, "end of a flow: a SYN after it was reset", syn_after_reset);
    each(suite, "end of a flow: a direct connection from its port", direct_after);
    each(suite, "owner: packets of another device", of_another_device);
}

/// A flow to one of these pods, and then none of the frontend's backends is any of them.
fn moved(
    lab: &mut Lab,
    protocol: Protocol,
    pods: &[u8],
    later: &[u8],
) -> anyhow::Result<(Talk, Service)> {
    lab.reset(lab.family, lab.medium)?;
    let backends = |lab: &Lab, pods: &[u8]| -> Vec<SocketAddr> {
        pods.iter().map(|pod| lab.family.pod(*pod)).collect()
    };
    let mut service = lab.service(protocol, lab.family.vip(1), &backends(lab, pods))?;
    let (talk, _) = lab.opens_somehow(lab.family.client(1), &service)?;
    lab.carries(&talk, Side::Backend, &talk.later(Side::Backend))?;
    let backends = backends(lab, later);
    lab.change(&mut service, &backends)?;
    Ok((talk, service))
}

/// The client's packet ends its flow and begins another one, to one of the frontend's backends.
#[track_caller]
fn begins_anew(
    lab: &mut Lab,
    old: Talk,
    service: &Service,
    packet: &Packet,
) -> anyhow::Result<Talk> {
    let talk = lab.opens_with(service, packet, move |tables, _| old.ends_in(tables))?;
    let (from, to) = talk.ends(Side::Backend);
    let answer = match talk.protocol {
        Protocol::Tcp => Packet::tcp(from, to, flag::SYN | flag::ACK),
        Protocol::Udp => talk.later(Side::Backend),
    };
    lab.carries(&talk, Side::Backend, &answer)?;
    Ok(talk)
}

fn tcp_stays(lab: &mut Lab) -> anyhow::Result<()> {
    let (talk, _) = moved(lab, Protocol::Tcp, &[1], &[2])?;
    for side in Side::BOTH {
        lab.carries(&talk, side, &talk.later(side))?;
    }
    for side in Side::BOTH {
        let (from, to) = talk.ends(side);
        lab.carries(&talk, side, &Packet::tcp(from, to, flag::FIN | flag::ACK))?;
        lab.carries(&talk, side, &Packet::tcp(from, to, flag::ACK))?;
    }
    Ok(())
}

fn syn_moves(lab: &mut Lab) -> anyhow::Result<()> {
    let (talk, service) = moved(lab, Protocol::Tcp, &[1], &[2])?;
    let new = begins_anew(lab, talk, &service, &talk.first())?;
    assert_ne!(new.pick, talk.pick);
    // What the old one still says is not from anybody the client knows.
    lab.ignores(Hook::ToPod, talk.later(Side::Backend))
}

fn udp_moves(lab: &mut Lab) -> anyhow::Result<()> {
    let (talk, service) = moved(lab, Protocol::Udp, &[1], &[2, 3])?;
    let new = begins_anew(lab, talk, &service, &talk.later(Side::Client))?;
    assert_ne!(new.pick, talk.pick);
    lab.carries(&new, Side::Client, &new.later(Side::Client))?;
    // What the old one has yet to answer is for the VIP still.
    lab.carries(&talk, Side::Backend, &talk.later(Side::Backend))
}

fn last(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let (talk, _) = moved(lab, protocol, &[1], &[])?;
        if protocol == Protocol::Tcp {
            lab.carries(&talk, Side::Client, &talk.later(Side::Client))?;
        }
        lab.carries(&talk, Side::Backend, &talk.later(Side::Backend))?;
        lab.allow_refusals(0)?;
        let expect = Expect::dropped(Counter::PacketRefusedNoBackend)
            .counts(&[Counter::RefusalLimited])
            .writes(move |tables| talk.ends_in(tables));
        lab.expect(Hook::FromPod, talk.first(), expect)?;
    }
    Ok(())
}

fn id_used_again(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let (talk, mut service) = moved(lab, protocol, &[1], &[])?;
        let pick = lab.reuse(&mut service, talk.pick, lab.family.pod(2))?;
        if protocol == Protocol::Tcp {
            for side in Side::BOTH {
                lab.carries(&talk, side, &talk.later(side))?;
            }
        }
        let new = begins_anew(lab, talk, &service, &talk.first())?;
        assert_eq!(new.pick, pick);
    }
    Ok(())
}

fn of_another(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let (talk, mut service) = moved(lab, protocol, &[1, 2, 3], &[1, 2, 3])?;
        let own = talk.pick.address;
        for backends in [vec![own], vec![lab.family.pod(4), own, lab.family.pod(5)]] {
            lab.change(&mut service, &backends)?;
            for side in Side::BOTH {
                lab.carries(&talk, side, &talk.later(side))?;
            }
            lab.carries(&talk, Side::Client, &talk.first())?;
        }
    }
    Ok(())
}

fn syn_again(lab: &mut Lab) -> anyhow::Result<()> {
    let (talk, _) = moved(lab, Protocol::Tcp, &[1, 2, 3], &[1, 2, 3])?;
    for _ in 0..3 {
        lab.carries(&talk, Side::Client, &talk.first())?;
    }
    // Half closed is not over.
    let (from, to) = talk.ends(Side::Client);
    lab.carries(&talk, Side::Client, &Packet::tcp(from, to, flag::FIN | flag::ACK))?;
    lab.carries(&talk, Side::Client, &talk.first())
}

/// A SYN after the flow has ended.
fn syn_after(lab: &mut Lab, end: &[(Side, u8)]) -> anyhow::Result<()> {
    let (talk, service) = moved(lab, Protocol::Tcp, &[1, 2, 3], &[1, 2, 3])?;
    for (side, flags) in end {
        let (from, to) = talk.ends(*side);
        lab.carries(&talk, *side, &Packet::tcp(from, to, *flags))?;
    }
    // What comes late still belongs to it.
    lab.carries(&talk, Side::Backend, &talk.later(Side::Backend))?;
    for (side, flags) in end {
        let (from, to) = talk.ends(*side);
        lab.carries(&talk, *side, &Packet::tcp(from, to, *flags))?;
    }
    let syn = Packet::tcp(talk.client, talk.vip, flag::SYN | flag::ECN);
    let new = begins_anew(lab, talk, &service, &syn)?;
    assert_eq!(new.pick, talk.pick, "the same tuple leads to the same backend");
    for side in Side::BOTH {
        lab.carries(&new, side, &new.later(side))?;
    }
    Ok(())
}

fn syn_after_close(lab: &mut Lab) -> anyhow::Result<()> {
    let fin = flag::FIN | flag::ACK;
    syn_after(lab, &[(Side::Client, fin), (Side::Backend, fin), (Side::Client, flag::ACK)])?;
    syn_after(lab, &[(Side::Backend, fin), (Side::Client, fin), (Side::Backend, flag::ACK)])
}

fn syn_after_reset(lab: &mut Lab) -> anyhow::Result<()> {
    for side in Side::BOTH {
        syn_after(lab, &[(side, flag::RST)])?;
        syn_after(lab, &[(side, flag::RST | flag::ACK)])?;
    }
    Ok(())
}

fn direct_after(lab: &mut Lab) -> anyhow::Result<()> {
    let (talk, _) = moved(lab, Protocol::Tcp, &[1], &[1])?;
    let (from, to) = talk.ends(Side::Backend);
    let accepted = Packet::tcp(from, to, flag::SYN | flag::ACK);
    // While it is open, that is the backend's answer to it.
    lab.carries(&talk, Side::Backend, &accepted)?;
    for side in Side::BOTH {
        let (from, to) = talk.ends(side);
        lab.carries(&talk, side, &Packet::tcp(from, to, flag::FIN | flag::ACK))?;
    }
    lab.ignores(Hook::ToPod, accepted)
}

fn of_another_device(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let (talk, _) = moved(lab, protocol, &[1, 2, 3], &[1, 2, 3])?;
        lab.hand_over(DEVICE + 8)?;
        lab.ignores(Hook::ToPod, talk.later(Side::Backend))?;
        lab.opens(&talk, &talk.first())?;
        for side in Side::BOTH {
            lab.carries(&talk, side, &talk.later(side))?;
        }
    }
    Ok(())
}
