//! Flows whose replies would look the same: one client, one port, one backend, two VIPs.

use std::{net::SocketAddr, time::Duration};

use mcs_common::{Counter, Seen};
use mcs_tests::suite::Suite;

use crate::{
    each,
    expect::Expect,
    lab::{Hook, Lab, Service},
    packet::{Packet, Protocol, flag},
    talk::{FIRST_OTHER_PORT, Side, Talk},
};

pub(crate) fn cases(suite: &mut Suite<Lab>) {
    each(suite, "collision: another backend is found", another_backend);
    each(suite, "collision: another source port is found", another_port);
    each(suite, "collision: of clients with affinity", with_affinity);
    each(suite, "collision: nothing is found", nothing);
    each(suite, "collision: a flow that has ended gives way", ended_gives_way);
    each(suite, "collision: a flow that is long silent gives way", silent_gives_way);
    each(suite, "collision: a flow that has given way comes back", comes_back);
    each(suite, "collision: of other protocols", other_protocol);
}

fn service(lab: &mut Lab, protocol: Protocol, vip: u8, pods: &[u8]) -> anyhow::Result<Service> {
    let backends: Vec<_> = pods.iter().map(|pod| lab.family.pod(*pod)).collect();
    lab.service(protocol, lab.family.vip(vip), &backends)
}

/// A flow of the client to pod 1, through the first VIP.
fn first(lab: &mut Lab, protocol: Protocol) -> anyhow::Result<Talk> {
    lab.reset(lab.family, lab.medium)?;
    let service = service(lab, protocol, 1, &[1])?;
    let talk = Talk::new(lab.family.client(1), &service);
    lab.established(&talk)?;
    Ok(talk)
}

/// All of them work, side by side.
#[track_caller]
fn chat(lab: &mut Lab, talks: &[Talk]) -> anyhow::Result<()> {
    for side in [Side::Backend, Side::Client, Side::Backend] {
        talks.iter().try_for_each(|talk| lab.carries(talk, side, &talk.later(side)))?;
    }
    Ok(())
}

fn another_backend(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        lab.reset(lab.family, lab.medium)?;
        let one = service(lab, protocol, 1, &[1])?;
        let three = service(lab, protocol, 2, &[1, 2, 3])?;
        let mut collided = 0;
        for port in 50_000..50_040 {
            let client = SocketAddr::new(lab.family.client(1).ip(), port);
            // What it would be by itself.
            let (alone, _) = lab.opens_somehow(client, &three)?;
            lab.evict_flows()?;
            let first = Talk::new(client, &one);
            lab.established(&first)?;
            let (second, _) = lab.opens_somehow(client, &three)?;
            assert_eq!(second.source, client, "it keeps its port");
            if alone.pick.address == first.pick.address {
                assert_ne!(second.pick, alone.pick);
                collided += 1;
            } else {
                assert_eq!(second.pick, alone.pick);
            }
            chat(lab, &[first, second])?;
        }
        assert!(collided > 0, "no flow collided");
    }
    Ok(())
}

fn another_port(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let mut talks = vec![first(lab, protocol)?];
        for vip in 2..6 {
            let service = service(lab, protocol, vip, &[1])?;
            let (talk, _) = lab.opens_somehow(lab.family.client(1), &service)?;
            assert!(talk.source.port() >= FIRST_OTHER_PORT);
            talks.push(talk);
        }
        chat(lab, &talks)?;
        let ports: std::collections::BTreeSet<_> =
            talks.iter().map(|talk| talk.source.port()).collect();
        assert_eq!(ports.len(), talks.len());
    }
    Ok(())
}

fn with_affinity(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let first = first(lab, protocol)?;
        let service = service(lab, protocol, 2, &[1, 2, 3])?;
        lab.stick(&service, Duration::from_secs(10))?;
        lab.give(first.client, &service, service.backends[0])?;
        let second = crate::choice::sticks(lab, first.client, &service)?;
        assert_eq!(second.pick, service.backends[0], "the client's backend");
        assert_ne!(second.source, first.client);
        chat(lab, &[first, second])?;
    }
    Ok(())
}

fn nothing(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let first = first(lab, protocol)?;
        let other = service(lab, protocol, 3, &[1])?;
        let all = (FIRST_OTHER_PORT..=u16::MAX).map(|port| {
            let talk = Talk::new(first.client, &other).source_port(port);
            (talk.key(Side::Backend), talk.entry(Side::Backend, Seen::ANY))
        });
        lab.plant(all)?;
        let service = service(lab, protocol, 2, &[1])?;
        let packet = Packet::first(protocol, first.client, service.vip);
        lab.allow_refusals(0)?;
        let expect = Expect::dropped(Counter::PacketRefusedCollision);
        lab.expect(Hook::FromPod, packet, expect.counts(&[Counter::RefusalLimited]))?;
    }
    Ok(())
}

