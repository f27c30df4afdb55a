//! What the cases of this suite use.

pub(crate) use crate::{
    http::{self, Answer, HEALTH, METRICS, ask, expect, health, samples, scrape},
    promtool::deploy,
    world::{EMPTY, PODS, WEB, World, another, connect, pod_address, sample, wait_for_sample, web},
};
pub(crate) use mcs_tests::prelude::*;
