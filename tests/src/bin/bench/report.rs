//! What comes of a run.

pub(crate) mod json;
pub(crate) mod plot;
pub(crate) mod table;
pub(crate) mod targets;
