//! What the cases of this suite use.

pub(crate) use mcs_tests::member::{DerivedService, Place, ProxiedNode};
pub(crate) use mcs_tests::prelude::*;

pub(crate) use crate::{
    conversation::Kind,
    tally::Tally,
    world::{Import, World},
};