/// A flow to the same pod through the second VIP, which takes the place of one that is over.
#[track_caller]
fn takes_over(lab: &mut Lab, old: &Talk) -> anyhow::Result<Talk> {
    let service = service(lab, old.protocol, 2, &[1])?;
    let talk = Talk::new(old.client, &service);
    // With the port that it came with.
    lab.opens(&talk, &talk.first())?;
    chat(lab, &[talk])?;
    Ok(talk)
}

fn ended_gives_way(lab: &mut Lab) -> anyhow::Result<()> {
    let fin = flag::FIN | flag::ACK;
    let ends: [&[(Side, u8)]; 4] = [
        &[(Side::Client, fin), (Side::Backend, fin)],
        &[(Side::Backend, fin), (Side::Client, fin), (Side::Backend, flag::ACK)],
        &[(Side::Client, flag::RST)],
        &[(Side::Backend, flag::RST | flag::ACK)],
    ];
    for end in ends {
        let old = first(lab, Protocol::Tcp)?;
        for (side, flags) in end {
            let (from, to) = old.ends(*side);
            lab.carries(&old, *side, &Packet::tcp(from, to, *flags))?;
        }
        takes_over(lab, &old)?;
    }
    // Half closed is not over.
    let old = first(lab, Protocol::Tcp)?;
    let (from, to) = old.ends(Side::Client);
    lab.carries(&old, Side::Client, &Packet::tcp(from, to, fin))?;
    let service = service(lab, Protocol::Tcp, 2, &[1])?;
    let (talk, _) = lab.opens_somehow(old.client, &service)?;
    assert_ne!(talk.source, old.client);
    chat(lab, &[old, talk])
}

/// Makes both entries of a flow older.
fn age(lab: &mut Lab, talk: &Talk, by: Duration) -> anyhow::Result<()> {
    Side::BOTH.iter().try_for_each(|side| lab.age_flow(&talk.key(*side), by))
}

fn silent_gives_way(lab: &mut Lab) -> anyhow::Result<()> {
    // nf_conntrack's timeouts: UDP without and with a reply, TCP without one.
    let cases =
        [(Protocol::Udp, false, 30), (Protocol::Udp, true, 120), (Protocol::Tcp, false, 120)];
    for (protocol, replied, timeout) in cases {
        for silent in [timeout / 2, timeout] {
            lab.reset(lab.family, lab.medium)?;
            let one = service(lab, protocol, 1, &[1])?;
            let old = Talk::new(lab.family.client(1), &one);
            if replied {
                lab.established(&old)?;
            } else {
                lab.opens(&old, &old.first())?;
            }
            age(lab, &old, Duration::from_secs(silent))?;
            if silent == timeout {
                takes_over(lab, &old)?;
                continue;
            }
            let two = service(lab, protocol, 2, &[1])?;
            let (talk, _) = lab.opens_somehow(old.client, &two)?;
            assert_ne!(talk.source, old.client, "silent for {silent} s");
        }
    }
    Ok(())
}

fn comes_back(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let old = first(lab, protocol)?;
        match protocol {
            Protocol::Tcp => {
                for side in Side::BOTH {
                    let (from, to) = old.ends(side);
                    lab.carries(&old, side, &Packet::tcp(from, to, flag::FIN | flag::ACK))?;
                }
            }
            Protocol::Udp => age(lab, &old, Duration::from_mins(2))?,
        }
        let one =
            Service { vip: old.vip, protocol, frontend: old.frontend(), backends: vec![old.pick] };
        let new = takes_over(lab, &old)?;
        // The client begins again where its old flow was. What the backend sees has to be another
        // flow than the one that has taken the old one's place.
        let again = lab.opens_with(&one, &old.first(), |_, _| ())?;
        assert_ne!(again.source, new.source);
        chat(lab, &[new, again])?;
    }
    Ok(())
}

fn other_protocol(lab: &mut Lab) -> anyhow::Result<()> {
    let tcp = first(lab, Protocol::Tcp)?;
    let service = service(lab, Protocol::Udp, 2, &[1])?;
    let udp = Talk::new(tcp.client, &service);
    lab.opens(&udp, &udp.first())?;
    chat(lab, &[tcp, udp])
}
