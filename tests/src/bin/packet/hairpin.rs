//! A pod that is a backend of the service it calls, and is chosen.

use std::net::SocketAddr;

use mcs_common::Counter;
use mcs_tests::suite::Suite;

use crate::{
    each,
    expect::Expect,
    lab::{Hook, Lab},
    packet::{Packet, Protocol, flag},
    talk::{Side, Talk},
};

pub(crate) fn cases(suite: &mut Suite<Lab>) {
    each(suite, "hairpin: both ways", both_ways);
    each(suite, "hairpin: two VIPs of one backend", two_vips);
    each(suite, "hairpin: among other backends", among_others);
}

/// The backend that the client itself is.
fn own_backend(client: SocketAddr) -> SocketAddr {
    SocketAddr::new(client.ip(), 8080)
}

fn talk(lab: &mut Lab, protocol: Protocol, vip: SocketAddr) -> anyhow::Result<Talk> {
    let client = lab.family.client(1);
    let service = lab.service(protocol, vip, &[own_backend(client)])?;
    Ok(Talk::new(client, &service))
}

/// Data goes both ways, and nothing happens to it on its way into the pod.
#[track_caller]
fn chat(lab: &mut Lab, talk: &Talk) -> anyhow::Result<()> {
    for side in Side::BOTH {
        let packet = talk.later(side);
        lab.carries(talk, side, &packet)?;
        lab.ignores(Hook::ToPod, talk.translated(side, &packet))?;
    }
    Ok(())
}

fn both_ways(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        lab.reset(lab.family, lab.medium)?;
        let talk = talk(lab, protocol, lab.family.vip(1))?;
        lab.established(&talk)?;
        chat(lab, &talk)?;
        // A packet from outside that looks like the pod's.
        lab.ignores(Hook::ToPod, talk.later(Side::Backend))?;
        if protocol == Protocol::Tcp {
            for side in Side::BOTH {
                let (from, to) = talk.ends(side);
                lab.carries(&talk, side, &Packet::tcp(from, to, flag::FIN | flag::ACK))?;
            }
        }
        // Without the flow, a packet of the pod to the VIP is that of a client.
        lab.evict_flows()?;
        lab.allow_refusals(0)?;
        let dropped = Expect::dropped(Counter::PacketRefusedUnknownPort);
        let dropped = dropped.counts(&[Counter::RefusalLimited]);
        lab.expect(Hook::FromPod, talk.later(Side::Backend), dropped)?;
    }
    Ok(())
}

fn two_vips(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        lab.reset(lab.family, lab.medium)?;
        // Each has its VIP as the source at the pod, so that they are never one.
        let talks =
            [talk(lab, protocol, lab.family.vip(1))?, talk(lab, protocol, lab.family.vip(2))?];
        talks.iter().try_for_each(|talk| lab.established(talk))?;
        talks.iter().try_for_each(|talk| chat(lab, talk))?;
        // Two ports of one VIP are.
        let mut vip = lab.family.vip(1);
        vip.set_port(81);
        let client = lab.family.client(1);
        let service = lab.service(protocol, vip, &[own_backend(client)])?;
        let (other, _) = lab.opens_somehow(client, &service)?;
        assert_ne!(other.source.port(), client.port());
        chat(lab, &other)?;
        talks.iter().try_for_each(|talk| chat(lab, talk))?;
    }
    Ok(())
}

fn among_others(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        lab.reset(lab.family, lab.medium)?;
        let client = lab.family.client(1);
        let backends = [own_backend(client), lab.family.pod(1), lab.family.pod(2)];
        let service = lab.service(protocol, lab.family.vip(1), &backends)?;
        let mut itself = 0;
        for port in 1..=60 {
            let client = SocketAddr::new(client.ip(), 30_000 + port);
            let (talk, _) = lab.opens_somehow(client, &service)?;
            itself += usize::from(talk.is_hairpin());
            for side in [Side::Backend, Side::Client] {
                lab.carries(&talk, side, &talk.later(side))?;
            }
        }
        assert!((5..=40).contains(&itself), "{itself} of 60 connections went to the pod itself");
    }
    Ok(())
}
