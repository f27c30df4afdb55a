//! What the suites in `bin/` stand on: [`suite`] runs cases, [`scenario`] plays situations that are text, and [`lab`] holds the
//! machinery, which a case names without `lab`.

#[cfg(feature = "clustersets")]
pub mod clustersets;
pub mod lab;
#[cfg(feature = "suites")]
pub mod prelude;
#[cfg(feature = "suites")]
pub mod scenario;
#[cfg(any(feature = "suites", feature = "clustersets"))]
mod script;
#[cfg(any(feature = "suites", feature = "clustersets"))]
pub mod suite;

pub use lab::*;
