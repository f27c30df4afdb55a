//! The conditions of an endpoint, with defaults.

use crate::model::Endpoint;

/// An endpoint's conditions with kube-proxy's defaults (`endpointslicecache.go`): ready, serving and
/// not terminating.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Conditions {
    pub(super) ready: bool,
    pub(super) serving: bool,
    pub(super) terminating: bool,
}

impl Conditions {
    pub(super) fn of(endpoint: &Endpoint) -> Self {
        Self {
            ready: endpoint.ready.unwrap_or(true),
            serving: endpoint.serving.unwrap_or(true),
            terminating: endpoint.terminating.unwrap_or(false),
        }
    }

    /// Whether it answers its present clients, whether or not new ones get it.
    pub(super) fn answers(self) -> bool {
        self.ready || self.serving
    }

    /// Whether it terminates and still answers. Such endpoints serve if none is ready (KEP-1669).
    pub(super) fn draining(self) -> bool {
        self.serving && self.terminating
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture::endpoint;

    #[test]
    fn fills_in_what_is_unset() {
        let yes = Some(true);
        let no = Some(false);
        for (ready, serving, terminating, expected_ready, expected_draining) in [
            (None, None, None, true, false),
            (yes, yes, no, true, false),
            (no, None, None, false, false),
            (no, yes, no, false, false),
            (None, None, yes, true, true),
            (no, None, yes, false, true),
            (no, yes, yes, false, true),
            (no, no, yes, false, false),
            (no, no, None, false, false),
        ] {
            let endpoint = endpoint("10.1.0.1").conditions(ready, serving, terminating);
            let conditions = Conditions::of(&endpoint);
            assert_eq!(
                (conditions.ready, conditions.draining()),
                (expected_ready, expected_draining),
                "{ready:?} {serving:?} {terminating:?}"
            );
            assert_eq!(conditions.answers(), ready != no || serving != no);
        }
    }
}
