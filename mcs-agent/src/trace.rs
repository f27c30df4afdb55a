//! `mcs-agent trace`: what the programs decide, as they decide it. The agent attaches programs that write events, and passes
//! their ring buffer to the command. This module has the code that both share, and the names of the objects in events.

mod cgroups;
mod channel;
mod filter;
mod names;
mod view;

pub(crate) use self::{
    channel::{Channel, Client, Listener},
    filter::{Filter, Verdict},
    names::Names,
    view::{TraceTotals, TraceView, header},
};
