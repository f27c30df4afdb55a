//! The pinned flow table.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashSet},
    io,
    net::SocketAddr,
    path::Path,
};

use mcs_common::{Address, Flow, Tuple};

use super::{FlowCapacity, FlowEntry, FlowPair, Pairing};
use crate::core::{
    kernel::bpf::PinnedHash,
    model::{FrontendId, Protocol},
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
