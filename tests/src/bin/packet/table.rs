//! The flow table: the mark that says whether there are flows, and evicted entries.

use std::time::Duration;

use mcs_common::{Counter, Flow, FlowsUsed};
use mcs_tests::suite::Suite;

use crate::{
    each,
    fixture::{Fixture, Hook},
    packet::Protocol,
    test_flow::{Side, TestFlow},
};

pub(crate) fn cases(suite: &mut Suite<Fixture>) {
    each(suite, "table: no look at replies while there is no flow", gate);
    each(suite, "table: the mark that it is ending", ending);
    each(suite, "table: the mark without a flow", refused);
    each(suite, "table: the time of the latest packet", times);
    each(suite, "table: one entry of two is recreated", recreates_entry);
    each(suite, "table: the client's packet recreates its entry", client_again);
    each(suite, "table: both entries are gone", both_gone);
}

fn gate(fixture: &mut Fixture) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let flow = fixture.new_flow(protocol)?;
        let reply = flow.later(Side::Backend);
        // An entry that nothing has announced.
        fixture.plant([(flow.key(Side::Backend), flow.entry(Side::Backend, 0))])?;
        fixture.ignores(Hook::ToPod, &reply)?;
        fixture.evict(&flow.key(Side::Backend))?;
        // The first flow does.
        fixture.established(&flow)?;
        assert_eq!(fixture.tables.flows_used, FlowsUsed::YES);
        fixture.carries(&flow, Side::Backend, &reply)?;
        fixture.set_flows_used(FlowsUsed::NO)?;
        fixture.ignores(Hook::ToPod, &reply)?;
    }
    Ok(())
}

fn ending(fixture: &mut Fixture) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let flow = fixture.new_flow(protocol)?;
        fixture.established(&flow)?;
        fixture.set_flows_used(FlowsUsed::ENDING)?;
        for side in Side::BOTH {
            fixture.carries(&flow, side, &flow.later(side))?;
        }
        assert_eq!(fixture.tables.flows_used, FlowsUsed::ENDING);
        let client = fixture.family.client(2);
        let service = fixture.service(protocol, fixture.family.vip(2), &[fixture.family.pod(2)])?;
        // Which says that the mark is `YES` again.
        fixture.established(&TestFlow::new(client, &service))?;
    }
    Ok(())
}

fn refused(fixture: &mut Fixture) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        fixture.reset(fixture.family, fixture.medium)?;
        let service = fixture.service(protocol, fixture.family.vip(1), &[])?;
        let packet = crate::packet::Packet::first(protocol, fixture.family.client(1), service.vip);
        fixture.allow_refusals(0)?;
        let refused = [Counter::PacketRefusedNoBackend];
        let expect = crate::expect::Expect::dropped(Counter::RefusalLimited).counts(&refused);
        fixture.expect(Hook::FromPod, packet, expect)?;
        assert_eq!(fixture.tables.flows_used, FlowsUsed::NO);
    }
    Ok(())
}

/// Long enough for the time to be written again.
const A_WHILE: Duration = Duration::from_nanos(Flow::TOUCH_NS);

fn times(fixture: &mut Fixture) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let flow = fixture.new_flow(protocol)?;
        fixture.established(&flow)?;
        for side in Side::BOTH {
            // Right away: not written. After a while: written.
            fixture.carries(&flow, side, &flow.later(side))?;
            fixture.age_flow(&flow.key(side), A_WHILE)?;
            fixture.carries(&flow, side, &flow.later(side))?;
            fixture.carries(&flow, side, &flow.later(side))?;
        }
    }
    Ok(())
}

const fn other(side: Side) -> Side {
    match side {
        Side::Client => Side::Backend,
        Side::Backend => Side::Client,
    }
}

fn recreates_entry(fixture: &mut Fixture) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        for side in Side::BOTH {
            let flow = fixture.new_flow(protocol)?;
            fixture.established(&flow)?;
            fixture.evict(&flow.key(other(side)))?;
            fixture.age_flow(&flow.key(side), A_WHILE)?;
            let packet = flow.later(side);
            let flags = packet.flags();
            let expect = flow.outcome(side, &packet).writes(move |tables| {
                flow.passes(tables, side, flags);
                flow.is_made(tables, other(side));
            });
            fixture.expect(flow.hook(side), packet, expect)?;
            for side in Side::BOTH {
                fixture.carries(&flow, side, &flow.later(side))?;
            }
        }
    }
    Ok(())
}

fn client_again(fixture: &mut Fixture) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let flow = fixture.new_flow(protocol)?;
        fixture.established(&flow)?;
        fixture.evict(&flow.key(Side::Client))?;
        fixture.opens(&flow, &flow.later(Side::Client))?;
        fixture.carries(&flow, Side::Backend, &flow.later(Side::Backend))?;
    }
    Ok(())
}

fn both_gone(fixture: &mut Fixture) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let flow = fixture.new_flow(protocol)?;
        fixture.established(&flow)?;
        fixture.evict_flows()?;
        fixture.ignores(Hook::ToPod, flow.later(Side::Backend))?;
        fixture.opens(&flow, &flow.later(Side::Client))?;
        fixture.carries(&flow, Side::Backend, &flow.later(Side::Backend))?;
    }
    Ok(())
}
