//! What is not for a VIP: untouched, uncounted, unknown.

use etherparse::{ArpHardwareId, ArpOperation, ArpPacket, EtherType};
use mcs_common::FlowsUsed;
use mcs_tests::suite::Suite;

use crate::{
    each, each_on,
    family::Family,
    lab::{Hook, Lab},
    medium::{Medium, Way, tagged},
    packet::{Packet, Protocol, built, flag},
};

pub(crate) fn cases(suite: &mut Suite<Lab>) {
    each(suite, "miss: other destinations", destinations);
    each(suite, "miss: other protocols", protocols);
    // Without a link header there is no other.
    each_on(suite, "miss: other ethertypes", Medium::WITH_LINK, ethertypes);
    each_on(suite, "miss: three VLAN tags", &[Medium::Ethernet], three_tags);
    each(suite, "miss: a backend that is talked to directly", backend_directly);
}

/// The lab with a service and flows that are not to matter.
fn furnish(lab: &mut Lab) -> anyhow::Result<()> {
    let family = lab.family;
    for protocol in Protocol::ALL {
        lab.service(protocol, family.vip(1), &[family.pod(1)])?;
    }
    lab.set_flows_used(FlowsUsed::YES)
}

fn destinations(lab: &mut Lab) -> anyhow::Result<()> {
    furnish(lab)?;
    let (client, stranger) = (lab.family.client(1), lab.family.stranger());
    for hook in Hook::ALL {
        for flags in [flag::SYN, flag::ACK, flag::FIN | flag::ACK, flag::RST] {
            lab.ignores(hook, Packet::tcp(client, stranger, flags))?;
        }
        lab.ignores(hook, Packet::udp(client, stranger))?;
        lab.ignores(hook, Packet::udp(client, stranger).without_checksum())?;
        for piece in Packet::udp(client, stranger).payload(&[7; 64]).pieces(&[16, 32]) {
            lab.ignores(hook, piece)?;
        }
    }
    Ok(())
}

fn protocols(lab: &mut Lab) -> anyhow::Result<()> {
    furnish(lab)?;
    let (client, stranger) = (lab.family.client(1).ip(), lab.family.stranger().ip());
    let echo = match lab.family {
        Family::V4 => 8,
        Family::V6 => 128,
    };
    for hook in Hook::ALL {
        for protocol in [2, 4, 41, 47, 50, 51, 89, 132, 255] {
            lab.ignores(hook, Packet::other(client, stranger, protocol, &[1; 40]))?;
        }
        let echo = Packet::icmp(client, stranger, (echo, 0, [0, 1, 0, 1]), b"ping");
        lab.ignores(hook, echo)?;
        // Shorter than what it claims to be.
        lab.ignores(hook, Packet::other(client, stranger, 6, &[1; 3]))?;
        lab.ignores(hook, Packet::other(client, stranger, 17, &[]))?;
    }
    Ok(())
}

fn ethertypes(lab: &mut Lab) -> anyhow::Result<()> {
    furnish(lab)?;
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
    let to_vip = Packet::syn(lab.family.client(1), lab.family.vip(1)).bytes();
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
            let frame = lab.medium.frame_of(*ethertype, payload, Way::On);
            lab.ignores_frame(hook, frame)?;
        }
    }
    Ok(())
}

fn three_tags(lab: &mut Lab) -> anyhow::Result<()> {
    furnish(lab)?;
    let tags = [EtherType::PROVIDER_BRIDGING, EtherType::VLAN_TAGGED_FRAME];
    let tags = [&tags[..], &[EtherType::VLAN_TAGGED_FRAME]].concat();
    let ethertype = lab.family.ethertype();
    let packet = Packet::syn(lab.family.client(1), lab.family.vip(1));
    for hook in Hook::ALL {
        lab.ignores_frame(hook, tagged(&tags, ethertype, &packet.bytes(), Way::On))?;
    }
    Ok(())
}

fn backend_directly(lab: &mut Lab) -> anyhow::Result<()> {
    furnish(lab)?;
    let (client, pod) = (lab.family.client(1), lab.family.pod(1));
    for hook in Hook::ALL {
        for protocol in Protocol::ALL {
            lab.ignores(hook, Packet::first(protocol, client, pod))?;
            lab.ignores(hook, Packet::first(protocol, pod, client))?;
        }
    }
    Ok(())
}
