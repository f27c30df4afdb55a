//! The pinned flow table: its place, its size, its entries, and the frontends whose flows end with their backend.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashSet},
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use mcs_common::{Address, Flow, FlowFlags, Tuple, maps};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::{FlowEntry, FlowPair, Pairing};
use crate::core::{
    kernel::bpf::PinnedHash,
    model::{DesiredState, FrontendId, Protocol},
};

/// The pinned flow table. The programs write it at the same time. A read from here makes no entry more recently
/// used.
#[derive(Debug)]
pub struct FlowTable(PinnedHash<Tuple, Flow>);

impl FlowTable {
    /// Opens the table that is pinned here.
    pub fn open(pin: &Path) -> io::Result<Self> {
        PinnedHash::open(pin).map(Self)
    }

    /// Flows for which there is room.
    pub const fn capacity(&self) -> FlowCapacity {
        FlowCapacity::of(self.0.max_entries())
    }

    /// Reads every entry.
    pub fn for_each(&self, mut take: impl FnMut(FlowEntry)) -> io::Result<()> {
        self.0.for_each(|key, flow| take(FlowEntry { key, flow }))
    }

    /// Every flow.
    pub fn flows(&self) -> io::Result<Vec<FlowPair>> {
        let mut pairing = Pairing::default();
        let mut flows = Vec::new();
        self.for_each(|entry| flows.extend(pairing.add(entry)))?;
        flows.extend(pairing.rest());
        Ok(flows)
    }

    /// The flows of these frontends.
    pub fn of_frontends(
        &self,
        frontends: &BTreeSet<FrontendId>,
        most: usize,
    ) -> io::Result<BTreeMap<FrontendId, FrontendFlows>> {
        let mut found = BTreeMap::<FrontendId, FrontendFlows>::new();
        self.for_each(|FlowEntry { key, flow }| {
            let at = |ip: Address, port| SocketAddr::new(ip.to_ip(), port);
            let Some(protocol) = Protocol::from_number(key.protocol) else { return };
            let id = FrontendId { ip: key.dst.to_ip(), port: key.dst_port, protocol };
            if flow.is_reply() || !frontends.contains(&id) {
                return;
            }
            let flows = found.entry(id).or_default();
            flows.count += 1;
            if flows.some.len() < most {
                flows.some.push((at(key.src, key.src_port), at(flow.to.dst, flow.to.dst_port)));
            }
        })?;
        Ok(found)
    }

    /// The entry for packets with this tuple.
    pub fn get(&self, key: Tuple) -> io::Result<Option<FlowEntry>> {
        Ok(self.0.get(&key)?.map(|flow| FlowEntry { key, flow }))
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> io::Result<bool> {
        self.0.is_empty()
    }

    /// Removes the entries of a flow, unless it is not over any more: a packet may have come since it was found.
    /// Returns how many there were.
    ///
    /// A packet between the check and the removal is translated, but the flow is removed all the same: it had no packet for
    /// minutes. The next datagram of the client begins the flow again. Its hash leads to the same backend as long as the
    /// frontend has the same backends. Until then replies are not translated. A TCP connection ends: the uplink answers its
    /// next packet with a reset, unless flows may have been evicted.
    pub fn forget(
        &mut self,
        flow: &FlowPair,
        is_over: impl Fn(&FlowPair) -> bool,
    ) -> io::Result<usize> {
        let Some(one) = self.get(flow.first_key())? else { return Ok(0) };
        let flow = FlowPair::new(one, self.get(one.other_key())?);
        if !is_over(&flow) {
            return Ok(0);
        }
        flow.entries().try_fold(0, |removed, entry| {
            self.remove(&entry.key)?;
            Ok(removed + 1)
        })
    }

    /// Adds an entry, unless there is one under its key. Returns whether it did.
    pub fn add(&mut self, entry: &FlowEntry) -> io::Result<bool> {
        self.0.add(&entry.key, entry.flow)
    }

    /// Removes an entry. An absent entry counts as success.
    pub fn remove(&mut self, key: &Tuple) -> io::Result<()> {
        self.0.remove(key)
    }

    /// Copies the flows of other tables that had a packet since `seen_since_ns`: the most recently seen ones
    /// if there is no room for all. An entry stays as it is if this table has it and its packets came by here of late.
    pub fn copy_from(&mut self, others: &[Self], seen_since_ns: u64) -> io::Result<CopiedFlows> {
        let mut flows = Vec::new();
        for other in others {
            flows.append(&mut other.flows()?);
        }
        flows.retain(|flow| flow.last_seen_ns().saturating_add(Flow::TOUCH_NS) >= seen_since_ns);
        flows.sort_unstable_by_key(|flow| Reverse(flow.last_seen_ns()));
        let mut clients = HashSet::new();
        flows.retain(|flow| clients.insert(flow.client()));
        let left_out = flows.len().saturating_sub(self.capacity().0 as usize);
        flows.truncate(flows.len() - left_out);
        // The oldest first, so that the kernel evicts it first.
        let mut copied = 0;
        for flow in flows.iter().rev() {
            let mut added = false;
            for entry in flow.entries() {
                added |= self.add(&entry)? || self.renew(&entry)?;
            }
            copied += usize::from(added);
        }
        Ok(CopiedFlows { copied, left_out })
    }

    /// Replaces an entry by one that had packets after it. Programs may write what is replaced: so it is not one that they
    /// touch now. Returns whether it did.
    fn renew(&mut self, entry: &FlowEntry) -> io::Result<bool> {
        let Some(found) = self.get(entry.key)? else { return Ok(false) };
        let is_stale = found.flow.last_seen_ns + 2 * Flow::TOUCH_NS < entry.flow.last_seen_ns;
        if is_stale {
            self.0.set(&entry.key, entry.flow)?;
        }
        Ok(is_stale)
    }
}

/// What [`FlowTable::copy_from`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopiedFlows {
    /// Flows that were added to this table.
    pub copied: usize,
    /// Flows for which there was no room.
    pub left_out: usize,
}

