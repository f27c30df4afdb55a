//! How well the agent does its work: one judgement, which `status`, `/readyz` and the metrics tell.

use std::fmt;

use super::{Report, SocketLb};
use crate::loader::{AttachedHook, LoadError, Pins, TcLink};

/// What a running agent has to have done. Rejected objects are no reason against it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Check {
    /// Every kind has been read completely.
    Sync,
    /// The attached programs are those of this agent.
    Programs,
    /// The socket hooks are attached, as the kernel tells it.
    Hooks,
    /// Devices have the programs that belong on them.
    Devices,
    /// The maps hold all that is wanted.
    Maps,
    /// What is served over HTTP is served where it was asked for.
    Addresses,
}

impl Check {
    /// Every check, in the order in which they are told.
    pub const ALL: [Self; 6] =
        [Self::Sync, Self::Programs, Self::Hooks, Self::Devices, Self::Maps, Self::Addresses];

    /// As `/readyz` and the metrics write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Programs => "programs",
            Self::Hooks => "hooks",
            Self::Devices => "devices",
            Self::Maps => "maps",
            Self::Addresses => "addresses",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is attached, as the kernel tells it.
#[derive(Debug, Default)]
pub struct Attachments {
    /// Every hook of sockets.
    pub hooks: Vec<AttachedHook>,
    /// Every pinned link to a device.
    pub links: Vec<TcLink>,
    /// What of it cannot be read, and why.
    pub problems: Vec<(Check, String)>,
}

impl Attachments {
    /// Asks the kernel: a few system calls for each hook and each device.
    pub fn read(pins: &Pins) -> Self {
        let mut problems = Vec::new();
        let mut note = |check, error: LoadError| {
            problems.push((check, format!("{:#}", anyhow::Error::new(error))));
        };
        let hooks = pins.hooks().map_err(|error| note(Check::Hooks, error)).unwrap_or_default();
        let links =
            pins.tc_links().map_err(|error| note(Check::Devices, error)).unwrap_or_default();
        Self { hooks, links, problems }
    }
}

/// What keeps a running agent from being as it should, each with the check that it fails.
pub fn failings(report: &Report, attachments: &Attachments) -> Vec<(Check, String)> {
    let mut failings = attachments.problems.clone();
    let mut fail = |check, what| failings.push((check, what));
    if !report.synced {
        fail(
            Check::Sync,
            format!(
                "not synced: {} has not been read completely since the agent started; nothing is \
                 removed until it has",
                report.source.name
            ),
        );
    }
    if report.outdated {
        fail(
            Check::Programs,
            "the attached programs are an earlier agent's, whose maps no longer change: they are \
             switched once the source is synced"
                .to_owned(),
        );
    }
    if report.socket_lb != SocketLb::Off {
        for hook in &attachments.hooks {
            if hook.cgroup_id != Some(report.cgroup_id) {
                fail(
                    Check::Hooks,
                    format!(
                        "{} is not attached to {}: the agent attaches it again within seconds",
                        hook.name,
                        report.cgroup_path.display()
                    ),
                );
            }
        }
    }
    for failing in report.tc.failings(&attachments.links) {
        fail(Check::Devices, failing);
    }
    for pending in &report.pending {
        fail(Check::Maps, format!("not in the maps yet: {pending}"));
    }
    for problem in report.listeners.iter().filter_map(|listener| listener.problem.as_ref()) {
        fail(Check::Addresses, problem.clone());
    }
    failings
}
