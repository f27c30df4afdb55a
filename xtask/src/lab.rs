//! Verbs of the machinery: real clusters, virtual machines with other kernels, the bench, and the demonstration.

pub(crate) mod bench;
pub(crate) mod clusters;
pub(crate) mod demo;
pub(crate) mod kernels;
pub(crate) mod kind;
