//! What the eBPF programs and user space must agree on: the types that stand in maps, the names of
//! those maps, and the pure code that selects a backend from them.
//!
//! Rules of the ABI types: `repr(C, align(8))` and a size in multiples of 8 (anything else makes
//! the BPF back end copy byte by byte), explicit padding, no `bool`, `enum` or `Option`. Addresses
//! are byte arrays in network order, everything else is in the byte order of the host. Sizes and
//! offsets are asserted at compile time. A pinned map is adopted when its name, kind and sizes fit,
//! so whoever changes the meaning of a type but not its size renames its map. A value of a config map
//! that gets more to say grows at its end: agents of both versions read it, and take no more over
//! than they know.
#![no_std]
#![cfg_attr(feature = "user", expect(unsafe_code, reason = "aya::Pod is an unsafe trait"))]

/// Marks the types that aya may copy to and from maps.
macro_rules! pod {
    ($($name:ty),+ $(,)?) => {
        $(
            // SAFETY: `bytemuck::Pod` is derived for the type, which proves the same properties:
            // no padding, no invalid bit pattern, `Copy`, `'static`.
            #[cfg(feature = "user")]
            unsafe impl aya::Pod for $name {}
        )+
    };
}
pub(crate) use pod;

/// Compares and hashes a type by its 64-bit words: what is derived for byte arrays goes byte by
/// byte in BPF.
macro_rules! eq_by_words {
    ($name:ty, $words:literal) => {
        impl PartialEq for $name {
            #[inline(always)]
            fn eq(&self, other: &Self) -> bool {
                let [a, b]: [[u64; $words]; 2] = [bytemuck::cast(*self), bytemuck::cast(*other)];
                // Comparing arrays would call memcmp, which no BPF program has.
                let mut difference = 0;
                for word in 0..$words {
                    difference |= a[word] ^ b[word];
                }
                difference == 0
            }
        }

        impl Eq for $name {}

        impl core::hash::Hash for $name {
            fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
                bytemuck::cast::<Self, [u64; $words]>(*self).hash(state);
            }
        }
    };
}
pub(crate) use eq_by_words;

mod address;
mod affinity;
mod backend;
mod counter;
mod flow;
mod frontend;
pub mod maps;
pub mod select;
mod socket;
mod text;

pub use address::Address;
pub use affinity::{Affinity, AffinityKey, ClientKey};
pub use backend::{BackendRecord, BackendRef, BackendState, SlotPair};
pub use counter::Counter;
pub use flow::{Flow, FlowFlags, FlowState, FlowsUsed, Fragment, FragmentKey, Seen, Tuple};
pub use frontend::{Extent, FRONTEND_AFFINITY_CLIENT_IP, FrontendKey, FrontendState};
pub use socket::{ConnectedValue, Connection, Peer, PinKey, ReverseKey, ReverseValue, SocketState};
pub use text::{ClusterRecord, RunRecord, ServiceRecord, text};
