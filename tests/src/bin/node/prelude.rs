//! What the cases of this suite use.

pub(crate) use mcs_tests::prelude::*;
pub(crate) use mcs_tests::{
    bpf::{
        Order,
        classifier::{Counter, Way},
    },
    capture::Capture,
    topology::{
        backbone::Distance,
        place::Place,
        pod::{Layout, Pod},
    },
};

pub(crate) use crate::{
    attach::{Bench, FIRST, SECOND, UPLINK, can_attach, reaches, under_load},
    each,
    exchange::{ask_until_known, bulk, greeted, greeted_on, pattern},
    world::{FLAGS, Mechanism, World, backends},
};