/// The flows of a frontend.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FrontendFlows {
    /// How many there are.
    pub count: usize,
    /// Some of them: client and backend.
    pub some: Vec<(SocketAddr, SocketAddr)>,
}

/// Where the flow table of some programs is pinned, with what belongs to it.
#[derive(Clone, Debug)]
pub struct FlowPins {
    /// The table.
    pub table: PathBuf,
    /// The map `flows_used`.
    pub used: PathBuf,
    /// The map `flow_evictions`.
    pub evictions: PathBuf,
    /// Other tables. Programs that an earlier agent attached write one or more of them.
    pub former: Vec<PathBuf>,
}

impl FlowPins {
    /// Those in the state directory, and no other table.
    pub fn in_state(state: &Path) -> Self {
        let pin = |name| state.join(name);
        Self {
            table: pin(maps::FLOWS),
            used: pin(maps::FLOWS_USED),
            evictions: pin(maps::FLOW_EVICTIONS),
            former: Vec::new(),
        }
    }
}

/// `--max-flows`: the flows that the table has room for. The kernel allocates all of it at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FlowCapacity(pub u32);

impl Default for FlowCapacity {
    fn default() -> Self {
        Self(65_536)
    }
}

impl FlowCapacity {
    /// The capacity of a table with this many entries.
    pub const fn of(entries: u32) -> Self {
        Self(entries / 2)
    }

    /// Entries of the map `flows`: one for each direction.
    pub const fn entries(self) -> u32 {
        self.0.saturating_mul(2)
    }
}

/// The addresses that serve each bounded frontend.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlowBounds(BTreeMap<FrontendId, HashSet<SocketAddr>>);

impl FlowBounds {
    /// The bounded frontends among all that are desired.
    pub fn of(desired: &DesiredState) -> Self {
        let bounded = desired.frontends.iter().filter(|(_, frontend)| frontend.is_bounded);
        let serving = bounded.map(|(id, frontend)| {
            let all = frontend.backends.iter().chain(&frontend.also_serving);
            (*id, all.map(|one| one.address).collect())
        });
        Self(serving.collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the flow leads to an address that does not serve its frontend, which is bounded.
    pub fn exclude(&self, flow: &FlowPair) -> bool {
        if self.is_empty() || flow.flow().flags & FlowFlags::PASSED != 0 {
            return false;
        }
        let (client, backend) = (flow.client(), flow.translated());
        let Some(protocol) = Protocol::from_number(client.protocol) else { return false };
        let id = FrontendId { ip: client.dst.to_ip(), port: client.dst_port, protocol };
        let backend = SocketAddr::new(backend.dst.to_ip(), backend.dst_port);
        self.0.get(&id).is_some_and(|serving| !serving.contains(&backend))
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC`, which the programs read as `bpf_ktime_get_ns`.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is ever negative.
    let (seconds, nanoseconds) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
    seconds * 1_000_000_000 + nanoseconds
}
