//! Whether the attached socket programs run. The kernel says for each cgroup which programs run there, and a process
//! in a cgroup of its own (the self-test) finds out whether they run for it.
//!
//! What is attached, and whether it is still attached where it belongs, the [`loader`](crate::loader) knows.

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
