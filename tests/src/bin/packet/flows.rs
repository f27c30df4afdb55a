//! Flows from their first packet to their last, in both directions.

use mcs_tests::suite::Suite;

use crate::{
    each,
    fixture::{Fixture, Hook},
    packet::{Packet, Protocol, flag},
    test_flow::Side,
};

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    each(suite, "flow: TCP from SYN to FIN", tcp);
    each(suite, "flow: TCP that is reset", reset);
    each(suite, "flow: TCP that both sides open at once", simultaneous);
    each(suite, "flow: TCP whose SYN has data", syn_with_data);
    each(suite, "flow: TCP whose flow was evicted", middle);
    each(suite, "flow: UDP", udp);
}

pub(crate) fn tcp(fixture: &mut Fixture) -> anyhow::Result<()> {
    let flow = fixture.new_flow(Protocol::Tcp)?;
    fixture.established(&flow)?;
    let packet = |side, flags| {
        let (from, to) = flow.ends(side);
        Packet::tcp(from, to, flags)
    };
    fixture.carries(&flow, Side::Client, &packet(Side::Client, flag::ACK))?;
    for side in Side::BOTH {
        fixture.carries(&flow, side, &flow.later(side))?;
        fixture.carries(&flow, side, &flow.later(side).payload(&[0x5a; 1400]))?;
    }
    for side in Side::BOTH {
        fixture.carries(&flow, side, &packet(side, flag::FIN | flag::ACK))?;
        fixture.carries(&flow, side, &packet(side, flag::ACK))?;
    }
    Ok(())
}

fn reset(fixture: &mut Fixture) -> anyhow::Result<()> {
    for side in Side::BOTH {
        let flow = fixture.new_flow(Protocol::Tcp)?;
        fixture.established(&flow)?;
        let (from, to) = flow.ends(side);
        fixture.carries(&flow, side, &Packet::tcp(from, to, flag::RST | flag::ACK))?;
        // The peer has ignored the reset.
        fixture.carries(&flow, side, &flow.later(side))?;
        fixture.carries(&flow, side, &Packet::tcp(from, to, flag::RST))?;
    }
    Ok(())
}

/// RFC 9293, 3.5: each side sends a SYN before it receives one.
fn simultaneous(fixture: &mut Fixture) -> anyhow::Result<()> {
    let flow = fixture.new_flow(Protocol::Tcp)?;
    fixture.opens(&flow, &flow.first())?;
    for flags in [flag::SYN, flag::SYN | flag::ACK, flag::ACK] {
        for side in [Side::Backend, Side::Client] {
            let (from, to) = flow.ends(side);
            fixture.carries(&flow, side, &Packet::tcp(from, to, flags))?;
        }
    }
    Ok(())
}

/// TCP fast open.
fn syn_with_data(fixture: &mut Fixture) -> anyhow::Result<()> {
    let flow = fixture.new_flow(Protocol::Tcp)?;
    let syn = flow.first().payload(&[0x5a; 600]);
    fixture.opens(&flow, &syn)?;
    // The client sends it again, since nobody has answered.
    fixture.carries(&flow, Side::Client, &syn)?;
    let (from, to) = flow.ends(Side::Backend);
    fixture.carries(&flow, Side::Backend, &Packet::tcp(from, to, flag::SYN | flag::ACK))?;
    Side::BOTH.into_iter().try_for_each(|side| fixture.carries(&flow, side, &flow.later(side)))
}

fn middle(fixture: &mut Fixture) -> anyhow::Result<()> {
    let flow = fixture.new_flow(Protocol::Tcp)?;
    fixture.set_evicted()?;
    fixture.opens(&flow, &flow.later(Side::Client))?;
    fixture.carries(&flow, Side::Backend, &flow.later(Side::Backend))?;
    fixture.carries(&flow, Side::Client, &flow.later(Side::Client))
}

fn udp(fixture: &mut Fixture) -> anyhow::Result<()> {
    let flow = fixture.new_flow(Protocol::Udp)?;
    // A reply without a flow.
    fixture.ignores(Hook::ToPod, flow.later(Side::Backend))?;
    fixture.established(&flow)?;
    for side in Side::BOTH {
        fixture.carries(&flow, side, &flow.later(side))?;
        fixture.carries(&flow, side, &flow.later(side).payload(&[]))?;
        fixture.carries(&flow, side, &flow.later(side).payload(&[0xa5; 1401]))?;
    }
    Ok(())
}
