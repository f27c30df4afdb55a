//! The entry points of the eBPF programs.
//!
//! connect and sendmsg programs return 1 to let the system call go on and 0 to fail it. recvmsg and
//! getpeername programs must return 1, and so does `sock_release` (kernel/bpf/verifier.c, `check_return_code`).
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]
#![expect(unsafe_code, reason = "the kernel's helpers, its context structs and values of maps")]

#[cfg(not(target_arch = "bpf"))]
compile_error!("mcs-ebpf is built for BPF alone: run `cargo xtask build`");

mod affinity;
mod counters;
mod features;
mod maps;
mod packet;
mod per_cpu;
mod socket;

use aya_ebpf::{
    macros::{cgroup_sock, cgroup_sock_addr, classifier},
    programs::{SockAddrContext, SockContext, TcContext},
};

use crate::{
    packet::{
        frame::{Ethernet, RawIp},
        from_pod, to_pod, uplink,
    },
    socket::{
        connect,
        context::{Hook4, Hook6, SocketContext},
        getpeername, recvmsg, release, sendmsg,
    },
};

/// Replaces a VIP by a backend in an IPv4 connect.
#[cgroup_sock_addr(connect4)]
fn connect4(ctx: SockAddrContext) -> i32 {
    connect::connect(&SocketContext::<Hook4>::new(ctx))
}

/// Replaces a VIP by a backend in an IPv6 connect, also to an IPv4-mapped address.
#[cgroup_sock_addr(connect6)]
fn connect6(ctx: SockAddrContext) -> i32 {
    connect::connect(&SocketContext::<Hook6>::new(ctx))
}

/// Replaces a VIP by a backend in an IPv4 send, also of an IPv6 socket.
#[cgroup_sock_addr(sendmsg4)]
fn sendmsg4(ctx: SockAddrContext) -> i32 {
    sendmsg::sendmsg(&SocketContext::<Hook4>::new(ctx))
}

/// Replaces a VIP by a backend in an IPv6 send.
#[cgroup_sock_addr(sendmsg6)]
fn sendmsg6(ctx: SockAddrContext) -> i32 {
    sendmsg::sendmsg(&SocketContext::<Hook6>::new(ctx))
}

/// Replaces a backend by its VIP in the source that an IPv4 receive reports.
#[cgroup_sock_addr(recvmsg4)]
fn recvmsg4(ctx: SockAddrContext) -> i32 {
    recvmsg::recvmsg(&SocketContext::<Hook4>::new(ctx))
}

/// Replaces a backend by its VIP in the source that an IPv6 receive reports, also of IPv4 datagrams.
#[cgroup_sock_addr(recvmsg6)]
fn recvmsg6(ctx: SockAddrContext) -> i32 {
    recvmsg::recvmsg(&SocketContext::<Hook6>::new(ctx))
}

/// Replaces a backend by its VIP in the peer name of an IPv4 socket.
#[cgroup_sock_addr(getpeername4)]
fn getpeername4(ctx: SockAddrContext) -> i32 {
    getpeername::getpeername(&SocketContext::<Hook4>::new(ctx))
}

/// Replaces a backend by its VIP in the peer name of an IPv6 socket.
#[cgroup_sock_addr(getpeername6)]
fn getpeername6(ctx: SockAddrContext) -> i32 {
    getpeername::getpeername(&SocketContext::<Hook6>::new(ctx))
}

/// Frees the slot and the state of a closed socket.
#[cgroup_sock(sock_release)]
#[expect(clippy::needless_pass_by_value, reason = "aya's macro passes the context by value")]
fn sock_release(ctx: SockContext) -> i32 {
    release::release(&ctx)
}

/// Translates packets that a pod sends to a VIP: tc ingress of the host side of its interface.
#[classifier]
#[inline(always)]
fn from_pod(ctx: TcContext) -> i32 {
    from_pod::from_pod::<Ethernet>(ctx)
}

/// Translates replies to a pod: tc egress of the host side of its interface.
#[classifier]
#[inline(always)]
fn to_pod(ctx: TcContext) -> i32 {
    to_pod::to_pod::<Ethernet>(ctx)
}

/// Drops packets to a VIP that leave the node: tc egress of an uplink.
#[classifier]
#[inline(always)]
fn uplink(ctx: TcContext) -> i32 {
    uplink::uplink::<Ethernet>(ctx)
}

/// `from_pod` for a device without Ethernet headers.
#[classifier]
#[inline(always)]
fn from_pod_bare(ctx: TcContext) -> i32 {
    from_pod::from_pod::<RawIp>(ctx)
}

/// `to_pod` for a device without Ethernet headers.
#[classifier]
#[inline(always)]
fn to_pod_bare(ctx: TcContext) -> i32 {
    to_pod::to_pod::<RawIp>(ctx)
}

/// `uplink` for a device without Ethernet headers.
#[classifier]
#[inline(always)]
fn uplink_bare(ctx: TcContext) -> i32 {
    uplink::uplink::<RawIp>(ctx)
}

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The kernel allows some helpers in GPL-compatible programs only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
