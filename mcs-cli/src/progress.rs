//! Reports the progress of a long command, a line for each step.

use mcs_kube::program::print;

/// Prints a step and its cluster.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn say(who: &str, what: &str) -> anyhow::Result<()> {
    print(&format!("{who}: {what}"))
}
