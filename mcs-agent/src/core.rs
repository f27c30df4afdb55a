//! What it takes that a client's connect to a ClusterSetIP reaches a usable backend, over restarts, upgrades and growth, and is
//! refused else.

pub mod cli;
pub mod control;
pub mod engine;
pub mod feature;
pub mod kernel;
pub mod model;
pub mod rules;
pub mod source;
pub mod store;
pub mod tables;
