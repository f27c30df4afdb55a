//! The flow table: the mark that says whether it is in use, and entries that are evicted.

use std::time::Duration;

use mcs_common::{Counter, Flow, FlowsUsed};
use mcs_tests::suite::Suite;

use crate::{
    each,
    lab::{Hook, Lab},
    packet::Protocol,
    talk::{Side, Talk},
};

pub(crate) fn cases(suite: &mut Suite<Lab>) {
    each(suite, "table: no look at replies while there is no flow", gate);
    each(suite, "table: the mark that it is ending", ending);
    each(suite, "table: the mark without a flow", refused);
    each(suite, "table: the time of the latest packet", times);
    each(suite, "table: one entry of two is made anew", made_anew);
    each(suite, "table: the client's entry is made anew by its packet", client_again);
    each(suite, "table: both entries are gone", both_gone);
}

fn talk(lab: &mut Lab, protocol: Protocol) -> anyhow::Result<Talk> {
    lab.reset(lab.family, lab.medium)?;
    let service = lab.service(protocol, lab.family.vip(1), &[lab.family.pod(1)])?;
    Ok(Talk::new(lab.family.client(1), &service))
}

fn gate(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let talk = talk(lab, protocol)?;
        let reply = talk.later(Side::Backend);
        // An entry that nothing has announced.
        lab.plant([(talk.key(Side::Backend), talk.entry(Side::Backend, 0))])?;
        lab.ignores(Hook::ToPod, &reply)?;
        lab.evict(&talk.key(Side::Backend))?;
        // The first flow does.
        lab.established(&talk)?;
        assert_eq!(lab.tables.flows_used, FlowsUsed::YES);
        lab.carries(&talk, Side::Backend, &reply)?;
        lab.set_flows_used(FlowsUsed::NO)?;
        lab.ignores(Hook::ToPod, &reply)?;
    }
    Ok(())
}

fn ending(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let talk = talk(lab, protocol)?;
        lab.established(&talk)?;
        lab.set_flows_used(FlowsUsed::ENDING)?;
        for side in Side::BOTH {
            lab.carries(&talk, side, &talk.later(side))?;
        }
        assert_eq!(lab.tables.flows_used, FlowsUsed::ENDING);
        let client = lab.family.client(2);
        let service = lab.service(protocol, lab.family.vip(2), &[lab.family.pod(2)])?;
        // Which says that the mark is `YES` again.
        lab.established(&Talk::new(client, &service))?;
    }
    Ok(())
}

fn refused(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        lab.reset(lab.family, lab.medium)?;
        let service = lab.service(protocol, lab.family.vip(1), &[])?;
        let packet = crate::packet::Packet::first(protocol, lab.family.client(1), service.vip);
        lab.allow_refusals(0)?;
        let refused = [Counter::PacketRefusedNoBackend];
        let expect = crate::expect::Expect::dropped(Counter::RefusalLimited).counts(&refused);
        lab.expect(Hook::FromPod, packet, expect)?;
        assert_eq!(lab.tables.flows_used, FlowsUsed::NO);
    }
    Ok(())
}

/// Long enough for the time to be written again.
const A_WHILE: Duration = Duration::from_nanos(Flow::TOUCH_NS);

fn times(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let talk = talk(lab, protocol)?;
        lab.established(&talk)?;
        for side in Side::BOTH {
            // Right away: not written. After a while: written.
            lab.carries(&talk, side, &talk.later(side))?;
            lab.age_flow(&talk.key(side), A_WHILE)?;
            lab.carries(&talk, side, &talk.later(side))?;
            lab.carries(&talk, side, &talk.later(side))?;
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

fn made_anew(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        for side in Side::BOTH {
            let talk = talk(lab, protocol)?;
            lab.established(&talk)?;
            lab.evict(&talk.key(other(side)))?;
            lab.age_flow(&talk.key(side), A_WHILE)?;
            let packet = talk.later(side);
            let flags = packet.flags();
            let expect = talk.outcome(side, &packet).writes(move |tables| {
                talk.passes(tables, side, flags);
                talk.is_made(tables, other(side));
            });
            lab.expect(talk.hook(side), packet, expect)?;
            for side in Side::BOTH {
                lab.carries(&talk, side, &talk.later(side))?;
            }
        }
    }
    Ok(())
}

fn client_again(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let talk = talk(lab, protocol)?;
        lab.established(&talk)?;
        lab.evict(&talk.key(Side::Client))?;
        lab.opens(&talk, &talk.later(Side::Client))?;
        lab.carries(&talk, Side::Backend, &talk.later(Side::Backend))?;
    }
    Ok(())
}

fn both_gone(lab: &mut Lab) -> anyhow::Result<()> {
    for protocol in Protocol::ALL {
        let talk = talk(lab, protocol)?;
        lab.established(&talk)?;
        lab.evict_flows()?;
        lab.ignores(Hook::ToPod, talk.later(Side::Backend))?;
        lab.opens(&talk, &talk.later(Side::Client))?;
        lab.carries(&talk, Side::Backend, &talk.later(Side::Backend))?;
    }
    Ok(())
}
