//! Verifies that the attached socket programs run. The kernel lists the programs of each cgroup, and a process in a
//! separate cgroup (the self-test) checks that they run for it.
//!
//! The [`loader`](crate::core::kernel::loader) checks what is attached, and where.

mod args;
mod cgroups;
mod output;
mod process;
mod report;
mod verifier;

use clap::{Args as _, Command, FromArgMatches as _};

use crate::core::feature::{Definition, Verb};
pub use cgroups::{CgroupCoverage, CgroupWalk};
use process::{COMMAND, SelfTestArgs, run as run_self_test};
pub use report::AttachmentReport;
pub(crate) use verifier::Verifier;

/// The verification in the list of features.
pub const FEATURE: Definition = Definition {
    flags: args::flags,
    start: args::start,
    parts: |all| all.expect::<Option<AttachmentReport>>(SECTION),
    lines: output::lines,
    failings: output::failings,
    metrics: output::metrics,
    clean: |report| process::remove_left(&report.cgroup_path),
    verbs: &[Verb {
        command: || SelfTestArgs::augment_args(Command::new(COMMAND)).hide(true),
        run: |_, matches| run_self_test(&SelfTestArgs::from_arg_matches(matches)?),
    }],
    ..Definition::named("self_test")
};

/// Its part of the report.
const SECTION: &str = "attachment";
