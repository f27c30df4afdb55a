//! Reads and writes the context of the socket hooks. No other code of the socket path tells IPv4 from
//! IPv6.

use core::{arch::asm, marker::PhantomData, mem::offset_of, ptr};

use aya_ebpf::{
    Global,
    bindings::{bpf_sock, bpf_sock_addr},
    helpers::{bpf_get_netns_cookie, bpf_get_socket_cookie},
    programs::SockAddrContext,
};
use mcs_common::{Address, FrontendKey, Peer};

/// The return value that lets the system call go on (kernel/bpf/verifier.c, `check_return_code`).
pub(crate) const ALLOW: i32 = 1;
const IPPROTO_TCP: u32 = 6;
const IPPROTO_UDP: u32 = 17;
const IPPROTO_MPTCP: u32 = 262;
const TCP_ESTABLISHED: u32 = 1;

/// The cookie of the only network namespace whose sockets are translated; 0 means all namespaces.
#[unsafe(no_mangle)]
static ONLY_NETNS: Global<u64> = Global::new(0);

/// The fields of a hook's context that hold the address.
pub(crate) trait HookFamily {
    /// Reads the context's address.
    ///
    /// # Safety
    /// `ctx` is the context of a hook of this family.
    unsafe fn address(ctx: *const bpf_sock_addr) -> Address;
    /// Writes the context's address.
    ///
    /// # Safety
    /// As for [`HookFamily::address`].
    unsafe fn set_address(ctx: *mut bpf_sock_addr, address: &Address);
    /// Reads the peer of a connected socket. A hook whose name ends in 4 also runs for an IPv6 socket:
    /// it reads an IPv4 peer, and not an IPv6 peer.
    ///
    /// # Safety
    /// `socket` is the socket of a hook of this family.
    unsafe fn connected_address(socket: *const bpf_sock) -> Address;
}

/// The hooks whose names end in 4.
pub(crate) struct Hook4;
/// The hooks whose names end in 6.
pub(crate) struct Hook6;

// The verifier requires each access to the context to be one load or store of a whole field at a
// constant offset. Volatile keeps the compiler from merging or splitting them.
impl HookFamily for Hook4 {
    #[inline(always)]
    unsafe fn address(ctx: *const bpf_sock_addr) -> Address {
        // SAFETY: the caller vouches for the context.
        let word = unsafe { ptr::read_volatile(&raw const (*ctx).user_ip4) };
        let [_, prefix]: [u64; 2] = bytemuck::cast(Address::from_v4_word(0).addr);
        let [network, mut host]: [u64; 2] =
            bytemuck::cast(Address::from_words([0, 0, 0, word]).addr);
        // LLVM must not know half of `host`: it would calculate with both halves apart, in up to 50 instructions more.
        // SAFETY: the instruction changes the register alone.
        unsafe {
            asm!("{host} |= {prefix}", host = inout(reg) host, prefix = in(reg) prefix, options(pure, nomem));
        }
        Address { addr: bytemuck::cast([network, host]) }
    }

    #[inline(always)]
    unsafe fn set_address(ctx: *mut bpf_sock_addr, address: &Address) {
        let [.., word] = address.words();
        // SAFETY: the caller vouches for the context.
        unsafe { ptr::write_volatile(&raw mut (*ctx).user_ip4, word) }
    }

    #[inline(always)]
    unsafe fn connected_address(socket: *const bpf_sock) -> Address {
        // SAFETY: the caller vouches for the socket.
        Address::from_v4_word(unsafe { ptr::read_volatile(&raw const (*socket).dst_ip4) })
    }
}

impl HookFamily for Hook6 {
    #[inline(always)]
    unsafe fn address(ctx: *const bpf_sock_addr) -> Address {
        // SAFETY: the caller vouches for the context.
        unsafe {
            Address::from_words([
                ptr::read_volatile(&raw const (*ctx).user_ip6[0]),
                ptr::read_volatile(&raw const (*ctx).user_ip6[1]),
                ptr::read_volatile(&raw const (*ctx).user_ip6[2]),
                ptr::read_volatile(&raw const (*ctx).user_ip6[3]),
            ])
        }
    }

    #[inline(always)]
    unsafe fn set_address(ctx: *mut bpf_sock_addr, address: &Address) {
        let [a, b, c, d] = address.words();
        // SAFETY: the caller vouches for the context.
        unsafe {
            ptr::write_volatile(&raw mut (*ctx).user_ip6[0], a);
            ptr::write_volatile(&raw mut (*ctx).user_ip6[1], b);
            ptr::write_volatile(&raw mut (*ctx).user_ip6[2], c);
            ptr::write_volatile(&raw mut (*ctx).user_ip6[3], d);
        }
    }

    #[inline(always)]
    unsafe fn connected_address(socket: *const bpf_sock) -> Address {
        // SAFETY: the caller vouches for the socket.
        unsafe {
            Address::from_words([
                ptr::read_volatile(&raw const (*socket).dst_ip6[0]),
                ptr::read_volatile(&raw const (*socket).dst_ip6[1]),
                ptr::read_volatile(&raw const (*socket).dst_ip6[2]),
                ptr::read_volatile(&raw const (*socket).dst_ip6[3]),
            ])
        }
    }
}

