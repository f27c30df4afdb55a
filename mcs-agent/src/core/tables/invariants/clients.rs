//! UDP clients that remember their backends.

use std::{collections::BTreeMap, net::SocketAddr};

use mcs_common::{
    BackendRef,
    select::{self, Lookup},
};

use crate::core::{
    model::{DesiredState, Frontend, FrontendId, Protocol},
    tables::{
        MapContents,
        contents::{backend_address, frontend_key},
        view::picks,
    },
};

/// A client of every backend that any frontend of UDP has had.
#[derive(Debug, Default)]
pub(super) struct Clients(BTreeMap<FrontendId, BTreeMap<BackendRef, SocketAddr>>);

impl Clients {
    /// Every client stays with a backend that serves, and leaves others. New ones come to every backend.
    pub(super) fn look(&mut self, contents: &MapContents, desired: &DesiredState) {
        self.0.retain(|id, _| desired.frontends.contains_key(id));
        for (id, frontend) in
            desired.frontends.iter().filter(|(id, _)| id.protocol == Protocol::Udp)
        {
            let Lookup::Found(found) = select::lookup_port(contents, &frontend_key(id)) else {
                panic!("{id} is not in the maps");
            };
            let clients = self.0.entry(*id).or_default();
            clients.retain(|remembered, address| {
                let stays = stays(contents, found.index, *remembered, *address, frontend);
                assert_eq!(stays, desired.keeps(id, *address), "{address} of {frontend:?}");
                stays
            });
            for choice in
                picks(contents, found.state.extent).map(|choice| choice.expect("a backend"))
            {
                clients.insert(choice.chosen, backend_address(&choice.backend));
            }
        }
    }
}

/// Whether the client stays with its backend.
fn stays(
    contents: &MapContents,
    index: u32,
    remembered: BackendRef,
    address: SocketAddr,
    frontend: &Frontend,
) -> bool {
    let stays = select::recall(contents, index, remembered).is_some();
    let is_for_new = select::recall_for_new(contents, index, remembered).is_some();
    assert!(!is_for_new || frontend.backend(address).is_some(), "a new client gets {address}");
    stays
}
