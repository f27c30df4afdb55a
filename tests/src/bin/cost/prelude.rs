//! What the cases of this suite use.

pub(crate) use mcs_agent::core::model::Capacity;
pub(crate) use mcs_tests::interpreter::Object;
pub(crate) use mcs_tests::prelude::*;

pub(crate) use crate::{
    figures::{Figures, MissFigure},
    input::Input,
};
