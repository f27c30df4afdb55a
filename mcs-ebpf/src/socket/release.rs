//! close(2), and the end of a process: the socket's slot is free.

use core::ptr;

use aya_ebpf::{helpers::bpf_get_socket_cookie, programs::SockContext};
use mcs_common::{Address, select::Tables as _};

use super::{context::ALLOW, table};
use crate::maps::ConfigMaps;

const AF_INET6: u32 = 10;

/// Frees the slot of a socket that is closed.
///
/// A socket with a peer that is no backend has no slot that matters: it connected elsewhere since. So most
/// sockets that a server accepts get no cookie here, which takes an atomic operation.
#[inline(always)]
pub(crate) fn release(ctx: &SockContext) -> i32 {
    let peer = peer(ctx);
    if !is_unspecified(&peer) && !ConfigMaps.hint(&peer).may_be_backend() {
        return ALLOW;
    }
    // SAFETY: the helper takes the context itself.
    table::release(unsafe { bpf_get_socket_cookie(ctx.sock.cast()) });
    ALLOW
}

/// The address that the socket is connected to, or was.
#[inline(always)]
fn peer(ctx: &SockContext) -> Address {
    // SAFETY: the context is the one the program was called with. Volatile keeps the compiler from merging reads: each
    // is one of a whole field.
    unsafe {
        let word = |word: *const u32| ptr::read_volatile(word);
        if word(&raw const (*ctx.sock).family) == AF_INET6 {
            Address::from_words([
                word(&raw const (*ctx.sock).dst_ip6[0]),
                word(&raw const (*ctx.sock).dst_ip6[1]),
                word(&raw const (*ctx.sock).dst_ip6[2]),
                word(&raw const (*ctx.sock).dst_ip6[3]),
            ])
        } else {
            Address::from_v4_word(word(&raw const (*ctx.sock).dst_ip4))
        }
    }
}

/// Whether the socket has no peer: it never had, or `connect(AF_UNSPEC)` or a failed connect took it away.
#[inline(always)]
fn is_unspecified(peer: &Address) -> bool {
    let [network_a, network_b, host_a, host_b] = peer.words();
    let is_v4 = host_a == 0xffff_u32.to_be();
    (network_a | network_b | host_b) == 0 && (host_a == 0 || is_v4)
}
