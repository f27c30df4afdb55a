//! Parses files of /proc about processes and descriptors.

use std::{fs, io, time::Duration};

use anyhow::{Context as _, ensure};
use rustix::param::clock_ticks_per_second;

/// The status of a process, as it was at one time (`proc_pid_status(5)`).
#[derive(Debug)]
pub struct Status(String);

impl Status {
    /// Reads the current status of a process.
    pub fn of(pid: u32) -> io::Result<Self> {
        fs::read_to_string(format!("/proc/{pid}/status")).map(Self)
    }

    /// The number of a field; those of memory are in KiB.
    pub fn number(&self, field: &str) -> anyhow::Result<u64> {
        number(&self.0, field).with_context(|| format!("no {field} in a process's status"))
    }
}

/// The number of a field, where each has a line such as `VmRSS:   1234 kB`.
pub fn number(text: &str, field: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    value.split_whitespace().next()?.parse().ok()
}

/// A counter of the thread's network namespace, in `/proc/net/snmp` or `netstat`: a line has the names of a group such as
/// `TcpExt`, and the next one their numbers.
pub fn network_counter(file: &str, group: &str, name: &str) -> anyhow::Result<u64> {
    let text = fs::read_to_string(format!("/proc/thread-self/net/{file}"))?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(group)?.strip_prefix(": "));
    let fields = lines.next().zip(lines.next());
    let mut fields = fields.into_iter().flat_map(|(a, b)| a.split(' ').zip(b.split(' ')));
    let (_, number) = fields
        .find(|field| field.0 == name)
        .with_context(|| format!("the kernel does not count {group} {name}"))?;
    Ok(number.parse()?)
}

/// What the kernel tells of each descriptor of a process (`proc_pid_fdinfo(5)`).
pub fn descriptors(pid: u32) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo"))?;
    // Some are closed meanwhile.
    Ok(entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok()).collect())
}

/// The CPU time of a process and of the children that it has waited for, in steps of a tick (10 ms). An error if the process
/// has ended.
pub fn cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (state, ticks) =
        state_and_ticks(&stat).with_context(|| format!("/proc/{pid}/stat is {stat}"))?;
    // A zombie uses no CPU any more, and would look idle.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "VmPeak:\t  9000 kB\nVmRSS:\t  1234 kB\nThreads:\t5\nName:\tagent\n";
        let cases = [
            ("VmRSS", Some(1234)),
            ("Threads", Some(5)),
            ("Vm", None),
            ("Name", None),
            ("x", None),
        ];
        for (field, expected) in cases {
            assert_eq!(number(text, field), expected, "{field}");
        }
    }

    #[test]
    fn children_count() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 100 0 0 0 11 22 33 44 20 0 1 0 5 6 7";
        assert_eq!(state_and_ticks(stat), Some(("S", 110)));
        assert_eq!(state_and_ticks("7 (a) S 1 7 7"), None);
        assert_eq!(state_and_ticks(""), None);
    }
}
