//! The flags, and the start of the feature.

use clap::{ArgMatches, Args, Command, FromArgMatches as _, ValueEnum};

use super::{LostSocketSlots, StaleSockets, feature::Stale};
use crate::core::{
    feature::{Core, Feature},
    model::Protocol,
};

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

pub(super) fn flags(command: Command) -> Command {
    StaleArgs::augment_args(command)
}

pub(super) fn start(
    matches: &ArgMatches,
    core: &mut Core,
) -> anyhow::Result<Option<Box<dyn Feature>>> {
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
