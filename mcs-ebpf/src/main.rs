//! The eBPF programs: entry points only.
//!
//! A program of a hook that may refuse returns 1 to go on and 0 to refuse; the others must
//! return 1 (kernel/bpf/verifier.c, `check_return_code`).
#![no_std]
#![no_main]
#![expect(unsafe_code, reason = "the kernel's helpers, its context structs and values of maps")]

#[cfg(not(target_arch = "bpf"))]
compile_error!("mcs-ebpf is built for BPF alone: run `cargo xtask build`");

mod affinity;
mod connect;
mod context;
mod counters;
mod destination;
mod maps;
mod packet;
mod reverse;
mod sendmsg;
mod sockets;

use aya_ebpf::{
    macros::{cgroup_sock_addr, classifier},
    programs::{SockAddrContext, TcContext},
};

use crate::{
    context::{Ctx, V4, V6},
    packet::frame::{Bare, Ethernet},
};

/// Rewrites the destination of an IPv4 connect.
#[cgroup_sock_addr(connect4)]
fn connect4(ctx: SockAddrContext) -> i32 {
    connect::connect(&Ctx::<V4>::new(ctx))
}

/// Rewrites the destination of an IPv6 connect, IPv4-mapped ones included.
#[cgroup_sock_addr(connect6)]
fn connect6(ctx: SockAddrContext) -> i32 {
    connect::connect(&Ctx::<V6>::new(ctx))
}

/// Rewrites the destination of a datagram; IPv4 through an IPv6 socket comes here too.
#[cgroup_sock_addr(sendmsg4)]
fn sendmsg4(ctx: SockAddrContext) -> i32 {
    sendmsg::sendmsg(&Ctx::<V4>::new(ctx))
}

/// Rewrites the destination of a datagram.
#[cgroup_sock_addr(sendmsg6)]
fn sendmsg6(ctx: SockAddrContext) -> i32 {
    sendmsg::sendmsg(&Ctx::<V6>::new(ctx))
}

/// Shows a datagram's source as the VIP it was sent to.
#[cgroup_sock_addr(recvmsg4)]
fn recvmsg4(ctx: SockAddrContext) -> i32 {
    reverse::recvmsg(&Ctx::<V4>::new(ctx))
}

/// Shows a datagram's source as the VIP it was sent to; IPv4 to an IPv6 socket comes here.
#[cgroup_sock_addr(recvmsg6)]
fn recvmsg6(ctx: SockAddrContext) -> i32 {
    reverse::recvmsg(&Ctx::<V6>::new(ctx))
}

/// Shows the peer as the VIP that was connected to.
#[cgroup_sock_addr(getpeername4)]
fn getpeername4(ctx: SockAddrContext) -> i32 {
    reverse::getpeername(&Ctx::<V4>::new(ctx))
}

/// Shows the peer as the VIP that was connected to.
#[cgroup_sock_addr(getpeername6)]
fn getpeername6(ctx: SockAddrContext) -> i32 {
    reverse::getpeername(&Ctx::<V6>::new(ctx))
}

/// Translates what a pod sends to a VIP, on the host's side of its interface: tc ingress.
#[classifier]
fn from_pod(ctx: TcContext) -> i32 {
    packet::from_pod::<Ethernet>(ctx)
}

/// Translates what answers for a VIP, on the host's side of a pod's interface: tc egress.
#[classifier]
fn to_pod(ctx: TcContext) -> i32 {
    packet::to_pod::<Ethernet>(ctx)
}

/// Drops what is still addressed to a VIP when it leaves the node: tc egress.
#[classifier]
fn uplink(ctx: TcContext) -> i32 {
    packet::uplink::<Ethernet>(ctx)
}

/// As `from_pod`, on a device without Ethernet headers.
#[classifier]
fn from_pod_bare(ctx: TcContext) -> i32 {
    packet::from_pod::<Bare>(ctx)
}

/// As `to_pod`, on a device without Ethernet headers.
#[classifier]
fn to_pod_bare(ctx: TcContext) -> i32 {
    packet::to_pod::<Bare>(ctx)
}

/// As `uplink`, on a device without Ethernet headers.
#[classifier]
fn uplink_bare(ctx: TcContext) -> i32 {
    packet::uplink::<Bare>(ctx)
}

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The kernel lends some helpers to GPL-compatible programs only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
