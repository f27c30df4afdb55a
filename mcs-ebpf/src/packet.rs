//! The packet path: tc programs that translate each packet which no socket of this kernel sent.
//!
//! tc runs a program twice for a packet of a pod: as the pod sends it ([`from_pod`]) and as the
//! pod receives it ([`to_pod`]). Most packets take the short way through [`plain`]. [`uplink`] runs as packets
//! leave the node. All headers are read and written with the kernel's helpers: they reach data outside the linear
//! part of the packet, and they keep every kind of checksum right, complete or left to the device.

mod affinity;
mod answer;
pub(crate) mod clock;
mod flows;
mod fragments;
pub(crate) mod frame;
pub(crate) mod from_pod;
pub(crate) mod header;
mod icmp;
pub(crate) mod ip;
mod plain;
mod refuse;
mod rewrite;
pub(crate) mod to_pod;
mod transport;
pub(crate) mod uplink;
mod verdict;
