//! mcs-controller: it makes a Service that one cluster exports available in all clusters of a clusterset
//! (KEP-1645).
//!
//! `core/` has what it takes to import every service, and names no feature. `features/` has a folder for each thing that the
//! controller could lack, and `features.rs` is their list: without a folder and its lines there, the rest compiles.
//!
//! Data flows one way:
//!
//! ```text
//!  ServiceExports, Services, slices of this cluster, and what peers publish
//!       |  Export, SourceSlice
//!       v
//!  resolve: merge, VIPs, slices                        core/clusterset/  pure
//!       |  Wanted
//!       v
//!  plan: ordered writes, plain data                    core/plan/        pure
//! ```

pub mod core;
pub mod features;
