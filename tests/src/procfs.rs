//! Parses files of /proc about processes and descriptors.

use std::{fs, io};

use anyhow::Context as _;

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
}
