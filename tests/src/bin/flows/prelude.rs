//! What the cases of this suite use.

pub(crate) use mcs_agent::core::kernel::{
    flows::{FlowEntry, FlowPair},
    loader::SOCKET_SLOT_BITS,
};
pub(crate) use mcs_tests::prelude::*;

pub(crate) use crate::{
    World,
    entries::{SECOND, TCP, UDP, flow},
    table::{Maps, add, complete_flows, load, open},
};
