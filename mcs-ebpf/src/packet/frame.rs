//! Reads and writes a packet by offset, and finds its IP header behind link header and VLAN tags.

use core::{hint::cold_path, marker::PhantomData, mem::MaybeUninit, ptr};

use aya_ebpf::{
    EbpfContext as _,
    helpers::{bpf_redirect, bpf_skb_load_bytes, bpf_skb_store_bytes},
    programs::TcContext,
};

/// Ethertype of IPv4, in host order.
pub(crate) const IPV4: u16 = 0x0800;
/// Ethertype of IPv6, in host order.
pub(crate) const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;
const VLAN_TAG: u32 = 4;
/// The most VLAN tags of a packet: one of a provider and one of a customer (IEEE 802.1ad).
const VLAN_TAGS: usize = 2;

/// The kind of header that a device puts before the IP header.
pub(crate) trait LinkLayer {
    /// Its size in bytes.
    const HEADER: u32;
}

/// Devices with Ethernet headers.
pub(crate) struct Ethernet;
/// Devices without link headers, as tun and `WireGuard`.
pub(crate) struct RawIp;

impl LinkLayer for Ethernet {
    const HEADER: u32 = 14;
}

impl LinkLayer for RawIp {
    const HEADER: u32 = 0;
}

/// The size of a type in bytes, as the kernel's helpers take it.
pub(crate) const fn bytes_of<T>() -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "headers are small")]
    let bytes = size_of::<T>() as u32;
    bytes
}

/// What [`Frame::redirect_back`] returns if the link addresses cannot be swapped: no verdict of `bpf_redirect`.
pub(crate) const NOT_REDIRECTED: i32 = 0;

/// The mark of an answer: any number that other users of the control block are unlikely to leave there.
const ANSWER: u32 = 0x6d63_7361;

/// The mark of a passed packet, in the 16 bits of `tc_index`: any number that other programs are unlikely to leave there.
const PASSED: u32 = 0x6d63;

/// The kernel could not read or write the packet at this offset.
pub(crate) struct OutOfBounds;

/// A packet on a device with the link layer `L`.
pub(crate) struct Frame<L> {
    pub(crate) ctx: TcContext,
    /// The ethertype behind all VLAN tags, in host order.
    pub(crate) ethertype: u16,
    /// The offset of the IP header, in bytes.
    pub(crate) l3: u32,
    link: PhantomData<L>,
}

impl<L: LinkLayer> Frame<L> {
    #[inline(always)]
    pub(crate) fn new(ctx: TcContext) -> Self {
        // SAFETY: the context is the one the program was called with.
        let protocol = unsafe { ptr::read_volatile(&raw const (*ctx.skb.skb).protocol) };
        #[expect(clippy::cast_possible_truncation, reason = "the kernel keeps a __be16 in it")]
        let ethertype = u16::from_be(protocol as u16);
        let mut frame = Self { ctx, ethertype, l3: L::HEADER, link: PhantomData };
        // The kernel keeps one tag outside the packet data while the program runs. In the data are
        // second tags, and the tags of devices without that feature.
        for _ in 0..VLAN_TAGS {
            if frame.ethertype != VLAN && frame.ethertype != SERVICE_VLAN {
                break;
            }
            cold_path();
            let Ok(inner) = frame.load::<u16>(frame.l3 + 2) else { break };
            frame.ethertype = u16::from_be(inner);
            frame.l3 += VLAN_TAG;
        }
        frame
    }

    /// The same packet with its IP header at offset `l3`.
    #[inline(always)]
    pub(crate) fn at(&self, l3: u32) -> Self {
        let ctx = TcContext::new(self.ctx.skb.skb);
        Self { ctx, ethertype: self.ethertype, l3, link: PhantomData }
    }

