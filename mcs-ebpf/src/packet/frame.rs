//! A packet as its device shows it.

use core::{marker::PhantomData, mem::MaybeUninit, ptr};

use aya_ebpf::{
    EbpfContext as _,
    helpers::{bpf_redirect, bpf_skb_load_bytes, bpf_skb_store_bytes},
    programs::TcContext,
};

/// Ethertype, host order.
pub(crate) const IPV4: u16 = 0x0800;
/// Ethertype, host order.
pub(crate) const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;
const VLAN_TAG: u32 = 4;
/// Tags that are looked behind: one of a provider and one of a customer (802.1ad).
const VLAN_TAGS: usize = 2;

/// What stands before the IP header.
pub(crate) trait Link {
    /// Bytes of it.
    const HEADER: u32;
}

/// An Ethernet header.
pub(crate) struct Ethernet;
/// Nothing: tun, `WireGuard`.
pub(crate) struct Bare;

impl Link for Ethernet {
    const HEADER: u32 = 14;
}

impl Link for Bare {
    const HEADER: u32 = 0;
}

/// The size of a type, as helpers take it.
pub(crate) const fn bytes_of<T>() -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "what stands in a packet is small")]
    let bytes = size_of::<T>() as u32;
    bytes
}

/// The packet could not be read or written there.
pub(crate) struct OutOfBounds;

/// A packet on a device.
pub(crate) struct Frame<L> {
    pub(crate) ctx: TcContext,
    /// Host order.
    pub(crate) ethertype: u16,
    /// Where the IP header begins.
    pub(crate) l3: u32,
    link: PhantomData<L>,
}

impl<L: Link> Frame<L> {
    #[inline(always)]
    pub(crate) fn new(ctx: TcContext) -> Self {
        // SAFETY: the context is the one the program was called with.
        let protocol = unsafe { ptr::read_volatile(&raw const (*ctx.skb.skb).protocol) };
        #[expect(clippy::cast_possible_truncation, reason = "the kernel keeps a __be16 in it")]
        let ethertype = u16::from_be(protocol as u16);
        let mut frame = Self { ctx, ethertype, l3: L::HEADER, link: PhantomData };
        // The kernel takes one tag off before it calls us, and puts it on after; what is left are
        // second ones, and those of devices that cannot do it.
        for _ in 0..VLAN_TAGS {
            if frame.ethertype != VLAN && frame.ethertype != SERVICE_VLAN {
                break;
            }
            let Ok(inner) = frame.load::<u16>(frame.l3 + 2) else { break };
            frame.ethertype = u16::from_be(inner);
            frame.l3 += VLAN_TAG;
        }
        frame
    }

    /// The same, whose IP header begins at `l3`.
    #[inline(always)]
    pub(crate) fn at(&self, l3: u32) -> Self {
        let ctx = TcContext::new(self.ctx.skb.skb);
        Self { ctx, ethertype: self.ethertype, l3, link: PhantomData }
    }

    /// Bytes of the packet, its link header included.
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

    /// Whether the packet is to be cut into segments by the device. (Their number is not known of one
    /// that comes from a virtual machine.)
    #[inline(always)]
    pub(crate) fn is_gso(&self) -> bool {
        // SAFETY: as in `device`.
        unsafe { ptr::read_volatile(&raw const (*self.ctx.skb.skb).gso_size) != 0 }
    }

    /// Reads what stands at `offset`.
    #[inline(always)]
    pub(crate) fn load<T: bytemuck::AnyBitPattern>(&self, offset: u32) -> Result<T, OutOfBounds> {
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: the helper writes `size_of::<T>()` bytes or fails, and any bytes are a `T`.
        unsafe {
            let result = bpf_skb_load_bytes(
                self.ctx.as_ptr(),
                offset,
                value.as_mut_ptr().cast(),
                bytes_of::<T>(),
            );
            if result == 0 { Ok(value.assume_init()) } else { Err(OutOfBounds) }
        }
    }

    /// Writes `value` at `offset`.
    #[inline(always)]
    pub(crate) fn store<T: bytemuck::NoUninit>(
        &self,
        offset: u32,
        value: &T,
        flags: u64,
    ) -> Result<(), OutOfBounds> {
        // SAFETY: the helper reads `size_of::<T>()` bytes.
        let result = unsafe {
            bpf_skb_store_bytes(
                self.ctx.as_ptr().cast(),
                offset,
                ptr::from_ref(value).cast(),
                bytes_of::<T>(),
                flags,
            )
        };
        if result == 0 { Ok(()) } else { Err(OutOfBounds) }
    }

    /// Sends the packet out of the device that it is on, to the station it came from. The verdict.
    #[inline(always)]
    pub(crate) fn send_back(&self) -> Result<i32, OutOfBounds> {
        if L::HEADER != 0 {
            // Destination and source, six bytes each, change places.
            let [to, from]: [[u16; 3]; 2] = self.load(0)?;
            self.store(0, &[from, to], 0)?;
        }
        // SAFETY: the helper takes no pointer.
        #[expect(clippy::cast_possible_truncation, reason = "an action")]
        let verdict = unsafe { bpf_redirect(self.device(), 0) } as i32;
        Ok(verdict)
    }
}
