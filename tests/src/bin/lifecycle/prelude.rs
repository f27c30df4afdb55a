//! What the cases of this suite use.

pub(crate) use mcs_agent::core::tables::{MapContents, MapReader as _};
pub(crate) use mcs_tests::prelude::*;
pub(crate) use mcs_tests::{
    bpf::{Program, ProgramType, code, instruction},
    target::backends,
};

pub(crate) use crate::{
    growth::{large, wait_for},
    load::Load,
    objects::{Kind, Objects},
    process::Footprint,
    refusal::Refusal,
    restart::found,
    world::{CLIENTS, SETS, World, answers, by, lead},
};
