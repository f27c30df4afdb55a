//! The result of a verification of the socket programs, in the status report.

use serde::{Deserialize, Serialize};

use super::CgroupCoverage;

/// Whether the socket programs run for every process below their cgroup. The JSON names are stable for users of
/// `status -o json`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AttachmentReport {
    /// When the check ended, in seconds since the Unix epoch.
    pub at: u64,
    /// What the kernel lists for each cgroup.
    #[serde(rename = "effect")]
    pub coverage: CgroupCoverage,
    /// Whether the programs refused the connection of the self-test, which nothing else refuses. Absent if there was
    /// no self-test.
    #[serde(rename = "witness")]
    pub self_test: Option<bool>,
    /// Why there was no self-test, or what it saw instead of the refusal.
    #[serde(rename = "witness_says")]
    pub self_test_says: Option<String>,
}

impl AttachmentReport {
    /// Why the programs are not effective.
    pub fn failings(&self) -> Vec<String> {
        let mut failings = Vec::new();
        if self.coverage.without > 0 {
            failings.push(format!(
                "the socket programs do not run in every cgroup: {}",
                self.coverage.without_named.join(", ")
            ));
        }
        if self.self_test == Some(false) {
            failings.push(format!(
                "the socket hooks are attached, but the self-test failed: {}",
                self.self_test_says.as_deref().unwrap_or_default()
            ));
        }
        failings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_without_a_program_and_a_self_test_without_refusal_are_failings() {
        let mut report = AttachmentReport { self_test: Some(true), ..AttachmentReport::default() };
        assert_eq!(report.failings(), Vec::<String>::new());
        report.self_test = None;
        report.self_test_says = Some("read-only file system".to_owned());
        assert_eq!(report.failings(), Vec::<String>::new());
        report.self_test = Some(false);
        report.coverage.without = 1;
        report.coverage.without_named = vec!["connect4 in /a".to_owned()];
        let said = report.failings().join("; ");
        assert!(said.contains("connect4 in /a") && said.contains("read-only"), "{said}");
    }
}
