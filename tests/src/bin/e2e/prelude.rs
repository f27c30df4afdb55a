//! What the cases of this suite use.

pub(crate) use mcs_tests::cluster::{self, Node, Programs};
pub(crate) use mcs_tests::prelude::*;

pub(crate) use crate::{
    agents::{self, NAME},
    ask::{self},
    clients::{Client, Load, Place},
    member::{self, Member, NAMESPACE, PATIENCE},
    reach::imported,
    target::{TCP, Target, UDP},
    uninstall,
    world::World,
};
