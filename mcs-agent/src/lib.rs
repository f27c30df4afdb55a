//! mcs-agent: a kube-proxy for the ClusterSetIPs of the Multi-Cluster Services API (KEP-1645).
//!
//! Data flows one way:
//!
//! ```text
//!  manifests directory, API server
//!       |  EventBatch of ObjectEvents                  core/source/   Kubernetes types end here
//!       v
//!  ObjectStore                                         core/store/
//!       |  Snapshot, DirtyObjects
//!       v
//!  Rules                                               core/rules/    pure (+ Rejections)
//!       |  DesiredState, DesiredChanges
//!       v
//!  plan                                                core/tables/
//!       |  Plan: ordered steps, plain data
//!       v
//!  apply(Plan, &mut impl Maps)  -->  pinned maps  -->  mcs-ebpf
//! ```

pub mod core;
pub mod features;
