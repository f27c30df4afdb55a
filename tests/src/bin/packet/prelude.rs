//! What the cases of this suite use.

pub(crate) use mcs_tests::prelude::*;
pub(crate) use std::ops::RangeInclusive;

pub(crate) use etherparse::{EtherType, checksum::Sum16BitWords};
pub(crate) use mcs_common::{
    Address, Affinity, BackendRef, ClientKey, Counter, Flow, FlowFlags, FlowsUsed, Fragment,
    FragmentKey, Seen, Tuple,
};

pub(crate) use crate::{
    both,
    coverage::Coverage,
    each, each_on,
    expect::{Expect, SHOT},
    family::Family,
    fixture::{Fixture, Hook, Pick, SEGMENT, Service},
    kernel::RunResult,
    medium::{Medium, Way},
    of_flow, of_side, one,
    packet::{Body, DEVICE, Extension, Packet, Protocol, built, flag},
    tables::{Tables, Time, Timed},
    test_flow::{Side, TestFlow},
};
