//! Exit codes beyond 0, 1 and 2.

/// A cluster or a kubeconfig could not be asked, and nothing is known to be wrong.
pub(crate) const UNASKED: u8 = 3;
