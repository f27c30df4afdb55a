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
    NetNamespaces,
    pass::namespace_cookie,
    socket_slots::SocketSlots,
    thread::{Work, begin},
};
use crate::netlink::SocketDiag;

/// How often the agent looks. After a look that takes long it rests for this many times as long.
const EVERY: Duration = Duration::from_secs(5);
const RESTS: u32 = 100;
/// The agent looks for lost slots when more than one slot in this many is taken.
const ENOUGH: u32 = 4;
/// A slot is free after this many looks that do not find its socket: the kernel does not list a socket whose connect
/// has just begun.
const LOOKS: u32 = 2;
/// The same, if the agent does not find the socket's namespace. The namespace may be gone, or have neither a name nor a
/// process.
const LOOKS_ELSEWHERE: u32 = 12;

/// Frees lost slots, on threads of its own.
pub struct LostSocketSlots {
    state: PathBuf,
    at: tokio::time::Instant,
    running: Option<Work<Leaks>>,
    unlisted: Unlisted,
}

impl LostSocketSlots {
    /// Looks into the table that is pinned in the state directory.
    pub fn new(state: PathBuf) -> Self {
        let at = tokio::time::Instant::now() + EVERY;
        Self { state, at, running: None, unlisted: Unlisted::default() }
    }

    /// Waits for the end of the next look. If the future is dropped before, the next call waits for the same look.
    pub async fn next(&mut self) {
        let looking = if let Some(looking) = &mut self.running {
            looking
        } else {
            tokio::time::sleep_until(self.at).await;
            let (state, before) = (self.state.clone(), std::mem::take(&mut self.unlisted));
            self.running.insert(begin("lost-slots", move || free_leaks(&state, &before)))
        };
        let leaks = looking.result().await.unwrap_or_else(|error| {
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

/// Slots whose sockets the kernel does not list. By the socket's cookie: what the slot has, and how many looks did not
/// find the socket.
type Unlisted = HashMap<u64, (SocketSlot, u32)>;

/// The result of a look for lost slots.
#[derive(Debug, Default)]
struct Leaks {
    /// Slots that were freed.
    freed: usize,
    /// Slots that are to be freed if their sockets are not listed the next times either.
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
    let (lost, unlisted) = Listing::find().judge(taken, before);
    leaks.unlisted = unlisted;
    if !lost.is_empty() {
        // A dump can skip a socket while others close.
        let again = Listing::find();
        for connection in lost.iter().filter(|lost| again.looks_until_lost(lost).is_some()) {
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
    /// The cookies of the namespaces that were looked into.
    namespaces: HashSet<u64>,
    /// Whether these are all that have a name or a process.
    is_complete: bool,
}

impl Listing {
    /// Lists the sockets of all namespaces that the agent can look into.
    fn find() -> Self {
        let found = NetNamespaces::find();
        let is_complete = found.closed == 0 && sees_all_processes();
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

    /// After how many looks like this one the socket of a slot counts as closed. `None` if it lives, or if nobody knows.
    fn looks_until_lost(&self, connection: &SocketSlot) -> Option<u32> {
        if self.cookies.contains(&connection.cookie) {
            None
        } else if self.namespaces.contains(&connection.netns_cookie) {
            Some(LOOKS)
        } else {
            self.is_complete.then_some(LOOKS_ELSEWHERE)
        }
    }

    /// The slots whose sockets are closed, and those whose sockets may be.
    fn judge(&self, taken: Vec<SocketSlot>, before: &Unlisted) -> (Vec<SocketSlot>, Unlisted) {
        let (mut lost, mut unlisted) = (Vec::new(), Unlisted::new());
        for connection in taken {
            let Some(needed) = self.looks_until_lost(&connection) else { continue };
            let former = before.get(&connection.cookie);
            let former = former.filter(|(former, _)| *former == connection);
            let looks = former.map_or(1, |(_, looks)| looks + 1);
            if looks >= needed {
                lost.push(connection);
            } else {
                unlisted.insert(connection.cookie, (connection, looks));
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
            let (lost, unlisted) = listing.judge(vec![slot], &before);
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
        assert_eq!(looks(&complete, slot(2, 7)), LOOKS);
        // The namespace is gone, or the kernel does not tell which one this is.
        assert_eq!(looks(&complete, slot(2, 8)), LOOKS_ELSEWHERE);
        assert_eq!(looks(&complete, slot(1, 8)), 0);
        // The agent cannot look everywhere.
        let partial = Listing { is_complete: false, ..complete };
        assert_eq!(looks(&partial, slot(2, 7)), LOOKS);
        assert_eq!(looks(&partial, slot(2, 8)), 0);
    }

    #[test]
    fn looks_begin_anew_if_the_slot_changes_hands() {
        let listing = Listing { namespaces: [7].into(), ..Listing::default() };
        let (_, before) = listing.judge(vec![slot(2, 7)], &Unlisted::new());
        let other = SocketSlot { vip_port: 80, ..slot(2, 7) };
        assert!(listing.judge(vec![other], &before).0.is_empty());
    }
}
