//! The CPU time that a daemon uses.

use mcs_tests::procfs::cpu_time;

use crate::prelude::*;

/// Looks while a daemon may be busy, how far they are apart, and how much it may use in between.
const LOOKS: u32 = 1200;
const APART: Duration = Duration::from_millis(500);
const CALM: Duration = Duration::from_millis(20);

/// Does `work`, and returns with what comes of it the CPU time that a lane's daemon takes meanwhile and
/// until it has nothing more to do.
pub(crate) fn cpu_time_for<T>(
    lane: &Lane,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Duration)> {
    let pid = lane.daemon().context("no daemon")?;
    let before = cpu_time(pid)?;
    let done = work()?;
    wait_until_calm(lane)?;
    Ok((done, cpu_time(pid)?.saturating_sub(before)))
}

fn has_children(pid: u32) -> Result<bool> {
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // It may have ended meanwhile.
        let children = fs::read_to_string(thread?.path().join("children")).unwrap_or_default();
        if !children.trim().is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Waits until a lane's daemon, if there is one, does next to nothing.
pub(crate) fn wait_until_calm(lane: &Lane) -> Result {
    let Some(pid) = lane.daemon() else { return Ok(()) };
    let mut before = cpu_time(pid)?;
    for _ in 0..LOOKS {
        thread::sleep(APART);
        let now = cpu_time(pid)?;
        // The kernel adds the time of a child when its parent has waited for it.
        if now.saturating_sub(before) <= CALM && !has_children(pid)? {
            return Ok(());
        }
        before = now;
    }
    bail!("the daemon of {} is always busy", lane.contender)
}

/// Waits until a process that has work that never ends has not much to do for a while. It is no error
/// if it always has.
pub(crate) fn wait_until_settled(pid: u32) -> Result {
    /// A fifth of a core.
    const NOT_MUCH: Duration = Duration::from_millis(100);
    /// So many looks in a row, and in all.
    const IN_A_ROW: u32 = 4;
    const MOST: u32 = 60;

    let (mut before, mut row) = (cpu_time(pid)?, 0);
    for _ in 0..MOST {
        thread::sleep(APART);
        let now = cpu_time(pid)?;
        row = if now.saturating_sub(before) <= NOT_MUCH { row + 1 } else { 0 };
        if row == IN_A_ROW {
            break;
        }
        before = now;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use mcs_tests::wait;

    use super::*;

    #[test]
    fn a_process_that_has_ended_is_not_calm() -> Result {
        let mut child = Command::new("true").spawn()?;
        let ended = wait::until("it to end", || match cpu_time(child.id()) {
            Ok(_) => bail!("it runs"),
            Err(error) => Ok(error.to_string()),
        });
        child.wait()?;
        assert!(ended?.ends_with("has ended"));
        Ok(())
    }
}
