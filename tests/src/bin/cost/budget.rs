//! What the programs may cost at most. `cargo xtask cost --propose` prints rows that fit what they
//! cost now, with a tenth more for other compilers, and a quarter more for other verifiers.

use crate::input::{
    Family::{V4, V6},
    Input::{self, Bare, Frame, FrameAmongFlows, Tcp, TcpToBackend, Udp, UdpToBackend},
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
    size("connect4", 1452, 4815),
    size("connect6", 1476, 5115),
    size("sendmsg4", 2087, 15728),
    size("sendmsg6", 2112, 16375),
    size("recvmsg4", 197, 402),
    size("recvmsg6", 219, 514),
    size("getpeername4", 137, 238),
    size("getpeername6", 150, 282),
    size("from_pod", 8105, 27408),
    size("from_pod_bare", 7557, 34895),
    size("to_pod", 4861, 17482),
    size("to_pod_bare", 4743, 17287),
    size("uplink", 2074, 8577),
    size("uplink_bare", 1963, 10899),
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
pub(crate) const MISSES: [Miss; 28] = [
    miss("connect4", TcpToBackend(V4), 68, 3),
    miss("connect6", TcpToBackend(V6), 81, 3),
    miss("sendmsg4", UdpToBackend(V4), 63, 3),
    miss("sendmsg6", UdpToBackend(V6), 76, 3),
    miss("recvmsg4", UdpToBackend(V4), 58, 3),
    miss("recvmsg6", UdpToBackend(V6), 73, 3),
    miss("getpeername4", TcpToBackend(V4), 55, 3),
    miss("getpeername6", TcpToBackend(V6), 68, 3),
    miss("connect4", Tcp(V4), 44, 1),
    miss("connect6", Tcp(V6), 58, 1),
    miss("sendmsg4", Udp(V4), 41, 1),
    miss("sendmsg6", Udp(V6), 54, 1),
    miss("recvmsg4", Udp(V4), 36, 1),
    miss("recvmsg6", Udp(V6), 49, 1),
    miss("getpeername4", Tcp(V4), 36, 1),
    miss("getpeername6", Tcp(V6), 49, 1),
    miss("from_pod", Frame(V4), 93, 2),
    miss("from_pod", Frame(V6), 102, 2),
    miss("from_pod_bare", Bare(V4), 91, 2),
    miss("from_pod_bare", Bare(V6), 102, 2),
    miss("to_pod", Frame(V4), 16, 1),
    miss("to_pod", FrameAmongFlows(V4), 95, 3),
    miss("to_pod", FrameAmongFlows(V6), 112, 3),
    miss("to_pod_bare", Bare(V4), 16, 1),
    miss("uplink", Frame(V4), 63, 2),
    miss("uplink", Frame(V6), 70, 2),
    miss("uplink_bare", Bare(V4), 63, 2),
    miss("uplink_bare", Bare(V6), 70, 2),
];
