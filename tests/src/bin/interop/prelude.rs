//! What the cases of this suite use.

pub(crate) use mcs_tests::prelude::*;
