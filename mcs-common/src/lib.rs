//! What the eBPF programs and user space must agree on: the types that stand in maps, the names of
//! those maps, and the pure code that selects a backend from them.
//!
//! Rules of the ABI types: `repr(C, align(8))` and a size in multiples of 8 (anything else makes
//! the BPF back end copy byte by byte), explicit padding, no `bool`, `enum` or `Option`. Addresses
//! are byte arrays in network order, everything else is in the byte order of the host. Sizes and
//! offsets are asserted at compile time; whoever changes one bumps [`maps::CONFIG_ABI`] or
//! [`maps::STATE_ABI`].
#![no_std]

mod address;
mod affinity;
mod backend;
mod counter;
mod frontend;
pub mod maps;
pub mod select;
mod socket;
mod text;

pub use address::Address;
pub use affinity::{Affinity, AffinityKey};
pub use backend::{Backend, BackendRef, BackendState};
pub use counter::Counter;
pub use frontend::{Extent, FRONTEND_AFFINITY_CLIENT_IP, FrontendKey, FrontendState};
pub use socket::{Peer, PinKey, ReverseKey, ReverseValue, SocketState};
pub use text::{ClusterRecord, RunRecord, ServiceRecord, text};

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
