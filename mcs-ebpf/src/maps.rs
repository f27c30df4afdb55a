//! The maps. User space overrides the sizes with its capacity.

use core::ptr;

use aya_ebpf::{
    bindings::BPF_F_MMAPABLE,
    btf_maps::{Array, HashMap, LruHashMap, PerCpuArray, SkStorage},
    macros::btf_map,
};
use bytemuck::Pod;
use mcs_common::{
    Address, Affinity, AffinityKey, BackendRecord, BackendRef, ClientKey, ClusterRecord,
    ConnectedValue, Counter, Flow, Fragment, FragmentKey, FrontendKey, FrontendState, PinKey,
    ReverseKey, ReverseValue, RunRecord, ServiceRecord, SlotPair, SocketState, Tuple,
    select::Tables,
};

use crate::packet::{refuse::Budget, scratch::Scratch};

const MMAPABLE: usize = BPF_F_MMAPABLE as usize;
pub(crate) const LRU_ENTRIES: usize = mcs_common::maps::LRU_ENTRIES as usize;
const FRAGMENT_ENTRIES: usize = mcs_common::maps::FRAGMENT_ENTRIES as usize;

#[btf_map(name = "vips")]
static VIPS: HashMap<Address, u32, 1> = HashMap::new();
#[btf_map(name = "frontends")]
static FRONTENDS: HashMap<FrontendKey, u32, 1> = HashMap::new();
#[btf_map(name = "states")]
static STATES: Array<FrontendState, 1, MMAPABLE> = Array::new();
#[btf_map(name = "slots")]
static SLOTS: Array<SlotPair, 1, MMAPABLE> = Array::new();
#[btf_map(name = "backends")]
static BACKENDS: Array<BackendRecord, 1, MMAPABLE> = Array::new();

#[btf_map(name = "affinity")]
pub(crate) static AFFINITY: LruHashMap<AffinityKey, Affinity, LRU_ENTRIES> = LruHashMap::new();
#[btf_map(name = "udp_pins")]
pub(crate) static UDP_PINS: LruHashMap<PinKey, BackendRef, LRU_ENTRIES> = LruHashMap::new();
#[btf_map(name = "udp_reverse")]
pub(crate) static UDP_REVERSE: LruHashMap<ReverseKey, ReverseValue, LRU_ENTRIES> =
    LruHashMap::new();
#[btf_map(name = "udp_connected")]
pub(crate) static UDP_CONNECTED: LruHashMap<ReverseKey, ConnectedValue, LRU_ENTRIES> =
    LruHashMap::new();
#[btf_map(name = "sockets")]
pub(crate) static SOCKETS: SkStorage<SocketState> = SkStorage::new();
#[btf_map(name = "counters")]
pub(crate) static COUNTERS: PerCpuArray<u64, { Counter::ALL.len() }> = PerCpuArray::new();
#[btf_map(name = "storage_fallback")]
pub(crate) static STORAGE_FALLBACK: Array<u32, 1> = Array::new();

#[btf_map(name = "flows")]
pub(crate) static FLOWS: LruHashMap<Tuple, Flow, LRU_ENTRIES> = LruHashMap::new();
#[btf_map(name = "flows_used")]
pub(crate) static FLOWS_USED: Array<u32, 1, MMAPABLE> = Array::new();
#[btf_map(name = "fragments")]
pub(crate) static FRAGMENTS: LruHashMap<FragmentKey, Fragment, FRAGMENT_ENTRIES> =
    LruHashMap::new();
#[btf_map(name = "scratch")]
pub(crate) static SCRATCH: PerCpuArray<Scratch, 1> = PerCpuArray::new();
#[btf_map(name = "refusals")]
pub(crate) static REFUSALS: PerCpuArray<Budget, 1> = PerCpuArray::new();
#[btf_map(name = "client_affinity")]
pub(crate) static CLIENT_AFFINITY: LruHashMap<ClientKey, Affinity, LRU_ENTRIES> = LruHashMap::new();

// Read by people and by the command line only; they stand here so that their BTF comes from the
// same types.
#[btf_map(name = "services")]
static SERVICES: Array<ServiceRecord, 1, MMAPABLE> = Array::new();
#[btf_map(name = "clusters")]
static CLUSTERS: Array<ClusterRecord, 1, MMAPABLE> = Array::new();
#[btf_map(name = "run")]
static RUN: Array<RunRecord, 1, MMAPABLE> = Array::new();

/// The config maps, as the shared selection code reads them.
pub(crate) struct ConfigMaps;

impl Tables for ConfigMaps {
    #[inline(always)]
    fn is_vip(&self, address: &Address) -> bool {
        VIPS.get_ptr(address).is_some()
    }

    #[inline(always)]
    fn frontend(&self, key: &FrontendKey) -> Option<u32> {
        // SAFETY: the pointer is to a value of the map; that the element may be reused meanwhile
        // is what the echo in `states` is for.
        FRONTENDS.get_ptr(key).map(|index| unsafe { ptr::read_volatile(index) })
    }

    #[inline(always)]
    fn state(&self, index: u32) -> Option<FrontendState> {
        // SAFETY: the pointer is to a value of the array.
        STATES.get_ptr(index).map(|state| unsafe { load(state) })
    }

    #[inline(always)]
    fn slot(&self, index: u32) -> Option<u32> {
        let pair = SLOTS.get_ptr(index / 2)?.cast::<u32>();
        // SAFETY: the pointer is to a value of the array, and in it.
        Some(unsafe { ptr::read_volatile(pair.add(index as usize % 2)) })
    }

    #[inline(always)]
    fn backend(&self, id: u32) -> Option<BackendRecord> {
        // SAFETY: the pointer is to a value of the array.
        BACKENDS.get_ptr(id).map(|backend| unsafe { load(backend) })
    }
}

/// Reads a map value that others write meanwhile: volatile, in 64-bit words, which is what the
/// writers write whole.
///
/// # Safety
/// `from` points to a value of a map, which is aligned to 8.
#[inline(always)]
pub(crate) unsafe fn load<T: Pod>(from: *const T) -> T {
    let mut value = T::zeroed();
    // SAFETY: the caller vouches for it.
    unsafe { load_into(&mut value, from) };
    value
}

/// As [`load`], without a copy on the stack.
///
/// # Safety
/// As for [`load`].
#[inline(always)]
pub(crate) unsafe fn load_into<T: Pod>(to: &mut T, from: *const T) {
    const { assert!(size_of::<T>().is_multiple_of(8) && align_of::<T>() == 8) };
    let to = ptr::from_mut(to).cast::<u64>();
    for word in 0..size_of::<T>() / 8 {
        // SAFETY: both are `size_of::<T>()` bytes long, and any bytes are a `T`.
        unsafe { to.add(word).write(from.cast::<u64>().add(word).read_volatile()) };
    }
}
