use std::{io, path::Path};

use aya::maps::{HashMap, Map, MapData};
use mcs_common::{Flow, Tuple};

use super::kernel::into_io;
use crate::{
    bpf::for_each_entry,
    flows::{Entry, FlowCapacity, FlowPair, Pairing},
};

/// `bpf(2)`: fail with EEXIST where there is an entry.
const BPF_NOEXIST: u64 = 1;

/// The pinned flow table. The programs write it at the same time. To read it from here makes no
/// entry more recently used.
#[derive(Debug)]
pub struct FlowTable {
    map: HashMap<MapData, Tuple, Flow>,
    capacity: FlowCapacity,
}

impl FlowTable {
    /// Opens the table that is pinned here.
    pub fn open(pin: &Path) -> io::Result<Self> {
        let map = MapData::from_pin(pin).map_err(into_io)?;
        let capacity = FlowCapacity::of(map.info().map_err(into_io)?.max_entries());
        let map = HashMap::try_from(Map::LruHashMap(map)).map_err(into_io)?;
        Ok(Self { map, capacity })
    }

    /// How many flows it has room for.
    pub const fn capacity(&self) -> FlowCapacity {
        self.capacity
    }

    /// Hands over every entry.
    pub fn for_each(&self, mut take: impl FnMut(Entry)) -> io::Result<()> {
        for_each_entry(&self.map, |key, flow| take(Entry { key, flow }))
    }

    /// Every flow.
    pub fn flows(&self) -> io::Result<Vec<FlowPair>> {
        let mut pairing = Pairing::default();
        let mut flows = Vec::new();
        self.for_each(|entry| flows.extend(pairing.add(entry)))?;
        flows.extend(pairing.rest());
        Ok(flows)
    }

    /// The entry for packets with this tuple.
    pub fn get(&self, key: Tuple) -> io::Result<Option<Entry>> {
        match self.map.get(&key, 0).map_err(into_io) {
            Ok(flow) => Ok(Some(Entry { key, flow })),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> io::Result<bool> {
        self.map.keys().next().transpose().map(|key| key.is_none()).map_err(into_io)
    }

    /// Removes the entries of a flow, unless a packet has come since it was found due at `now_ns`.
    /// Returns how many there were.
    ///
    /// A packet that comes between this look and the removal is translated but not remembered, after
    /// minutes without one: with the next packet of the client the flow begins anew, at the backend
    /// that its hash leads to, the same as long as the set is. Until then replies go untranslated.
    pub fn forget(&mut self, flow: &FlowPair, now_ns: u64) -> io::Result<usize> {
        let Some(one) = self.get(flow.first_key())? else { return Ok(0) };
        let flow = FlowPair::new(one, self.get(one.other_key())?);
        if !flow.is_due(now_ns) {
            return Ok(0);
        }
        flow.entries().try_fold(0, |removed, entry| {
            self.remove(&entry.key)?;
            Ok(removed + 1)
        })
    }

    /// Adds an entry, unless there is one under its key. Returns whether it did.
    pub fn add(&mut self, entry: &Entry) -> io::Result<bool> {
        match self.map.insert(entry.key, entry.flow, BPF_NOEXIST).map_err(into_io) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes an entry. Absent is as good.
    pub fn remove(&mut self, key: &Tuple) -> io::Result<()> {
        match self.map.remove(key).map_err(into_io) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            result => result,
        }
    }

    /// Adds the flows of another table that it has not got and that had a packet since
    /// `seen_since_ns`, at most as many as fit: the most recently seen. Returns how many there were,
    /// and how many of them were left out.
    pub fn take_over(&mut self, other: &Self, seen_since_ns: u64) -> io::Result<TakenOver> {
        let mut flows = other.flows()?;
        flows.retain(|flow| flow.last_seen_ns().saturating_add(Flow::TOUCH_NS) >= seen_since_ns);
        flows.sort_unstable_by_key(FlowPair::last_seen_ns);
        let left_out = flows.len().saturating_sub(self.capacity.0 as usize);
        // In this order, so that the oldest is evicted first.
        let mut taken = 0;
        for flow in &flows[left_out..] {
            let mut added = false;
            for entry in flow.entries() {
                added |= self.add(&entry)?;
            }
            taken += usize::from(added);
        }
        Ok(TakenOver { taken, left_out })
    }
}

/// What became of the flows of another table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TakenOver {
    /// Flows that are in this one now.
    pub taken: usize,
    /// Flows for which there was no room.
    pub left_out: usize,
}
