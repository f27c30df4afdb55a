//! What the cases of this suite use.

pub(crate) use mcs_tests::prelude::*;
pub(crate) use mcs_tests::{
    api_server::{Api, documents, rights::role_and_binding},
    cluster::cluster_property,
    site::{Watcher, rejections},
    traffic,
};

pub(crate) use crate::{
    deployment::helm,
    swing::Swing,
    world::{World, pod_address, pod_addresses},
};

/// An agent that follows an API server.
pub(crate) type Site = mcs_tests::site::Site<()>;
