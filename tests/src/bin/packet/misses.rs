//! Misses: the programs neither change nor count packets that are not for a VIP.

use etherparse::{ArpHardwareId, ArpOperation, ArpPacket};

use crate::{medium::tagged, prelude::*};

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    each(suite, "miss: other destinations", destinations);
    each(suite, "miss: other protocols", protocols);
    // Without a link header there is no other.
    each_on(suite, "miss: other ethertypes", Medium::WITH_LINK, ethertypes);
    each_on(suite, "miss: three VLAN tags", &[Medium::Ethernet], three_tags);
    each(suite, "miss: a backend that is talked to directly", backend_directly);
}

/// Fills the fixture with a service and flows that must not matter.
fn furnish(fixture: &mut Fixture) -> Result {
    for protocol in Protocol::ALL {
        fixture.service_of(protocol, 1, &[1])?;
    }
    fixture.set_flows_used(FlowsUsed::YES)
}

fn destinations(fixture: &mut Fixture) -> Result {
    furnish(fixture)?;
    let (client, stranger) = (fixture.family.client(1), fixture.family.stranger());
    for hook in Hook::ALL {
        for flags in [flag::SYN, flag::ACK, flag::FIN | flag::ACK, flag::RST] {
            fixture.ignores(hook, Packet::tcp(client, stranger, flags))?;
        }
        fixture.ignores(hook, Packet::udp(client, stranger))?;
        fixture.ignores(hook, Packet::udp(client, stranger).without_checksum())?;
        for piece in Packet::udp(client, stranger).payload(&[7; 64]).pieces(&[16, 32]) {
            fixture.ignores(hook, piece)?;
        }
    }
    Ok(())
}

fn protocols(fixture: &mut Fixture) -> Result {
    furnish(fixture)?;
    let (client, stranger) = (fixture.family.client(1).ip(), fixture.family.stranger().ip());
    let (echo, _) = fixture.family.echo();
    for hook in Hook::ALL {
        for protocol in [2, 4, 41, 47, 50, 51, 89, 132, 255] {
            fixture.ignores(hook, Packet::other(client, stranger, protocol, &[1; 40]))?;
        }
        let echo = Packet::icmp(client, stranger, (echo, 0, [0, 1, 0, 1]), b"ping");
        fixture.ignores(hook, echo)?;
        // Shorter than what it claims to be.
        fixture.ignores(hook, Packet::other(client, stranger, 6, &[1; 3]))?;
        fixture.ignores(hook, Packet::other(client, stranger, 17, &[]))?;
    }
    Ok(())
}

fn ethertypes(fixture: &mut Fixture) -> Result {
    furnish(fixture)?;
    let arp = built(ArpPacket::new(
        ArpHardwareId::ETHERNET,
        EtherType::IPV4,
        ArpOperation::REQUEST,
        &[2, 0, 0, 0, 0, 1],
        &[8, 0, 1, 1],
        &[0; 6],
        // The VIP.
        &[8, 0, 99, 1],
    ));
    let to_vip = Packet::syn(fixture.family.client(1), fixture.family.vip(1)).bytes();
    let payloads = [
        (EtherType::ARP, arp.to_bytes().as_slice().to_vec()),
        (EtherType(0x88cc), vec![0x55; 60]),
        // LLC: a length.
        (EtherType(0x0026), vec![0x42; 60]),
        // MPLS in front of a packet to a VIP.
        (EtherType(0x8847), [&[0, 1, 1, 64], to_vip.as_slice()].concat()),
        // PPPoE.
        (EtherType(0x8864), to_vip),
    ];
    for hook in Hook::ALL {
        for (ethertype, payload) in &payloads {
            let frame = fixture.medium.frame_of(*ethertype, payload, Way::On);
            fixture.ignores_frame(hook, frame)?;
        }
    }
    Ok(())
}

fn three_tags(fixture: &mut Fixture) -> Result {
    furnish(fixture)?;
    let tags = [EtherType::PROVIDER_BRIDGING, EtherType::VLAN_TAGGED_FRAME];
    let tags = [&tags[..], &[EtherType::VLAN_TAGGED_FRAME]].concat();
    let ethertype = fixture.family.ethertype();
    let packet = Packet::syn(fixture.family.client(1), fixture.family.vip(1));
    for hook in Hook::ALL {
        fixture.ignores_frame(hook, tagged(&tags, ethertype, &packet.bytes(), Way::On))?;
    }
    Ok(())
}

fn backend_directly(fixture: &mut Fixture) -> Result {
    furnish(fixture)?;
    let (client, pod) = (fixture.family.client(1), fixture.family.pod(1));
    for hook in Hook::ALL {
        for protocol in Protocol::ALL {
            fixture.ignores(hook, Packet::first(protocol, client, pod))?;
            fixture.ignores(hook, Packet::first(protocol, pod, client))?;
        }
    }
    Ok(())
}
