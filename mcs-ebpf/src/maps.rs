//! The maps of mcs-common, and the working memory of the programs, which is not pinned.

use core::{hint::cold_path, ptr};

use aya_ebpf::{
    Global,
    bindings::{BPF_ANY, BPF_F_MMAPABLE, BPF_F_NO_PREALLOC},
    btf_maps::{Array, HashMap, LruHashMap, PerCpuArray, SkStorage},
    helpers::{bpf_get_current_pid_tgid, bpf_get_smp_processor_id},
    macros::btf_map,
};
use bytemuck::Pod;
use mcs_common::{
    Address, AddressKinds, BackendRecord, FilterBucket, FrontendKey, FrontendState, Liveness,
    maps::Entries,
    select::{Arrays, Tables},
};

use crate::{
    packet::clock::tick_ns,
    per_cpu::{RefusalBudget, Scratch},
};

const MMAPABLE: usize = BPF_F_MMAPABLE as usize;
const SPARSE: usize = BPF_F_NO_PREALLOC as usize;
pub(crate) const LRU_ENTRIES: usize = mcs_common::maps::LRU_ENTRIES as usize;

/// Declares the statics of the pinned maps. The object has each map's type; the agent sets the sizes that depend on it.
macro_rules! declare {
    ($(
        $(#[doc = $doc:literal])+
        $map:ident $name:tt $place:ident $kind:ident[$($type:ty),+] $entries:ident $(($number:expr))?;
    )+) => {$(
        #[btf_map(name = $name)]
        pub(crate) static $map: map_type!($kind[$($type),+] { Entries::$entries $(($number))?.declared() }) =
            <map_type!($kind[$($type),+] { Entries::$entries $(($number))?.declared() })>::new();
    )+};
}

macro_rules! map_type {
    (Hash[$key:ty, $value:ty] $entries:block) => { HashMap<$key, $value, $entries> };
    (SparseHash[$key:ty, $value:ty] $entries:block) => { HashMap<$key, $value, $entries, SPARSE> };
    (LruHash[$key:ty, $value:ty] $entries:block) => { LruHashMap<$key, $value, $entries> };
    (Array[$value:ty] $entries:block) => { Array<$value, $entries> };
    (MappedArray[$value:ty] $entries:block) => { Array<$value, $entries, MMAPABLE> };
    (PerCpuArray[$value:ty] $entries:block) => { PerCpuArray<$value, $entries> };
    (SocketStorage[$value:ty] $entries:block) => { SkStorage<$value> };
}

mcs_common::each_map!(declare);

/// How many buckets `hints` has; 0: no address is filtered.
#[unsafe(no_mangle)]
static HINT_BUCKETS: Global<u32> = Global::new(0);

/// 1 if the programs leave VIPs alone after the deadline in `alive`. With 0 the verifier removes the look as dead code.
#[unsafe(no_mangle)]
static RELEASE_ORPHANS: Global<u8> = Global::new(0);

/// 1 if a packet program can run on a CPU while another one waits there (`PREEMPT_RT` from Linux 6.18). With 0 the
/// verifier removes all code for that as dead code.
#[unsafe(no_mangle)]
static SCRATCH_PER_TASK: Global<u8> = Global::new(0);

#[btf_map(name = "scratch")]
static SCRATCH: PerCpuArray<Scratch, 1> = PerCpuArray::new();
/// The agent sets its size.
#[btf_map(name = "task_scratch")]
static TASK_SCRATCH: LruHashMap<u64, Scratch, 1> = LruHashMap::new();
#[btf_map(name = "refusals")]
pub(crate) static REFUSALS: PerCpuArray<RefusalBudget, 1> = PerCpuArray::new();

/// Sees to it that this task has a value in `task_scratch`. Its first one is this CPU's, because the stack has no room
/// for any.
///
/// Only the beginning of a run calls it: Linux 5.10 adds up the frames of all functions on the way.
#[inline(never)]
fn add_task() {
    let key = task();
    if TASK_SCRATCH.get_ptr(key).is_none()
        && let Some(initial) = SCRATCH.get_ptr(0)
    {
        // SAFETY: the pointer is to this CPU's value of the map. Nothing writes it if tasks have their own, and any
        // bytes are a `Scratch`.
        let _ = TASK_SCRATCH.insert(key, unsafe { &*initial }, BPF_ANY.into());
    }
}

/// The working memory of this run: the CPU's, or the task's. Who has it lends it: a global function takes no reference, so
/// a function that calls one takes `&mut Memory`, and its caller has no reference into the memory meanwhile.
pub(crate) struct Memory(());

impl Memory {
    /// The memory of the run that begins.
    ///
    /// # Safety
    /// This run has no other [`Memory`].
    #[inline(always)]
    pub(crate) unsafe fn begin() -> Self {
        if SCRATCH_PER_TASK.load() != 0 {
            cold_path();
            add_task();
        }
        Self(())
    }

    /// In a global function, the memory of the function that calls it.
    ///
    /// # Safety
    /// Until the global function returns, its caller has lent its [`Memory`] and uses nothing of it.
    #[inline(always)]
    pub(crate) const unsafe fn lent() -> Self {
        Self(())
    }

    #[expect(clippy::unused_self, reason = "the borrow is what forbids a second reference")]
    #[inline(always)]
    pub(crate) fn scratch(&mut self) -> Option<&mut Scratch> {
        let scratch = if SCRATCH_PER_TASK.load() == 0 {
            SCRATCH.get_ptr_mut(0)
        } else {
            TASK_SCRATCH.get_ptr_mut(task())
        };
        // SAFETY: the pointer is to the value of this CPU or task. No other run uses it meanwhile, and in this run nobody
        // else: `self` is borrowed. Any bytes are a `Scratch`.
        scratch.map(|scratch| unsafe { &mut *scratch })
    }
}

/// This task on this CPU: a key of `task_scratch`.
///
/// The idle tasks of all CPUs have the number 0, so the CPU is part of the key. No task moves while softirqs are off. An
/// entry in use goes only if thousands of other tasks run programs while its task waits.
#[inline(always)]
fn task() -> u64 {
    // SAFETY: the helpers take no argument.
    let (task, cpu) = unsafe { (bpf_get_current_pid_tgid(), bpf_get_smp_processor_id()) };
    // The upper half of `task` has the number of its process.
    task << 32 | u64::from(cpu)
}

/// The config maps, for the selection code that kernel and user space share.
pub(crate) struct ConfigMaps;

impl Tables for ConfigMaps {
    #[inline(always)]
    fn kinds_of(&self, address: &Address) -> AddressKinds {
        let buckets = HINT_BUCKETS.load();
        if buckets == 0 {
            return AddressKinds::ANY;
        }
        let bucket = FilterBucket::of(address, buckets);
        // SAFETY: the pointer is to a value of the array.
        let word = HINTS.get_ptr(bucket.word()).map(|word| unsafe { ptr::read_volatile(word) });
        word.map_or(AddressKinds::ANY, |word| bucket.kinds(word))
    }

    #[inline(always)]
    fn vip(&self, address: &Address) -> Option<u32> {
        // SAFETY: the pointer is to a value of the map. If the map reuses the element meanwhile, this is the
        // mode of another VIP, for one packet or connection.
        let mode = unsafe { ptr::read_volatile(VIPS.get_ptr(address)?) };
        if RELEASE_ORPHANS.load() == 0 {
            return Some(mode);
        }
        Some(Liveness::mode_at(mode, deadline_ns()?, tick_ns()))
    }

    #[inline(always)]
    fn are_released(&self) -> bool {
        RELEASE_ORPHANS.load() != 0
            && deadline_ns().is_some_and(|deadline| Liveness::is_over(deadline, tick_ns()))
    }

    #[inline(always)]
    fn frontend(&self, key: &FrontendKey) -> Option<u32> {
        // SAFETY: the pointer is to a value of the map. The map may reuse the element meanwhile; the
        // copy of the key in `states` reveals that.
        FRONTENDS.get_ptr(key).map(|index| unsafe { ptr::read_volatile(index) })
    }
}

/// [`Liveness::deadline_ns`].
#[inline(always)]
fn deadline_ns() -> Option<u64> {
    // SAFETY: the pointer is to a value of the array.
    ALIVE.get_ptr(0).map(|alive| unsafe { (&raw const (*alive).deadline_ns).read_volatile() })
}

impl Arrays for ConfigMaps {
    #[inline(always)]
    fn state(&self, index: u32) -> Option<FrontendState> {
        // SAFETY: the pointer is to a value of the array.
        STATES.get_ptr(index).map(|state| unsafe { load(state) })
    }

    #[inline(always)]
    fn slot(&self, index: u32) -> Option<u32> {
        let pair = SLOTS.get_ptr(index / 2)?.cast::<u32>();
        // SAFETY: the pointer is to a value of the array, which has two words.
        Some(unsafe { ptr::read_volatile(pair.add(index as usize % 2)) })
    }

    #[inline(always)]
    fn backend(&self, id: u32) -> Option<BackendRecord> {
        // SAFETY: the pointer is to a value of the array.
        BACKENDS.get_ptr(id).map(|backend| unsafe { load(backend) })
    }
}

/// Copies a map value that user space or another CPU writes meanwhile. Each 64-bit word is read once:
/// writers store words, and nothing larger, at once.
///
/// # Safety
/// `from` points to a value of a map, which is aligned to 8 bytes.
#[inline(always)]
pub(crate) unsafe fn load<T: Pod>(from: *const T) -> T {
    let mut value = T::zeroed();
    // SAFETY: the caller guarantees it.
    unsafe { load_into(&mut value, from) };
    value
}

/// Stores a map value that user space reads meanwhile: each 64-bit word at once, in order.
///
/// # Safety
/// `to` points to a value of a map, which is aligned to 8 bytes.
#[inline(always)]
pub(crate) unsafe fn store<T: Pod>(to: *mut T, from: &T) {
    const { assert!(size_of::<T>().is_multiple_of(8) && align_of::<T>() == 8) };
    let from = ptr::from_ref(from).cast::<u64>();
    for word in 0..size_of::<T>() / 8 {
        // SAFETY: both are `size_of::<T>()` bytes long, and any bytes are a `T`.
        unsafe { to.cast::<u64>().add(word).write_volatile(from.add(word).read()) };
    }
}

/// Copies as [`load`] does, without a copy on the stack.
///
/// # Safety
/// The requirement of [`load`].
#[inline(always)]
pub(crate) unsafe fn load_into<T: Pod>(to: &mut T, from: *const T) {
    const { assert!(size_of::<T>().is_multiple_of(8) && align_of::<T>() == 8) };
    let to = ptr::from_mut(to).cast::<u64>();
    for word in 0..size_of::<T>() / 8 {
        // SAFETY: both are `size_of::<T>()` bytes long, and any bytes are a `T`.
        unsafe { to.add(word).write(from.cast::<u64>().add(word).read_volatile()) };
    }
}
