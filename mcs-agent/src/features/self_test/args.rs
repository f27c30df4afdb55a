//! The flag, and the start of the verification.

use clap::{ArgMatches, Args, Command, FromArgMatches as _, ValueEnum};

use super::Verifier;
use crate::core::feature::{Core, Feature};

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

pub(super) fn flags(command: Command) -> Command {
    VerifierArgs::augment_args(command)
}

pub(super) fn start(
    matches: &ArgMatches,
    _: &mut Core,
) -> anyhow::Result<Option<Box<dyn Feature>>> {
    let args = VerifierArgs::from_arg_matches(matches)?;
    Ok(Some(Box::new(Verifier::new(args.service_backends == ServiceBackends::LeaveOut))))
}