/// The context of a hook with a socket and an address (`struct bpf_sock_addr`).
pub(crate) struct SocketContext<F> {
    inner: SockAddrContext,
    /// Read once: after reads at two places LLVM keeps the field's address, which the verifier rejects.
    socket: *mut bpf_sock,
    family: PhantomData<F>,
}

impl<F: HookFamily> SocketContext<F> {
    #[inline(always)]
    pub(crate) fn new(inner: SockAddrContext) -> Self {
        // SAFETY: the context is the one the program was called with.
        let socket = unsafe { (*inner.sock_addr).__bindgen_anon_1.sk };
        Self { inner, socket, family: PhantomData }
    }

    /// The socket, for the helper of socket storage.
    #[inline(always)]
    pub(crate) const fn socket(&self) -> *mut bpf_sock {
        self.socket
    }

    /// The context, for aya's logging.
    #[inline(always)]
    pub(crate) const fn inner(&self) -> &SockAddrContext {
        &self.inner
    }

    /// Reads the address and port in the context: a destination, or a source for the application.
    #[inline(always)]
    pub(crate) fn peer(&self) -> Peer {
        // SAFETY: the context is the one the program was called with, of family `F`.
        let (address, port) = unsafe {
            (
                F::address(self.inner.sock_addr),
                ptr::read_volatile(&raw const (*self.inner.sock_addr).user_port),
            )
        };
        #[expect(clippy::cast_possible_truncation, reason = "the kernel keeps a __be16 in it")]
        Peer::new(address, u16::from_be(port as u16))
    }

    /// Replaces the address and port (host order) in the context.
    #[inline(always)]
    pub(crate) fn set_peer(&self, address: &Address, port: u16) {
        // SAFETY: as in `peer`.
        unsafe {
            F::set_address(self.inner.sock_addr, address);
            ptr::write_volatile(
                &raw mut (*self.inner.sock_addr).user_port,
                u32::from(port.to_be()),
            );
        }
    }

    /// The key of the destination's frontend. MPTCP uses the frontends of TCP.
    #[inline(always)]
    pub(crate) fn frontend_key(&self, destination: &Peer) -> FrontendKey {
        let protocol = self.protocol();
        let protocol = if protocol == IPPROTO_MPTCP { IPPROTO_TCP } else { protocol };
        #[expect(clippy::cast_possible_truncation, reason = "all others are below 256")]
        FrontendKey::new(destination.addr, destination.port, protocol as u8)
    }

    /// Whether the socket's protocol is Multipath TCP.
    #[inline(always)]
    pub(crate) fn is_mptcp(&self) -> bool {
        self.protocol() == IPPROTO_MPTCP
    }

    /// Whether the socket's protocol is UDP.
    #[inline(always)]
    pub(crate) fn is_udp(&self) -> bool {
        self.protocol() == IPPROTO_UDP
    }

    #[inline(always)]
    fn protocol(&self) -> u32 {
        // SAFETY: as in `peer`.
        unsafe { ptr::read_volatile(&raw const (*self.inner.sock_addr).protocol) }
    }

    /// Whether the socket is connected now. (A UDP socket has no other states.)
    #[inline(always)]
    pub(crate) fn is_connected(&self) -> bool {
        // SAFETY: the hook's socket is never null.
        unsafe { ptr::read_volatile(&raw const (*self.socket).state) == TCP_ESTABLISHED }
    }

    /// Whether the socket is connected to `peer` now.
    #[inline(always)]
    pub(crate) fn is_connected_to(&self, peer: &Peer) -> bool {
        const {
            assert!(offset_of!(bpf_sock, dst_port).is_multiple_of(align_of::<u32>()));
        }
        #[expect(clippy::cast_ptr_alignment, reason = "asserted above")]
        // SAFETY: the hook's socket is never null and of family `F`. Kernels before 5.18 accept only
        // a 32-bit read of the port. Its lower 16 bits are the port on every kernel.
        let (address, port) = unsafe {
            let port = (&raw const (*self.socket).dst_port).cast::<u32>();
            (F::connected_address(self.socket), ptr::read_volatile(port))
        };
        #[expect(clippy::cast_possible_truncation, reason = "the rest is padding")]
        let actual = Peer::new(address, u16::from_be(port as u16));
        self.is_connected() && actual == *peer
    }

    /// The socket's cookie, which is unique until the node restarts.
    #[inline(always)]
    pub(crate) fn socket_cookie(&self) -> u64 {
        // SAFETY: the helper takes the context itself.
        unsafe { bpf_get_socket_cookie(self.inner.sock_addr.cast()) }
    }

    /// The cookie of the socket's network namespace.
    #[inline(always)]
    pub(crate) fn netns_cookie(&self) -> u64 {
        // SAFETY: the helper takes the context itself.
        unsafe { bpf_get_netns_cookie(self.inner.sock_addr.cast()) }
    }

    /// Whether `--socket-lb=host` excludes this socket.
    #[inline(always)]
    pub(crate) fn is_left_alone(&self) -> bool {
        let only = ONLY_NETNS.load();
        only != 0 && only != self.netns_cookie()
    }
}
