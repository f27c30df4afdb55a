//! What flows say of their backends, for passive health: whether TCP connects were answered.

use std::{
    collections::{BTreeMap, HashSet},
    net::SocketAddr,
};

use bytemuck::Zeroable;
use mcs_common::{BackendRef, ClientFailures, HealthRecord, Tuple};

use super::pair::{Connect, FlowPair};

/// What flows say of each backend. The clients of a record are devices: see [`is_device`]. `failed` counts the flows that
/// have failed since the sweep before.
pub type FlowRecords = BTreeMap<(BackendRef, SocketAddr), HealthRecord>;

/// The connects of the flows, in one sweep of the table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Connects {
    records: FlowRecords,
    /// The flows of the sweep before, as in `known`; `None` if there was none.
    before: Option<HashSet<(u64, bool)>>,
    /// The flows of this sweep: the [`number`] of each, and whether it was accepted.
    known: HashSet<(u64, bool)>,
}

const DEVICE: u64 = 1 << 63;

/// The number of a device as a client.
const fn device_client(device: u32) -> u64 {
    DEVICE | device as u64
}

/// Whether a client of a record is a device, and not a network namespace, whose cookie is smaller.
pub const fn is_device(client: u64) -> bool {
    client & DEVICE != 0
}

/// A number of a flow. Few flows share one, since a table can have a million flows.
fn number(client: &Tuple) -> u64 {
    u64::from(client.short_hash()) << 32 | u64::from(client.device)
}

impl Connects {
    /// Begins the next sweep. A flow that was accepted in this sweep says nothing new then: its packets answer no connect.
    /// A flow that has failed is not counted again.
    #[must_use]
    pub fn next(self) -> Self {
        Self { before: Some(self.known), ..Self::default() }
    }

    /// Adds a flow, in any order.
    pub fn add(&mut self, flow: &FlowPair) {
        let Some(connect) = flow.connect() else { return };
        let Tuple { dst, dst_port, .. } = flow.translated();
        let key = (flow.flow().chosen, SocketAddr::new(dst.to_ip(), dst_port));
        let record = self.records.entry(key).or_insert_with(HealthRecord::zeroed);
        let known = (number(&flow.client()), matches!(connect, Connect::Answered(_)));
        let is_new = self.before.as_ref().is_some_and(|before| !before.contains(&known));
        self.known.insert(known);
        match connect {
            Connect::Answered(at) if is_new => record.answered_ns = record.answered_ns.max(at),
            Connect::Answered(_) => {}
            Connect::Failed(at) => {
                record.failed += u64::from(is_new);
                fail(record, device_client(flow.client().device), at);
            }
        }
    }

    /// What flows said in this sweep.
    pub const fn records(&self) -> &FlowRecords {
        &self.records
    }
}

fn fail(record: &mut HealthRecord, client: u64, at: u64) {
    let one = &mut record.failures[record.place_of(client)];
    if one.netns_cookie != client {
        if at > one.latest_ns {
            *one = ClientFailures { netns_cookie: client, latest_ns: at, ..Zeroable::zeroed() };
        }
    } else if at > one.latest_ns {
        (one.latest_ns, one.before_ns) = (at, one.latest_ns);
    } else {
        one.before_ns = one.before_ns.max(at);
    }
}
