//! `mcs-agent trace`: what the programs decide, as they decide it. The agent attaches programs that tell it, and hands their ring
//! buffer to the command; this module has what the two share, and the names of what is told.

mod cgroups;
mod channel;
mod filter;
mod names;
mod view;

pub(crate) use self::{
    channel::{Channel, Client, Listener},
    filter::{Filter, Verdict},
    names::Names,
    view::{Told, TraceView, header},
};
