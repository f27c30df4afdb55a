//! What the programs tell of a decision while somebody traces.

use bytemuck::{Pod, Zeroable};

use crate::{BackendRef, Peer};

/// An entry of the ring buffer `trace_events`. The agent loads reader and writer from one build, and pins nothing of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
#[repr(C, align(8))]
pub struct TraceEvent {
    /// When it was, in nanoseconds of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Where the client wants to go.
    pub vip: Peer,
    /// Where it goes instead; zero if it is refused.
    pub backend: Peer,
    /// The source of a packet; zero in the socket path.
    pub client: Peer,
    /// The backend's id and generation; id 0 if the client is refused.
    pub chosen: BackendRef,
    /// The cgroup of the process; 0 in the packet path.
    pub cgroup: u64,
    /// The name of the thread, and zeros.
    pub comm: [u64; 2],
    /// Index into `states`; 0 if none was found.
    pub frontend: u32,
    /// What was decided: a [`Counter`](crate::Counter).
    pub reason: u32,
    /// The process; 0 in the packet path.
    pub process: u32,
    /// An IP protocol number.
    pub protocol: u8,
    /// [`TraceEvent::SOCKET`] or [`TraceEvent::PACKET`].
    pub path: u8,
    /// 1 if session affinity remembered the backend; 0 in the packet path.
    pub by_affinity: u8,
    /// Zero.
    pub pad: u8,
}

const _: () = assert!(size_of::<TraceEvent>() == 128);
crate::pod!(TraceEvent);

impl TraceEvent {
    /// The socket path has decided.
    pub const SOCKET: u8 = 0;
    /// The packet path has decided.
    pub const PACKET: u8 = 1;
    /// The name of the ring buffer.
    pub const MAP: &str = "trace_events";
    /// The name of the per-CPU array with the number of events that found no room.
    pub const LOST: &str = "trace_lost";
}
