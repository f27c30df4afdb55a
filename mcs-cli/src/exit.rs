//! Exit codes beyond 0, 1 and 2.

/// A cluster or a kubeconfig did not answer, and no problem is known.
pub(crate) const UNASKED: u8 = 3;
