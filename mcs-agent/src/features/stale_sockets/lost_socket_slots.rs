//! Slots of sockets that were closed while no program released them: the hooks were detached, or the kernel made
//! the socket for itself. Such a slot is lost until the agent frees it, and misleads nobody.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use mcs_common::SocketSlot;

use super::{
    pass::namespace_cookie,
    thread::{Work, begin},
};
use crate::core::kernel::{
    netlink::SocketDiag,
    sockets::{NetNamespaces, SocketSlots},
};

/// How often the agent searches. After a search it rests for this many times as long as the search took.
const EVERY: Duration = Duration::from_secs(5);
const RESTS: u32 = 100;
/// The agent searches for lost slots when more than one slot in this many is taken.
const ENOUGH: u32 = 4;
/// A slot is lost after this many searches that do not find its socket: the kernel does not list a socket whose connect
/// has just begun.
const SEARCHES: u32 = 2;
/// The same, if the agent does not find the socket's namespace. The namespace may be removed, or have neither a name nor
/// a process.
const SEARCHES_ELSEWHERE: u32 = 12;

/// Frees lost slots, on threads of its own.
pub struct LostSocketSlots {
    state: PathBuf,
    at: tokio::time::Instant,
    running: Option<Work<Leaks>>,
    unlisted: Unlisted,
}

impl LostSocketSlots {
    /// Searches the table that is pinned in the state directory.
    pub fn new(state: PathBuf) -> Self {
        let at = tokio::time::Instant::now() + EVERY;
        Self { state, at, running: None, unlisted: Unlisted::default() }
    }

    /// Waits for the end of the next search. If the future is dropped before, the next call waits for the same search.
    pub async fn next(&mut self) {
        let search = if let Some(search) = &mut self.running {
            search
        } else {
            tokio::time::sleep_until(self.at).await;
            let (state, before) = (self.state.clone(), std::mem::take(&mut self.unlisted));
            self.running.insert(begin("lost-slots", move || free_leaks(&state, &before)))
        };
        let leaks = search.result().await.unwrap_or_else(|error| {
            tracing::warn!("cannot look for the slots of closed sockets: {error}; trying again");
            Leaks::default()
        });
        self.running = None;
        if leaks.freed > 0 {
            tracing::info!(slots = leaks.freed, "freed the slots of sockets that were closed");
        }
        self.unlisted = leaks.unlisted;
        self.at = tokio::time::Instant::now() + leaks.took.saturating_mul(RESTS).max(EVERY);
    }
}

/// Slots whose sockets the kernel does not list, by the socket's cookie: the slot, and how many searches did not find the
/// socket.
type Unlisted = HashMap<u64, (SocketSlot, u32)>;

/// The result of a search for lost slots.
#[derive(Debug, Default)]
struct Leaks {
    /// Slots that were freed.
    freed: usize,
    /// Slots that are freed if the kernel does not list their sockets the next times either.
    unlisted: Unlisted,
    /// How long it took.
    took: Duration,
}

/// Frees the slots whose sockets the kernel lists neither now nor at the times of `before`. The current thread moves
/// through the namespaces, so it must not do anything else afterwards.
fn free_leaks(state: &Path, before: &Unlisted) -> io::Result<Leaks> {
    let began = Instant::now();
    let mut slots = SocketSlots::open(state)?;
    if slots.taken() <= (slots.slots() / ENOUGH) as usize {
        return Ok(Leaks::default());
    }
    let mut leaks = Leaks::default();
    let taken: Vec<_> = slots.all().map(|(_, connection)| connection).collect();
    let (lost, unlisted) = Listing::find().lost_and_unlisted(taken, before);
    leaks.unlisted = unlisted;
    if !lost.is_empty() {
        // A dump can skip a socket while others close.
        let again = Listing::find();
        for connection in lost.iter().filter(|lost| again.listings_until_lost(lost).is_some()) {
            slots.free(connection.cookie)?;
            leaks.freed += 1;
        }
    }
    leaks.took = began.elapsed();
    Ok(leaks)
}

/// Every socket that the kernel lists.
#[derive(Debug, Default)]
struct Listing {
    cookies: HashSet<u64>,
    /// The cookies of the namespaces whose sockets are listed.
    namespaces: HashSet<u64>,
    /// Whether these are all namespaces with a name or a process.
    is_complete: bool,
}

