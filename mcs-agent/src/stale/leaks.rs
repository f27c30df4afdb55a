//! Slots of sockets that were closed while no program released them: the hooks were detached, or the kernel made
//! the socket for itself. Such a slot is lost until the agent frees it, and misleads nobody.

use std::{
    collections::{HashMap, HashSet},
    io,
    path::Path,
    time::{Duration, Instant},
};

use mcs_common::SlotConnection;

use super::{NetNamespaces, pass::namespace_cookie, slots::SocketSlots};
use crate::netlink::SocketDiag;

/// The agent looks for lost slots when more than one in so many is taken.
const ENOUGH: u32 = 4;

/// Slots whose sockets the kernel does not list, each by the socket's cookie.
#[derive(Debug, Default)]
pub(super) struct Unlisted(HashMap<u64, SlotConnection>);

/// The result of a look for lost slots.
#[derive(Debug, Default)]
pub(super) struct Leaks {
    /// Slots that were freed.
    pub(super) freed: usize,
    /// Slots that are to be freed if their sockets are not listed the next time either.
    pub(super) unlisted: Unlisted,
    /// How long it took.
    pub(super) took: Duration,
}

/// Frees the slots whose sockets the kernel lists neither now nor at the time of `before`: it does not list a socket
/// whose connect has just begun. The current thread moves through the namespaces, so it must not do anything else
/// afterwards.
pub(super) fn free_leaks(state: &Path, before: &Unlisted) -> io::Result<Leaks> {
    let began = Instant::now();
    let mut slots = SocketSlots::open(state)?;
    if slots.taken() <= (slots.slots() / ENOUGH) as usize {
        return Ok(Leaks::default());
    }
    let taken: HashMap<u64, SlotConnection> =
        slots.all().map(|(_, connection)| (connection.cookie, connection)).collect();
    let (mut visited, mut listed) = (HashSet::new(), HashSet::new());
    for namespace in NetNamespaces::find().namespaces {
        // Sockets of a namespace that the agent cannot look into keep their slots.
        let Ok(Some(cookie)) = namespace.enter().and_then(|()| namespace_cookie()) else {
            continue;
        };
        let Ok(cookies) = SocketDiag::open().and_then(|diag| diag.cookies()) else { continue };
        visited.insert(cookie);
        listed.extend(cookies);
    }
    let mut leaks = Leaks::default();
    for (cookie, connection) in taken {
        if !visited.contains(&connection.netns_cookie) || listed.contains(&cookie) {
            continue;
        }
        if before.0.get(&cookie) == Some(&connection) {
            slots.free(cookie)?;
            leaks.freed += 1;
        } else {
            leaks.unlisted.0.insert(cookie, connection);
        }
    }
    leaks.took = began.elapsed();
    Ok(leaks)
}
