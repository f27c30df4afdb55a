//! What the cases of this suite use.

pub(crate) use mcs_tests::{
    cluster::{self, Cluster, ClusterSet, Cni, Node, Programs},
    deployed::{Client, Load, Member, PATIENCE, Place, Release, Target, agents},
    prelude::*,
};

pub(crate) use crate::{
    clients, load,
    setting::{Order, Packets, Setting},
    snapshot::Snapshot,
    table::Row,
    wire::Wire,
    world::{Stage, World},
};
