//! What flows say of their backends, for passive health: whether TCP connects were answered.

use std::collections::BTreeMap;

use bytemuck::Zeroable;
use mcs_common::{BackendRef, ClientFailures, HealthRecord};

use super::FlowPair;

/// What became of the connect that began a flow, and when, in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Connect {
    /// The backend has accepted it, and has sent a packet at this time.
    Answered(u64),
    /// The backend has reset it, or the client had to send its SYN again.
    Failed(u64),
}

/// The connects of the flows to each backend. The clients of a record are devices: see [`is_device`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Connects(BTreeMap<BackendRef, HealthRecord>);

const DEVICE: u64 = 1 << 63;

/// The number of a device as a client.
const fn device_client(device: u32) -> u64 {
    DEVICE | device as u64
}

/// Whether a client of a record is a device, and not a network namespace, whose cookie is smaller.
pub const fn is_device(client: u64) -> bool {
    client & DEVICE != 0
}

impl Connects {
    /// Adds a flow, in whatever order they come.
    pub fn add(&mut self, flow: &FlowPair) {
        let Some(connect) = flow.connect() else { return };
        let record = self.0.entry(flow.flow().chosen).or_insert_with(HealthRecord::zeroed);
        match connect {
            Connect::Answered(at) => record.answered_ns = record.answered_ns.max(at),
            Connect::Failed(at) => fail(record, device_client(flow.client().device), at),
        }
    }

    /// What the flows to this backend say.
    pub fn of(&self, backend: BackendRef) -> Option<HealthRecord> {
        self.0.get(&backend).copied()
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
