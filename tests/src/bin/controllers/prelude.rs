//! What the cases of this suite use.

pub(crate) use mcs_tests::{
    api_server::{Api, ApiServer, ControlPlane, Process, documents, namespace, namespaced, rights},
    cluster::Programs,
    prelude::*,
};

pub(crate) use crate::{
    cluster::Cluster,
    service::{NAME, Pods},
    stage::{Kind, Stage},
    world::World,
};
