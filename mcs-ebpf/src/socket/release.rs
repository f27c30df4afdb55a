//! close(2), and the end of a process: the socket's slot is free, and what is listed of it goes.

use core::ptr;

use aya_ebpf::{helpers::bpf_get_socket_cookie, programs::SockContext};
use mcs_common::{Address, select::Tables as _};

use super::{context::ALLOW, state, table};
use crate::maps::ConfigMaps;

const AF_INET6: u32 = 10;
const IPPROTO_TCP: u32 = 6;

/// Frees the slot of a socket that is closed, or removes its connections without slot, and the pin of one that has sent
/// without connecting.
///
/// A TCP socket with a peer that is no backend has none: most sockets that a server accepts get no cookie here, which
/// takes an atomic operation. (One that was disconnected from its VIP and then connected elsewhere keeps its slot; the
/// agent frees it.) A UDP socket can connect anywhere after it has connected to a VIP.
#[inline(always)]
pub(crate) fn release(ctx: &SockContext) -> i32 {
    let Closed { is_tcp, peer } = Closed::of(ctx);
    if is_tcp && !is_unspecified(&peer) && !ConfigMaps.kinds_of(&peer).may_be_backend() {
        return ALLOW;
    }
    // SAFETY: the helper takes the context itself.
    let cookie = unsafe { bpf_get_socket_cookie(ctx.sock.cast()) };
    table::release(cookie);
    state::closed(ctx.sock, cookie);
    ALLOW
}

/// The fields of a closed socket.
struct Closed {
    is_tcp: bool,
    /// The address that the socket is connected to, or was.
    peer: Address,
}

impl Closed {
    /// Reads every field of either family: of reads in branches LLVM makes one at an offset that varies, which the verifier
    /// rejects. Volatile keeps it from merging reads: each is one of a whole field.
    #[inline(always)]
    fn of(ctx: &SockContext) -> Self {
        // SAFETY: the context is the one the program was called with.
        let (family, protocol, v4, v6) = unsafe {
            let word = |word: *const u32| ptr::read_volatile(word);
            (
                word(&raw const (*ctx.sock).family),
                word(&raw const (*ctx.sock).protocol),
                word(&raw const (*ctx.sock).dst_ip4),
                [
                    word(&raw const (*ctx.sock).dst_ip6[0]),
                    word(&raw const (*ctx.sock).dst_ip6[1]),
                    word(&raw const (*ctx.sock).dst_ip6[2]),
                    word(&raw const (*ctx.sock).dst_ip6[3]),
                ],
            )
        };
        let peer =
            if family == AF_INET6 { Address::from_words(v6) } else { Address::from_v4_word(v4) };
        Self { is_tcp: protocol == IPPROTO_TCP, peer }
    }
}

/// Whether the socket has no peer: it never had, or `connect(AF_UNSPEC)` or a failed connect took it away.
#[inline(always)]
fn is_unspecified(peer: &Address) -> bool {
    let [network_a, network_b, host_a, host_b] = peer.words();
    let is_v4 = host_a == 0xffff_u32.to_be();
    (network_a | network_b | host_b) == 0 && (host_a == 0 || is_v4)
}
