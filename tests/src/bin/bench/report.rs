//! What comes of a run.

pub(crate) mod json;
pub(crate) mod table;
