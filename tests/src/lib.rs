//! Building blocks of the suites and the demo: network namespaces, cgroups and bpffs directories, agents with
//! their manifests, servers that say who they are, and a runner for cases.
//!
//! All but the scenarios use the real kernel as root, and change nothing that they have not created.

pub mod agent;
#[cfg(all(feature = "clusters", feature = "suites"))]
pub mod api_server;
#[cfg(feature = "suites")]
pub mod bpf;
pub mod bpffs;
#[cfg(feature = "suites")]
pub mod browser;
#[cfg(feature = "suites")]
pub mod capture;
pub mod cgroup;
pub mod charts;
pub mod client;
#[cfg(feature = "clusters")]
pub mod cluster;
#[cfg(feature = "clusters")]
pub mod dashboard;
#[cfg(feature = "suites")]
pub mod fuzz;
#[cfg(feature = "suites")]
pub mod interpreter;
#[cfg(all(feature = "clusters", feature = "suites"))]
pub mod kube_proxy;
pub mod manifests;
#[cfg(all(feature = "clusters", feature = "suites"))]
pub mod member;
pub mod netns;
#[cfg(feature = "suites")]
pub mod objects;
#[cfg(feature = "clusters")]
pub mod oci;
pub mod process;
pub mod procfs;
pub mod run;
#[cfg(feature = "suites")]
pub mod scenario;
pub mod server;
pub mod site;
#[cfg(feature = "suites")]
pub mod stopped;
pub mod subjects;
#[cfg(feature = "suites")]
pub mod suite;
#[cfg(feature = "suites")]
pub mod target;
pub mod topology;
pub mod traffic;
#[cfg(feature = "suites")]
pub mod virtio;
pub mod wait;
#[cfg(feature = "suites")]
pub mod wire;
#[cfg(feature = "suites")]
pub mod writer;
