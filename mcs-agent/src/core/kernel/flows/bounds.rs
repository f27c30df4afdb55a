//! Frontends that are bounded: their flows end where the backend serves no more.

use std::{
    collections::{BTreeMap, HashSet},
    net::SocketAddr,
};

use mcs_common::FlowFlags;

use super::FlowPair;
use crate::core::model::{DesiredState, FrontendId, Protocol};

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
