//! The programs' debug logs. They have a module of their own because the code of each log grows with
//! the length of its module path and file name.

use aya_log_ebpf::debug;

use crate::socket::context::{HookFamily, SocketContext};

/// Logs the backend that a connect goes to: its id, and the index of its frontend.
#[inline(always)]
pub(crate) fn connect<F: HookFamily>(ctx: &SocketContext<F>, frontend: u32, backend: u32) {
    debug!(ctx.inner(), "connect: frontend {} to backend {}", frontend, backend);
}

/// Logs the backend that a datagram goes to: its id, and the index of its frontend.
#[inline(always)]
pub(crate) fn send<F: HookFamily>(ctx: &SocketContext<F>, frontend: u32, backend: u32) {
    debug!(ctx.inner(), "send: frontend {} to backend {}", frontend, backend);
}
