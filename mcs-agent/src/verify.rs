//! Verifies that the attached socket programs run. The kernel lists the programs of each cgroup, and a process in a
//! separate cgroup (the self-test) checks that they run for it.
//!
//! The [`loader`](crate::loader) checks what is attached, and where.

mod cgroups;
mod report;
mod self_test;
mod verifier;

pub use cgroups::{CgroupCoverage, CgroupWalk};
pub use report::AttachmentReport;
pub use self_test::{
    COMMAND as SELF_TEST, SelfTestArgs, remove_cgroups as remove_self_test_cgroups,
    run as run_self_test,
};

pub(crate) use verifier::{SocketHooks, Verifier};
