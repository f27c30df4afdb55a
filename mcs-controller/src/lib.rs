//! mcs-controller: it makes a Service that one cluster exports available in all clusters of a clusterset
//! (KEP-1645).
//!
//! Data flows one way:
//!
//! ```text
//!  ServiceExports, Services, slices of this cluster, and what peers publish
//!       |  Export, SourceSlice
//!       v
//!  resolve: merge, VIPs, slices                        clusterset/  pure
//!       |  Wanted
//!       v
//!  plan: ordered writes, plain data                    plan/        pure
//! ```

pub mod apply;
pub mod cli;
pub mod clusterset;
pub mod controller;
pub mod feed;
pub mod leases;
pub mod mailbox;
pub mod names;
pub mod objects;
pub mod own_cluster;
pub mod peers;
pub mod plan;
pub mod probe;
pub mod reach;
pub mod rights;
pub mod server;
pub mod status;
