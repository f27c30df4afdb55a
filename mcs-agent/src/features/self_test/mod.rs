//! Verifies that the attached socket programs run. The kernel lists the programs of each cgroup, and a process in a
//! separate cgroup (the self-test) checks that they run for it.
//!
//! The [`loader`](crate::core::kernel::loader) checks what is attached, and where.

mod cgroups;
mod output;
mod process;
mod report;
mod verifier;

use clap::{ArgMatches, Args, Command, FromArgMatches as _, ValueEnum};

use self::process::{COMMAND, SelfTestArgs, run as run_self_test};
pub(crate) use self::verifier::Verifier;
pub use self::{
    cgroups::{CgroupCoverage, CgroupWalk},
    report::AttachmentReport,
};
use crate::core::feature::{Core, Definition, Feature, Verb};

/// The verification in the list of features.
pub const FEATURE: Definition = Definition {
    flags,
    start,
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

#[derive(Debug, Args)]
struct VerifierArgs {
    /// What happens to endpoints with the address of a Service where a socket program of others runs before ours
    #[arg(long, env = "MCS_SERVICE_BACKENDS", value_name = "WHAT", default_value = "leave-out")]
    service_backends: ServiceBackends,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ServiceBackends {
    /// They are not used: that program may be what translates Services, as Cilium's, and does not see what ours writes
    LeaveOut,
    /// They are used: kube-proxy or Calico's eBPF dataplane translates their packets
    Use,
}

fn flags(command: Command) -> Command {
    VerifierArgs::augment_args(command)
}

fn start(matches: &ArgMatches, _: &mut Core) -> anyhow::Result<Option<Box<dyn Feature>>> {
    let args = VerifierArgs::from_arg_matches(matches)?;
    Ok(Some(Box::new(Verifier::new(args.service_backends == ServiceBackends::LeaveOut))))
}
