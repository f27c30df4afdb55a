//! mcs-agent: a kube-proxy for the ClusterSetIPs of the Multi-Cluster Services API (KEP-1645).
//!
//! Data flows one way:
//!
//! ```text
//!  manifests directory, API server
//!       |  EventBatch of ObjectEvents                  source/   Kubernetes types end here
//!       v
//!  ObjectStore                                         store/
//!       |  Snapshot, DirtyObjects
//!       v
//!  Rules                                               desired/  pure (+ Rejections)
//!       |  DesiredState, DesiredChanges
//!       v
//!  plan                                                reconcile/
//!       |  Plan: ordered steps, plain data
//!       v
//!  apply(Plan, &mut impl Maps)  -->  pinned maps  -->  mcs-ebpf
//! ```

pub mod agent;
mod bpf;
pub mod cli;
pub mod dataplane;
pub mod desired;
pub mod devices;
pub mod engine;
mod explain;
pub mod flows;
pub mod loader;
pub mod model;
pub mod netlink;
mod node_cleanup;
pub mod passive;
mod pods;
pub mod reach;
pub mod reconcile;

pub mod source;
pub mod stale;
pub mod store;
mod trace;
pub mod verify;
