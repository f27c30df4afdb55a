//! What the cases of this suite use.

pub(crate) use mcs_tests::prelude::*;
pub(crate) use std::net::SocketAddrV4;

pub(crate) use anyhow::anyhow;
pub(crate) use mcs_tests::bpf::AttachType;
pub(crate) use serde::Serialize;

pub(crate) use crate::{
    cases::connect,
    contender::Contender,
    cpu::{self, Cpus},
    daemon,
    figures::{Figure, Figures, Key, Unit},
    lane::{Lane, backends, backends_v6, bystanders, bystanders_v6, pods},
    machine::Machine,
    objects::{ACCEPT, APART, ECHO, HTTP, Port, SINK, Service, UDP_APART, UDP_ECHO, UDP_SINK, WHO},
    plan::Plan,
    probe::Probe,
    progress::Progress,
    session::Session,
    statistics::{Summary, quantile},
    traffic,
    world::World,
};
