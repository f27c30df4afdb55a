//! Connected sockets whose backend no longer serves. The kernel would go on sending their data there, since it runs no
//! hook for them. So the agent destroys these sockets: sockets of UDP by default, whose owners would not notice otherwise,
//! and sockets of TCP by choice, which would end by a timeout. The next recv(2) or `SO_ERROR` says `ECONNABORTED`. A UDP
//! socket has no peer any more: each send(2) says `EDESTADDRREQ`.
//!
//! The agent destroys a socket only if the programs have listed its connection, by its cookie, as one to a VIP
//! that was given this backend, and if the kernel shows a socket of that cookie, in that network namespace,
//! with that backend as its peer.

mod lost_socket_slots;
mod pass;
mod report;
mod select;
mod task;
mod thread;

use std::future::ready;

use clap::{ArgMatches, Args, Command, FromArgMatches as _, ValueEnum};

pub use self::{
    lost_socket_slots::LostSocketSlots,
    pass::{StalePass, Unmatched, destroy},
    report::StaleReport,
    task::{StaleEvent, StaleSockets},
    thread::{Obstacle, probe},
};
use crate::core::{
    engine::RoundSummary,
    feature::{Act, Core, Definition, Feature, Follow, Sections, Wait},
    model::Protocol,
};

/// Stale sockets in the list of features.
pub const FEATURE: Definition = Definition {
    flags,
    start,
    parts: |all| [UDP, TCP].iter().try_for_each(|name| all.expect::<StaleReport>(name)),
    lines: report::lines,
    metrics: report::metrics,
    ..Definition::named("stale_sockets")
};

/// Its parts of the report.
const UDP: &str = "stale_udp";
const TCP: &str = "stale_tcp";

#[derive(Debug, Args)]
struct StaleArgs {
    /// What happens to UDP sockets that are connected to a removed backend
    #[arg(long, env = "MCS_STALE_UDP", value_name = "WHAT", default_value = "destroy")]
    stale_udp: StaleArg,

    /// What happens to TCP sockets that are connected to a removed backend
    #[arg(long, env = "MCS_STALE_TCP", value_name = "WHAT", default_value = "leave")]
    stale_tcp: StaleArg,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum StaleArg {
    /// Close them: recv(2) says ECONNABORTED, and send(2) of UDP EDESTADDRREQ. Needs `CAP_SYS_ADMIN`, and the node's network
    /// namespaces in /run/netns or its processes in /proc
    Destroy,
    /// Leave them: they keep sending to it, TCP until a timeout
    Leave,
}

fn flags(command: Command) -> Command {
    StaleArgs::augment_args(command)
}

fn start(matches: &ArgMatches, core: &mut Core) -> anyhow::Result<Option<Box<dyn Feature>>> {
    let args = StaleArgs::from_arg_matches(matches)?;
    let state = core.installed.options.pins.state();
    let of = |protocol, arg| StaleSockets::new(protocol, state.clone(), arg == StaleArg::Destroy);
    core.engine.configure(|node| node.stale_tcp = args.stale_tcp == StaleArg::Destroy);
    Ok(Some(Box::new(Stale {
        udp: of(Protocol::Udp, args.stale_udp),
        tcp: of(Protocol::Tcp, args.stale_tcp),
        lost_slots: LostSocketSlots::new(state.clone()),
        event: None,
    })))
}

struct Stale {
    udp: StaleSockets,
    tcp: StaleSockets,
    lost_slots: LostSocketSlots,
    event: Option<(Protocol, StaleEvent)>,
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
        sections.set(UDP, self.udp.report());
        sections.set(TCP, self.tcp.report());
    }
}
