//! The CPU time that a daemon uses.

use std::{fs, thread, time::Duration};

use anyhow::{Context as _, bail, ensure};
use rustix::param::clock_ticks_per_second;

use crate::lane::Lane;

/// Looks while a daemon may be busy, how far they are apart, and how much it may use in between.
const LOOKS: u32 = 1200;
const APART: Duration = Duration::from_millis(500);
const CALM: Duration = Duration::from_millis(20);

/// The CPU time of a process and of those that it started and waited for, in steps of a tick (10 ms). An error
/// if it has ended.
pub(crate) fn cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (state, ticks) =
        state_and_ticks(&stat).with_context(|| format!("/proc/{pid}/stat is {stat}"))?;
    // One that nobody has waited for does nothing for ever.
    ensure!(state != "Z", "process {pid} has ended");
    Ok(Duration::from_secs(ticks) / u32::try_from(clock_ticks_per_second())?)
}

/// The state in `/proc/PID/stat`, and the sum of `utime`, `stime`, `cutime` and `cstime`, as in
/// `proc_pid_stat(5)`.
fn state_and_ticks(stat: &str) -> Option<(&str, u64)> {
    /// Fields between the state and `utime`.
    const BETWEEN: usize = 10;

    // The name before it may hold spaces.
    let (_, rest) = stat.rsplit_once(") ")?;
    let (state, rest) = rest.split_once(' ')?;
    let fields: Vec<_> = rest.split(' ').skip(BETWEEN).take(4).collect();
    if fields.len() < 4 {
        return None;
    }
    let ticks = fields.into_iter().map(|field| field.parse::<u64>().ok()).sum::<Option<_>>()?;
    Some((state, ticks))
}

/// Does `work`, and returns with what comes of it the CPU time that a lane's daemon takes meanwhile and
/// until it has nothing more to do.
pub(crate) fn cpu_time_for<T>(
    lane: &Lane,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Duration)> {
    let pid = lane.daemon().context("no daemon")?;
    let before = cpu_time(pid)?;
    let done = work()?;
    wait_until_calm(lane)?;
    Ok((done, cpu_time(pid)?.saturating_sub(before)))
}

fn has_children(pid: u32) -> anyhow::Result<bool> {
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
pub(crate) fn wait_until_calm(lane: &Lane) -> anyhow::Result<()> {
    let Some(pid) = lane.daemon() else { return Ok(()) };
    let mut before = cpu_time(pid)?;
    for _ in 0..LOOKS {
        thread::sleep(APART);
        let now = cpu_time(pid)?;
        // The time of those that it waits for is not its own yet.
        if now.saturating_sub(before) <= CALM && !has_children(pid)? {
            return Ok(());
        }
        before = now;
    }
    bail!("the daemon of {} is always busy", lane.contender)
}

/// Waits until a process that has work that never ends has not much to do for a while. It is no error
/// if it always has.
pub(crate) fn wait_until_settled(pid: u32) -> anyhow::Result<()> {
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
    fn a_process_that_has_ended_is_not_calm() -> anyhow::Result<()> {
        let mut child = Command::new("true").spawn()?;
        let ended = wait::until("it to end", || match cpu_time(child.id()) {
            Ok(_) => bail!("it runs"),
            Err(error) => Ok(error.to_string()),
        });
        child.wait()?;
        assert!(ended?.ends_with("has ended"));
        Ok(())
    }

    #[test]
    fn children_count() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 100 0 0 0 11 22 33 44 20 0 1 0 5 6 7";
        assert_eq!(state_and_ticks(stat), Some(("S", 110)));
        assert_eq!(state_and_ticks("7 (a) S 1 7 7"), None);
        assert_eq!(state_and_ticks(""), None);
    }
}
