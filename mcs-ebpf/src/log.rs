//! The programs' debug logs. They have a module of their own because the code of each log grows with
//! the length of its module path and file name.

use aya_log_ebpf::debug;

use crate::{
    socket::context::{HookFamily, SocketContext},
    trace::Decided,
};

/// Logs the backend that a connect or a datagram goes to: its id, and the index of its frontend.
#[inline(always)]
pub(crate) fn translated<F: HookFamily>(ctx: &SocketContext<F>, decided: &Decided) {
    debug!(ctx.inner(), "frontend {} to backend {}", decided.frontend, decided.chosen.id);
}
