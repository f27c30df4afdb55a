//! The results of a run: tables, plots, JSON and targets.

pub(crate) mod json;
pub(crate) mod plot;
pub(crate) mod table;
pub(crate) mod targets;
