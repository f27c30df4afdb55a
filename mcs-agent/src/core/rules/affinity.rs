//! `sessionAffinity` of an import.

use super::problem::ObjectProblem;
use crate::core::model::{RejectionReason, ServiceImport};

/// Seconds, if the import sets no timeout (`DefaultClientIPServiceAffinitySeconds` of the API).
const DEFAULT_SECONDS: i32 = 10_800;
/// One day (`MaxClientIPServiceAffinitySeconds` of the API).
const MAX_SECONDS: u32 = 86_400;

/// Seconds of ClientIP affinity, 1 to 86400. `None`: no affinity.
pub(super) fn seconds(import: &ServiceImport) -> Result<Option<u32>, ObjectProblem> {
    match import.session_affinity.as_deref() {
        None | Some("" | "None") => return Ok(None),
        Some("ClientIP") => {}
        Some(other) => {
            let what = format!("sessionAffinity {other:?} is unknown");
            return Err(ObjectProblem::advised(RejectionReason::AffinityInvalid, what));
        }
    }
    let written = import.affinity_timeout_seconds.unwrap_or(DEFAULT_SECONDS);
    match u32::try_from(written) {
        Ok(seconds @ 1..=MAX_SECONDS) => Ok(Some(seconds)),
        _ => Err(ObjectProblem::new(
            RejectionReason::AffinityInvalid,
            format!(
                "sessionAffinityConfig.clientIP.timeoutSeconds {written} is out of range; use 1 to \
                 {MAX_SECONDS}"
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::model::fixture::import;

    #[test]
    fn reads_affinity_and_timeout() {
        for (affinity, timeout, expected) in [
            (None, None, Ok(None)),
            (Some(""), None, Ok(None)),
            (Some("None"), Some(10), Ok(None)),
            (Some("None"), Some(-1), Ok(None)),
            (Some("ClientIP"), None, Ok(Some(10_800))),
            (Some("ClientIP"), Some(1), Ok(Some(1))),
            (Some("ClientIP"), Some(86_400), Ok(Some(86_400))),
            (Some("ClientIP"), Some(0), Err("timeoutSeconds 0 ")),
            (Some("ClientIP"), Some(-5), Err("timeoutSeconds -5 ")),
            (Some("ClientIP"), Some(86_401), Err("timeoutSeconds 86401 ")),
            (Some("clientip"), None, Err("sessionAffinity \"clientip\"")),
        ] {
            let import = ServiceImport {
                session_affinity: affinity.map(str::to_owned),
                affinity_timeout_seconds: timeout,
                ..import("shop/web")
            };
            match (seconds(&import), expected) {
                (Ok(seconds), Ok(expected)) => assert_eq!(seconds, expected, "{affinity:?}"),
                (Err(problem), Err(part)) => {
                    assert_eq!(problem.reason, RejectionReason::AffinityInvalid);
                    assert!(problem.message.contains(part), "{}", problem.message);
                }
                (got, _) => panic!("{affinity:?} {timeout:?}: {got:?}"),
            }
        }
    }
}