impl Listing {
    /// Lists the sockets of all namespaces that the agent can enter.
    fn find() -> Self {
        let found = NetNamespaces::find();
        let is_complete = found.unseen_processes == 0 && sees_all_processes();
        let mut listing = Self { is_complete, ..Self::default() };
        for namespace in found.namespaces {
            let cookies = namespace.enter().and_then(|()| SocketDiag::open()?.cookies());
            match cookies.and_then(|cookies| Ok((namespace_cookie()?, cookies))) {
                Ok((namespace, cookies)) => {
                    listing.namespaces.extend(namespace);
                    listing.cookies.extend(cookies);
                }
                // Its sockets keep their slots.
                Err(_) => listing.is_complete = false,
            }
        }
        listing
    }

    /// After how many listings like this one the socket of a slot counts as closed. `None` if it is listed, or if this
    /// listing does not tell.
    fn listings_until_lost(&self, connection: &SocketSlot) -> Option<u32> {
        if self.cookies.contains(&connection.cookie) {
            None
        } else if self.namespaces.contains(&connection.netns_cookie) {
            Some(SEARCHES)
        } else {
            self.is_complete.then_some(SEARCHES_ELSEWHERE)
        }
    }

    /// The slots whose sockets are closed, and the slots whose sockets may be closed.
    fn lost_and_unlisted(
        &self,
        taken: Vec<SocketSlot>,
        before: &Unlisted,
    ) -> (Vec<SocketSlot>, Unlisted) {
        let (mut lost, mut unlisted) = (Vec::new(), Unlisted::new());
        for connection in taken {
            let Some(needed) = self.listings_until_lost(&connection) else { continue };
            let former = before.get(&connection.cookie);
            let former = former.filter(|(former, _)| *former == connection);
            let listings = former.map_or(1, |(_, listings)| listings + 1);
            if listings >= needed {
                lost.push(connection);
            } else {
                unlisted.insert(connection.cookie, (connection, listings));
            }
        }
        (lost, unlisted)
    }
}

/// Whether `/proc` shows the processes of all containers.
fn sees_all_processes() -> bool {
    /// The inode of the first PID namespace (`PROC_PID_INIT_INO`, `include/linux/proc_ns.h`).
    const FIRST: &str = "pid:[4026531836]";
    fs::read_link("/proc/self/ns/pid").is_ok_and(|namespace| namespace == Path::new(FIRST))
}

#[cfg(test)]
mod tests {
    use bytemuck::Zeroable as _;

    use super::*;

    fn slot(cookie: u64, netns_cookie: u64) -> SocketSlot {
        SocketSlot { cookie, netns_cookie, ..SocketSlot::zeroed() }
    }

    /// After how many looks the slot is lost; 0 if it is not after many.
    fn looks(listing: &Listing, slot: SocketSlot) -> u32 {
        let mut before = Unlisted::new();
        for look in 1..100 {
            let (lost, unlisted) = listing.lost_and_unlisted(vec![slot], &before);
            if lost == [slot] {
                return look;
            }
            before = unlisted;
        }
        0
    }

    #[test]
    fn a_slot_is_lost_after_some_looks() {
        let complete = Listing { cookies: [1].into(), namespaces: [7].into(), is_complete: true };
        assert_eq!(looks(&complete, slot(1, 7)), 0, "the socket lives");
        assert_eq!(looks(&complete, slot(2, 7)), SEARCHES);
        // The namespace is gone, or the kernel does not tell which one this is.
        assert_eq!(looks(&complete, slot(2, 8)), SEARCHES_ELSEWHERE);
        assert_eq!(looks(&complete, slot(1, 8)), 0);
        // The agent cannot look everywhere.
        let partial = Listing { is_complete: false, ..complete };
        assert_eq!(looks(&partial, slot(2, 7)), SEARCHES);
        assert_eq!(looks(&partial, slot(2, 8)), 0);
    }

    #[test]
    fn looks_begin_anew_if_the_slot_changes_hands() {
        let listing = Listing { namespaces: [7].into(), ..Listing::default() };
        let (_, before) = listing.lost_and_unlisted(vec![slot(2, 7)], &Unlisted::new());
        let other = SocketSlot { vip_port: 80, ..slot(2, 7) };
        assert!(listing.lost_and_unlisted(vec![other], &before).0.is_empty());
    }
}
