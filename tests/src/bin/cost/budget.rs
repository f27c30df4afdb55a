//! What the programs may cost at most. `cargo xtask cost --propose` prints rows that fit what they
//! cost now, with a tenth more for other compilers, and a quarter more for other verifiers.

use crate::{
    input::{
        Family::{V4, V6},
        Input::{Bare, Closed, Frame, FrameAmongFlows, Tcp, TcpToBackend, Udp, UdpToBackend},
    },
    prelude::*,
};

/// A program.
pub(crate) struct Size {
    pub(crate) program: &'static str,
    /// Instructions that it has, with the functions that it calls.
    pub(crate) instructions: u64,
    /// Instructions that the verifier of this machine's kernel looks at, on all paths.
    pub(crate) verified: u64,
}

/// Instructions that the verifier of any kernel may look at: a tenth of the million that the kernel allows. Ubuntu 22.04's
/// first 5.15 looks at the most.
pub(crate) const VERIFIED_ON_ANY_KERNEL: u32 = 100_000;

const fn size(program: &'static str, instructions: u64, verified: u64) -> Size {
    Size { program, instructions, verified }
}

/// Every program.
pub(crate) const SIZES: [Size; 18] = [
    size("sock_release", 224, 474),
    size("tcp_retransmit_skb", 196, 446),
    size("tcp_receive_reset", 196, 446),
    size("inet_sock_set_state", 88, 115),
    size("connect4", 2329, 5544),
    size("connect6", 2391, 5925),
    size("sendmsg4", 2840, 18500),
    size("sendmsg6", 2840, 19700),
    size("recvmsg4", 282, 684),
    size("recvmsg6", 317, 754),
    size("getpeername4", 227, 367),
    size("getpeername6", 250, 403),
    size("from_pod", 9040, 29107),
    size("from_pod_bare", 8480, 35913),
    size("to_pod", 5412, 19764),
    size("to_pod_bare", 5289, 30000),
    size("uplink", 2310, 9514),
    size("uplink_bare", 2199, 13368),
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
pub(crate) const MISSES: [Miss; 30] = [
    miss("sock_release", Closed(V4), 62, 1),
    miss("sock_release", Closed(V6), 58, 1),
    miss("connect4", TcpToBackend(V4), 106, 5),
    miss("connect6", TcpToBackend(V6), 121, 5),
    miss("sendmsg4", UdpToBackend(V4), 63, 3),
    miss("sendmsg6", UdpToBackend(V6), 77, 3),
    miss("recvmsg4", UdpToBackend(V4), 64, 3),
    miss("recvmsg6", UdpToBackend(V6), 80, 3),
    miss("getpeername4", TcpToBackend(V4), 99, 5),
    miss("getpeername6", TcpToBackend(V6), 113, 5),
    miss("connect4", Tcp(V4), 42, 1),
    miss("connect6", Tcp(V6), 57, 1),
    miss("sendmsg4", Udp(V4), 41, 1),
    miss("sendmsg6", Udp(V6), 55, 1),
    miss("recvmsg4", Udp(V4), 36, 1),
    miss("recvmsg6", Udp(V6), 49, 1),
    miss("getpeername4", Tcp(V4), 36, 1),
    miss("getpeername6", Tcp(V6), 48, 1),
    miss("from_pod", Frame(V4), 54, 1),
    miss("from_pod", Frame(V6), 69, 1),
    miss("from_pod_bare", Bare(V4), 54, 1),
    miss("from_pod_bare", Bare(V6), 69, 1),
    miss("to_pod", Frame(V4), 16, 1),
    miss("to_pod", FrameAmongFlows(V4), 70, 2),
    miss("to_pod", FrameAmongFlows(V6), 87, 2),
    miss("to_pod_bare", Bare(V4), 16, 1),
    miss("uplink", Frame(V4), 53, 1),
    miss("uplink", Frame(V6), 70, 1),
    miss("uplink_bare", Bare(V4), 53, 1),
    miss("uplink_bare", Bare(V6), 70, 1),
];
