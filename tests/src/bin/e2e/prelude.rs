//! What the cases of this suite use.

pub(crate) use mcs_tests::prelude::*;
pub(crate) use mcs_tests::{
    cluster::{self, Node, Programs},
    deployed::{
        Client, Load, Member, NAMESPACE, PATIENCE, Place, TCP, Target, UDP,
        agents::{self, NAME},
        is_clean,
    },
};

pub(crate) use crate::{
    ask::{self},
    reach::imported,
    world::World,
};
