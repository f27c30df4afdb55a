//! Flows from their first packet to their last, in both directions.

use mcs_tests::suite::Suite;

use crate::{
    each,
    lab::{Hook, Lab},
    packet::{Packet, Protocol, flag},
    talk::{Side, Talk},
};

pub(crate) fn cases(suite: &mut Suite<Lab>) {
    each(suite, "flow: TCP from SYN to FIN", tcp);
    each(suite, "flow: TCP that is reset", reset);
    each(suite, "flow: TCP that begins in the middle", middle);
    each(suite, "flow: UDP", udp);
}

fn talk(lab: &mut Lab, protocol: Protocol) -> anyhow::Result<Talk> {
    let service = lab.service(protocol, lab.family.vip(1), &[lab.family.pod(1)])?;
    Ok(Talk::new(lab.family.client(1), &service))
}

fn tcp(lab: &mut Lab) -> anyhow::Result<()> {
    let talk = talk(lab, Protocol::Tcp)?;
    lab.established(&talk)?;
    let packet = |side, flags| {
        let (from, to) = talk.ends(side);
        Packet::tcp(from, to, flags)
    };
    lab.carries(&talk, Side::Client, &packet(Side::Client, flag::ACK))?;
    for side in Side::BOTH {
        lab.carries(&talk, side, &talk.later(side))?;
        lab.carries(&talk, side, &talk.later(side).payload(&[0x5a; 1400]))?;
    }
    for side in Side::BOTH {
        lab.carries(&talk, side, &packet(side, flag::FIN | flag::ACK))?;
        lab.carries(&talk, side, &packet(side, flag::ACK))?;
    }
    Ok(())
}

fn reset(lab: &mut Lab) -> anyhow::Result<()> {
    for side in Side::BOTH {
        lab.reset(lab.family, lab.medium)?;
        let talk = talk(lab, Protocol::Tcp)?;
        lab.established(&talk)?;
        let (from, to) = talk.ends(side);
        lab.carries(&talk, side, &Packet::tcp(from, to, flag::RST | flag::ACK))?;
        // It was not believed.
        lab.carries(&talk, side, &talk.later(side))?;
        lab.carries(&talk, side, &Packet::tcp(from, to, flag::RST))?;
    }
    Ok(())
}

fn middle(lab: &mut Lab) -> anyhow::Result<()> {
    let talk = talk(lab, Protocol::Tcp)?;
    lab.opens(&talk, &talk.later(Side::Client))?;
    lab.carries(&talk, Side::Backend, &talk.later(Side::Backend))?;
    lab.carries(&talk, Side::Client, &talk.later(Side::Client))
}

fn udp(lab: &mut Lab) -> anyhow::Result<()> {
    let talk = talk(lab, Protocol::Udp)?;
    // A reply to nobody.
    lab.ignores(Hook::ToPod, talk.later(Side::Backend))?;
    lab.established(&talk)?;
    for side in Side::BOTH {
        lab.carries(&talk, side, &talk.later(side))?;
        lab.carries(&talk, side, &talk.later(side).payload(&[]))?;
        lab.carries(&talk, side, &talk.later(side).payload(&[0xa5; 1401]))?;
    }
    Ok(())
}
