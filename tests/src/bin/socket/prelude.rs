//! What the cases of this suite use.

pub(crate) use mcs_tests::prelude::*;
pub(crate) use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::OwnedFd,
};

pub(crate) use aya::maps::{Map, MapData};
pub(crate) use mcs_tests::{client::disconnect, target::UNKNOWN_PORT};
pub(crate) use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{RecvFlags, SendAncillaryBuffer, SendFlags},
};

pub(crate) use crate::{
    each_family, everywhere,
    world::{POD, PODS, Place, World, backend, backends, nowhere, pod_v4},
};