    /// The length of the packet in bytes, link header included.
    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        // SAFETY: the context is the one the program was called with.
        unsafe { ptr::read_volatile(&raw const (*self.ctx.skb.skb).len) }
    }

    /// The interface index of the device.
    #[inline(always)]
    pub(crate) fn device(&self) -> u32 {
        // SAFETY: the context is the one the program was called with.
        unsafe { ptr::read_volatile(&raw const (*self.ctx.skb.skb).ifindex) }
    }

    /// Whether the device is to split the packet into segments. (The number of segments is unknown for
    /// a packet from a virtual machine.)
    #[inline(always)]
    pub(crate) fn is_gso(&self) -> bool {
        // SAFETY: as in `device`.
        unsafe { ptr::read_volatile(&raw const (*self.ctx.skb.skb).gso_size) != 0 }
    }

    /// Reads a value at `offset`.
    #[inline(always)]
    pub(crate) fn load<T: bytemuck::AnyBitPattern>(&self, offset: u32) -> Result<T, OutOfBounds> {
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: any bytes are a `T`.
        unsafe {
            self.load_to(offset, value.as_mut_ptr(), bytes_of::<T>())?;
            Ok(value.assume_init())
        }
    }

    /// Reads a value at `offset` without a call of the kernel. `None` if that part of the packet lies elsewhere, where
    /// [`load`](Self::load) finds it.
    #[inline(always)]
    pub(crate) fn peek<T: bytemuck::AnyBitPattern>(&self, offset: u32) -> Option<T> {
        /// A header behind a link header of 14 bytes lies at an even address.
        #[repr(C, packed(2))]
        struct Even<T>(T);

        let start = self.ctx.data() + offset as usize;
        if start + size_of::<T>() > self.ctx.data_end() {
            return None;
        }
        // SAFETY: the packet goes on to there, its headers lie at even addresses, and any bytes are a `T`.
        Some(unsafe { (*(start as *const Even<T>)).0 })
    }

    /// Reads `length` bytes at `offset`.
    ///
    /// # Safety
    /// There is room for them at `to`.
    #[inline(always)]
    pub(crate) unsafe fn load_to<T>(
        &self,
        offset: u32,
        to: *mut T,
        length: u32,
    ) -> Result<(), OutOfBounds> {
        // SAFETY: the helper writes `length` bytes or fails.
        let result = unsafe { bpf_skb_load_bytes(self.ctx.as_ptr(), offset, to.cast(), length) };
        if result == 0 { Ok(()) } else { Err(OutOfBounds) }
    }

    /// Writes `value` at `offset`.
    #[inline(always)]
    pub(crate) fn store<T: bytemuck::NoUninit>(
        &self,
        offset: u32,
        value: &T,
        flags: u64,
    ) -> Result<(), OutOfBounds> {
        self.store_from(offset, value, 0, flags)
    }

    /// Writes what is in `value` behind its first `skipped` bytes at `offset`.
    #[inline(always)]
    pub(crate) fn store_from<T: bytemuck::NoUninit>(
        &self,
        offset: u32,
        value: &T,
        skipped: u32,
        flags: u64,
    ) -> Result<(), OutOfBounds> {
        // SAFETY: the helper reads `size_of::<T>() - skipped` bytes.
        let result = unsafe {
            bpf_skb_store_bytes(
                self.ctx.as_ptr().cast(),
                offset,
                ptr::from_ref(value).cast::<u8>().add(skipped as usize).cast(),
                bytes_of::<T>() - skipped,
                flags,
            )
        };
        if result == 0 { Ok(()) } else { Err(OutOfBounds) }
    }

    /// Sends the packet back out of its device, to the link address it came from. Returns the verdict.
    #[inline(always)]
    pub(crate) fn send_back(&self) -> Result<i32, OutOfBounds> {
        match self.redirect_back(0) {
            NOT_REDIRECTED => Err(OutOfBounds),
            verdict => Ok(verdict),
        }
    }

    /// Marks the packet as an answer of these programs, for [`is_answer`](Self::is_answer) on the same device. The mark
    /// is in the control block. The kernel leaves it as it is between a redirect and the device's egress hook.
    #[inline(always)]
    pub(crate) fn mark_answer(&self) {
        // SAFETY: as in `device`.
        unsafe { (&raw mut (*self.ctx.skb.skb).cb[0]).write_volatile(ANSWER) };
    }

    /// Whether the packet is an answer of these programs.
    #[inline(always)]
    pub(crate) fn is_answer(&self) -> bool {
        // SAFETY: as in `device`.
        unsafe { ptr::read_volatile(&raw const (*self.ctx.skb.skb).cb[0]) == ANSWER }
    }

    /// Marks the packet as one that `from_pod` passes unchanged, for [`is_passed`](Self::is_passed) at an uplink. The mark is
    /// in `tc_index`. The kernel leaves it as it is on the way through a node, unless a later program of the device accepts
    /// the packet (`TC_ACT_OK`) instead of leaving it to the next one.
    #[inline(always)]
    pub(crate) fn mark_passed(&self) {
        // SAFETY: as in `device`.
        unsafe { (&raw mut (*self.ctx.skb.skb).tc_index).write_volatile(PASSED) };
    }

    /// Whether `from_pod` has passed the packet unchanged.
    #[inline(always)]
    pub(crate) fn is_passed(&self) -> bool {
        // SAFETY: as in `device`.
        unsafe { ptr::read_volatile(&raw const (*self.ctx.skb.skb).tc_index) == PASSED }
    }

    /// Swaps the link addresses and redirects the packet to its device: out of it, or with `BPF_F_INGRESS` into
    /// the node as if the device had received it. Returns the verdict, or [`NOT_REDIRECTED`]. (Not a `Result`: LLVM
    /// copies registers that a failure never set, and the verifier rejects that.)
    #[inline(always)]
    pub(crate) fn redirect_back(&self, flags: u64) -> i32 {
        if L::HEADER != 0 {
            // Destination and source address, six bytes each.
            let Ok([to, from]) = self.load::<[[u16; 3]; 2]>(0) else { return NOT_REDIRECTED };
            if self.store(0, &[from, to], 0).is_err() {
                return NOT_REDIRECTED;
            }
        }
        // SAFETY: the helper takes no pointer.
        #[expect(clippy::cast_possible_truncation, reason = "an action")]
        let verdict = unsafe { bpf_redirect(self.device(), flags) } as i32;
        verdict
    }
}
