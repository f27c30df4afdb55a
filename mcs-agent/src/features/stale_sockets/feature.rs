//! The feature in the agent: one pass for each protocol, and the search for lost slots.

use std::future::ready;

use super::{LostSocketSlots, StaleEvent, StaleSockets};
use crate::core::{
    engine::RoundSummary,
    feature::{Act, Core, Feature, Follow, Sections, Wait},
    model::Protocol,
};

pub(super) struct Stale {
    pub(super) udp: StaleSockets,
    pub(super) tcp: StaleSockets,
    pub(super) lost_slots: LostSocketSlots,
    pub(super) event: Option<(Protocol, StaleEvent)>,
}

impl Stale {
    const fn of(&mut self, protocol: Protocol) -> &mut StaleSockets {
        match protocol {
            Protocol::Tcp => &mut self.tcp,
            Protocol::Udp => &mut self.udp,
        }
    }
}

impl Feature for Stale {
    fn wait(&mut self) -> Wait<'_> {
        Box::pin(async {
            self.event = tokio::select! {
                event = self.udp.next() => Some((Protocol::Udp, event)),
                event = self.tcp.next() => Some((Protocol::Tcp, event)),
                () = self.lost_slots.next() => None,
            };
        })
    }

    fn act<'a>(&'a mut self, core: &'a mut Core) -> Act<'a> {
        let follow = match self.event.take() {
            Some((_, StaleEvent::ReportChanged)) => Follow::Report,
            // Before the source is synced nobody knows which backends were removed.
            Some((protocol, StaleEvent::Connections(connections))) if core.engine.synced() => {
                let (desired, realized) = (core.engine.desired(), core.engine.realized());
                self.of(protocol).destroy_stale(connections, desired, realized);
                Follow::Nothing
            }
            Some(_) | None => Follow::Nothing,
        };
        Box::pin(ready(follow))
    }

    fn after_round(&mut self, core: &mut Core, round: &RoundSummary) {
        for protocol in [Protocol::Udp, Protocol::Tcp] {
            // After the first sync this covers backends that were removed while no agent ran.
            if round.became_synced || round.may_leave_stale.contains(&protocol) {
                self.of(protocol).removed(core.engine.is_bounded());
            }
        }
    }

    fn report(&self, _: &Core, sections: &mut Sections) {
        sections.set(super::UDP, self.udp.report());
        sections.set(super::TCP, self.tcp.report());
    }
}
