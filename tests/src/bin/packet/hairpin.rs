//! Hairpin flows: a pod calls a service and is chosen as its own backend.

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    each(suite, "hairpin: both ways", both_ways);
    each(suite, "hairpin: two VIPs of one backend", both(two_vips));
    each(suite, "hairpin: among other backends", both(among_others));
}

/// The client as a backend.
fn own_backend(client: SocketAddr) -> SocketAddr {
    SocketAddr::new(client.ip(), 8080)
}

fn flow(fixture: &mut Fixture, protocol: Protocol, vip: SocketAddr) -> Result<TestFlow> {
    let client = fixture.family.client(1);
    Ok(TestFlow::new(client, &fixture.service(protocol, vip, &[own_backend(client)])?))
}

/// Sends data both ways, and checks that `to_pod` does not change it.
#[track_caller]
fn exchange_both_ways(fixture: &mut Fixture, flow: &TestFlow) -> Result {
    for side in Side::BOTH {
        let packet = flow.later(side);
        fixture.carries(flow, side, &packet)?;
        fixture.ignores(Hook::ToPod, flow.translated(side, &packet))?;
    }
    Ok(())
}

pub(crate) fn both_ways(fixture: &mut Fixture) -> Result {
    for protocol in Protocol::ALL {
        let flow = fixture.hairpin(protocol)?;
        exchange_both_ways(fixture, &flow)?;
        // A packet from outside that looks like the pod's.
        fixture.ignores(Hook::ToPod, flow.later(Side::Backend))?;
        if protocol == Protocol::Tcp {
            fixture.closes(&flow)?;
        }
        // Without the flow, a packet of the pod to the VIP comes from a client.
        fixture.evict_flows()?;
        let packet = flow.later(Side::Backend);
        fixture.refuses_limited(Hook::FromPod, packet, Counter::PacketRefusedUnknownPort)?;
    }
    Ok(())
}

fn two_vips(fixture: &mut Fixture, protocol: Protocol) -> Result {
    // Each flow has its VIP as the source at the pod, so the two have different tuples.
    let flows = [
        flow(fixture, protocol, fixture.family.vip(1))?,
        flow(fixture, protocol, fixture.family.vip(2))?,
    ];
    flows.iter().try_for_each(|flow| fixture.established(flow))?;
    flows.iter().try_for_each(|flow| exchange_both_ways(fixture, flow))?;
    // Two ports of one VIP are.
    let mut vip = fixture.family.vip(1);
    vip.set_port(81);
    let client = fixture.family.client(1);
    let service = fixture.service(protocol, vip, &[own_backend(client)])?;
    let (other, _) = fixture.opens_with_any_choice(client, &service)?;
    assert_ne!(other.source.port(), client.port());
    exchange_both_ways(fixture, &other)?;
    flows.iter().try_for_each(|flow| exchange_both_ways(fixture, flow))
}

fn among_others(fixture: &mut Fixture, protocol: Protocol) -> Result {
    let client = fixture.family.client(1);
    let backends = [own_backend(client), fixture.family.pod(1), fixture.family.pod(2)];
    let service = fixture.service(protocol, fixture.family.vip(1), &backends)?;
    let mut itself = 0;
    for port in 1..=60 {
        let client = SocketAddr::new(client.ip(), 30_000 + port);
        let (flow, _) = fixture.opens_with_any_choice(client, &service)?;
        itself += usize::from(flow.is_hairpin());
        fixture.answers(&flow)?;
        fixture.carries(&flow, Side::Client, &flow.later(Side::Client))?;
    }
    assert!((5..=40).contains(&itself), "{itself} of 60 connections went to the pod itself");
    Ok(())
}
