//! The programs and maps in the kernel, its devices and its flows.

pub mod bpf;
pub mod dataplane;
pub mod devices;
pub mod flows;
pub mod loader;
pub mod netlink;
pub mod pods;
pub mod sockets;
