//! What the programs may cost at most. `cargo xtask cost --propose` prints rows that fit what they
//! cost now, with a tenth more for other compilers, and a quarter more for other verifiers.

use crate::input::{
    Family::{V4, V6},
    Input::{self, Bare, Frame, FrameAmongFlows, Tcp, Udp},
};

/// A program.
pub(crate) struct Size {
    pub(crate) program: &'static str,
    /// Instructions that it has, with the functions that it calls.
    pub(crate) instructions: u64,
    /// Instructions that the verifier looks at, on all paths. The kernel allows a million.
    pub(crate) verified: u64,
}

const fn size(program: &'static str, instructions: u64, verified: u64) -> Size {
    Size { program, instructions, verified }
}

/// Every program.
pub(crate) const SIZES: [Size; 14] = [
    size("connect4", 1, 1),
    size("connect6", 1, 1),
    size("sendmsg4", 1, 1),
    size("sendmsg6", 1, 1),
    size("recvmsg4", 1, 1),
    size("recvmsg6", 1, 1),
    size("getpeername4", 1, 1),
    size("getpeername6", 1, 1),
    size("from_pod", 1, 1),
    size("from_pod_bare", 1, 1),
    size("to_pod", 1, 1),
    size("to_pod_bare", 1, 1),
    size("uplink", 1, 1),
    size("uplink_bare", 1, 1),
];

/// A run of a program that has nothing to do: for a socket that never used a VIP, or for a packet
/// to an address that is none.
pub(crate) struct Miss {
    pub(crate) program: &'static str,
    pub(crate) input: Input,
    /// Instructions executed.
    pub(crate) executed: u64,
    /// Helpers called.
    pub(crate) calls: u64,
}

const fn miss(program: &'static str, input: Input, executed: u64, calls: u64) -> Miss {
    Miss { program, input, executed, calls }
}

/// What those pay who use no VIP.
pub(crate) const MISSES: [Miss; 20] = [
    miss("connect4", Tcp(V4), 1, 1),
    miss("connect6", Tcp(V6), 1, 1),
    miss("sendmsg4", Udp(V4), 1, 1),
    miss("sendmsg6", Udp(V6), 1, 1),
    miss("recvmsg4", Udp(V4), 1, 1),
    miss("recvmsg6", Udp(V6), 1, 1),
    miss("getpeername4", Tcp(V4), 1, 1),
    miss("getpeername6", Tcp(V6), 1, 1),
    miss("from_pod", Frame(V4), 1, 1),
    miss("from_pod", Frame(V6), 1, 1),
    miss("from_pod_bare", Bare(V4), 1, 1),
    miss("from_pod_bare", Bare(V6), 1, 1),
    miss("to_pod", Frame(V4), 1, 1),
    miss("to_pod", FrameAmongFlows(V4), 1, 1),
    miss("to_pod", FrameAmongFlows(V6), 1, 1),
    miss("to_pod_bare", Bare(V4), 1, 1),
    miss("uplink", Frame(V4), 1, 1),
    miss("uplink", Frame(V6), 1, 1),
    miss("uplink_bare", Bare(V4), 1, 1),
    miss("uplink_bare", Bare(V6), 1, 1),
];
