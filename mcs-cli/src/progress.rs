//! What a long command has done so far, a line for each step.

use mcs_kube::program::print;

/// Says what was done for whom.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn say(who: &str, what: &str) -> anyhow::Result<()> {
    print(&format!("{who}: {what}"))
}
