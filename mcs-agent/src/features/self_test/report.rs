//! The result of a verification of the socket programs, in the status report.

use std::net::SocketAddr;

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
    /// A backend with the address of a Service, if a program of others runs before ours.
    #[serde(default)]
    pub cluster_ip: Option<SocketAddr>,
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

    /// Why connections to a backend may time out: a program of others that translates Services does not see the backend.
    pub fn untranslated(&self) -> Option<String> {
        let (backend, first) = self.cluster_ip.zip(self.coverage.translates_first.as_ref())?;
        Some(format!(
            "the backend {backend} has the address of a Service, and {first} runs before our programs: if it translates Services, in \
             the place of kube-proxy, connections to such backends time out. From Linux 6.17 on `mcs-agent cleanup` and a start of \
             the agent put ours first; else let exports have pod addresses"
        ))
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

    #[test]
    fn a_service_as_a_backend_needs_ours_first() {
        let mut report = AttachmentReport {
            cluster_ip: Some("10.96.0.9:80".parse().unwrap()),
            ..AttachmentReport::default()
        };
        assert_eq!(report.untranslated(), None);
        report.coverage.translates_first = Some("program 7 (connect4, /)".to_owned());
        let said = report.untranslated().unwrap();
        assert!(said.contains("10.96.0.9:80") && said.contains("program 7"), "{said}");
        assert_eq!(report.failings(), Vec::<String>::new());
    }
}
