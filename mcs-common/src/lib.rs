//! The map ABI: what the eBPF programs and user space share. It has the types of map keys and values,
//! the names of the maps, and the pure code that selects a backend from them.
//!
//! Rules for the types:
//! - They are `repr(C, align(8))`, and their sizes are multiples of 8 bytes. Otherwise the BPF back end
//!   copies them byte by byte.
//! - Padding is explicit and zero. There is no `bool`, `enum` or `Option`.
//! - Addresses are byte arrays in network order. All other fields are in host order.
//! - Sizes and offsets are asserted at compile time.
//! - The agent adopts a pinned map if its name, kind and sizes fit. A type that changes its meaning but
//!   not its size therefore needs another map name.
//! - A value of a config map grows at its end. Agents of both versions then read the fields they know.
#![no_std]
#![cfg_attr(feature = "user", expect(unsafe_code, reason = "aya::Pod is an unsafe trait"))]

/// Implements `aya::Pod`, so that aya can copy the types to and from maps.
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

/// Implements comparison and hashing by 64-bit words. The derived code for byte arrays goes byte by
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
mod address_filter;
mod affinity;
mod counter;
mod figure;
mod flow;
mod frontend;
mod health;
mod liveness;
pub mod maps;
pub mod select;
mod socket;
mod socket_slot;
mod text;
mod trace;

pub use address::Address;
pub use address_filter::{AddressKinds, BUCKETS_PER_WORD, FilterBucket};
pub use affinity::{Affinity, AffinityKey, ClientKey};
pub use counter::Counter;
pub use figure::{FigureRow, Refusal};
pub use flow::{
    Flow, FlowEvictions, FlowFlags, FlowState, FlowsUsed, Fragment, FragmentKey, Seen, Tuple,
};
pub use frontend::{
    BackendRecord, BackendRef, BackendState, Extent, FRONTEND_AFFINITY_CLIENT_IP, FrontendKey,
    FrontendState, SlotPair, VipMode,
};
pub use health::{ClientFailures, HealthRecord};
pub use liveness::Liveness;
pub use socket::{
    ConnectedValue, Connection, Peer, PinKey, ReverseKey, ReverseValue, Sent, SentPair, SentPairs,
    SocketState,
};
pub use socket_slot::{NO_WAY, SocketSlot, SocketSlotPlace, TAKER, TagPair, tags};
pub use text::{ClusterRecord, RunRecord, ServiceRecord, text};
pub use trace::TraceEvent;
