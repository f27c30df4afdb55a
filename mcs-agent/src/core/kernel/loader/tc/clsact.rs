//! Attaching to a device by filters on a clsact qdisc.

use std::{
    fs,
    os::{fd::AsFd as _, unix::fs::MetadataExt as _},
};

use super::{
    TcError, TcHook,
    classifiers::Classifier,
    hook::Position,
    pins::{QdiscHost, TcPins},
};
use crate::core::kernel::{
    loader::Pins,
    netlink::{Direction, FilterPlace, Netlink, NewFilter, Qdisc, TcFilter},
};

/// "mcs": the handle of our filters, or the first free one above. The kernel would give them 1, and the
/// `tc filter replace ... prio 1 handle 1` of Cilium and others would replace ours.
const HANDLE: u32 = 0x006d_6373;

/// The filters of this agent: their names begin with the path of its directory.
#[derive(Clone, Debug)]
pub(super) struct Clsact {
    pub(super) netlink: Netlink,
    pins: TcPins,
    /// The path of our directory.
    owner: String,
    /// The inode of the network namespace.
    netns: u64,
}

impl Clsact {
    /// Filters of the network namespace of this thread.
    pub(super) fn new(pins: &Pins, netlink: Netlink) -> Result<Self, TcError> {
        let root = pins.root();
        let owner = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        let netns = fs::metadata("/proc/thread-self/ns/net")
            .map_err(|error| TcError::bpf("look at /proc/thread-self/ns/net", error))?;
        Ok(Self {
            netlink,
            pins: pins.tc(),
            owner: owner.to_string_lossy().into_owned(),
            netns: netns.ino(),
        })
    }

    fn name(&self, hook: TcHook) -> String {
        format!("{}/{}", self.owner, hook.name())
    }

    /// Whether the agent has added a clsact qdisc to a device of another namespace.
    pub(super) fn has_others(&self) -> Result<bool, TcError> {
        let error = |error| TcError::bpf("look which qdiscs were added", error);
        let hosts = self.pins.marked().map_err(error)?;
        Ok(hosts.iter().any(|host| host.netns != self.netns))
    }

    /// The hook of a filter; `None` if it is not ours.
    pub(super) fn hook(&self, filter: &TcFilter) -> Option<TcHook> {
        let name = filter.name.as_ref()?.strip_prefix(&self.owner)?.strip_prefix('/')?;
        TcHook::named(name).filter(|hook| hook.direction() == filter.place.direction)
    }

    /// The filters of both sides of a device.
    pub(super) async fn filters(&self, device: u32) -> Result<Vec<TcFilter>, TcError> {
        let mut filters = Vec::new();
        for direction in Direction::ALL {
            filters.extend(self.netlink.filters(device, direction).await?);
        }
        Ok(filters)
    }

    /// Adds a filter, and leaves existing ones in place.
    pub(super) async fn attach(
        &self,
        hook: TcHook,
        device: u32,
        classifier: &Classifier,
        qdisc: Option<Qdisc>,
        filters: &[TcFilter],
    ) -> Result<(), TcError> {
        match qdisc {
            Some(Qdisc::Clsact) => {}
            Some(Qdisc::Ingress) => return Err(TcError::IngressQdisc),
            None => {
                if self.netlink.add_clsact(device).await? {
                    let error = |error| TcError::bpf("note that a qdisc was added", error);
                    let host = QdiscHost { netns: self.netns, device };
                    self.pins.set_mark(host).map_err(error)?;
                }
            }
        }
        let direction = hook.direction();
        let no_priority = TcError::NoPriority { hook: hook.name(), direction: direction.name() };
        let priority = priority(hook.position(), direction, filters).ok_or(no_priority)?;
        let handle = handle(direction, priority, filters);
        let place = FilterPlace { index: device, direction, priority, handle };
        let name = self.name(hook);
        let new = NewFilter { name: &name, program: classifier.program.as_fd() };
        Ok(self.netlink.add_filter(place, new).await?)
    }

    /// Makes a filter run this program.
    pub(super) async fn update(
        &self,
        hook: TcHook,
        place: FilterPlace,
        classifier: &Classifier,
    ) -> Result<(), TcError> {
        let name = self.name(hook);
        let new = NewFilter { name: &name, program: classifier.program.as_fd() };
        Ok(self.netlink.replace_filter(place, new).await?)
    }

    /// Removes the qdiscs that the agent has added, if they have no filter any more.
    pub(super) async fn collect(&self) -> Result<(), TcError> {
        let error = |error| TcError::bpf("look which qdiscs were added", error);
        let hosts = self.pins.marked().map_err(error)?;
        for host in hosts.into_iter().filter(|host| host.netns == self.netns) {
            if self.filters(host.device).await?.is_empty() {
                self.netlink.remove_clsact(host.device).await?;
                self.pins.remove_mark(host).map_err(error)?;
            }
        }
        Ok(())
    }
}

/// The first or the last priority that the existing filters leave free. Filters of one priority must have one kind and
/// protocol. Among filters of one priority, the latest runs first: another one at the very last priority runs after ours
/// in any case.
fn priority(position: Position, direction: Direction, filters: &[TcFilter]) -> Option<u16> {
    let others =
        filters.iter().filter(|filter| filter.place.direction == direction && filter.chain == 0);
    let is_free = |priority: &u16| {
        others.clone().all(|filter| {
            filter.place.priority != *priority || (filter.is_bpf() && filter.every_protocol)
        })
    };
    let mut priorities = 1..=u16::MAX;
    match position {
        Position::First => priorities.find(is_free),
        Position::Last => priorities.rfind(is_free),
    }
}

/// A handle that no filter of this priority has.
fn handle(direction: Direction, priority: u16, filters: &[TcFilter]) -> u32 {
    let is_taken = |handle: &u32| {
        filters.iter().any(|TcFilter { place, .. }| {
            (place.direction, place.priority, place.handle) == (direction, priority, *handle)
        })
    };
    (HANDLE..u32::MAX).find(|handle| !is_taken(handle)).unwrap_or(HANDLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(priority: u16, kind: &str, protocol: bool, chain: u32) -> TcFilter {
        let direction = Direction::Egress;
        TcFilter {
            place: FilterPlace { index: 7, direction, priority, handle: 1 },
            chain,
            every_protocol: protocol,
            kind: kind.to_owned(),
            name: None,
            program: None,
        }
    }

    #[test]
    fn a_handle_is_one_that_others_do_not_have() {
        let mut ours = filter(1, "bpf", true, 0);
        assert_eq!(handle(Direction::Egress, 1, &[ours.clone()]), HANDLE, "1 is another one");
        ours.place.handle = HANDLE;
        let filters = [ours];
        assert_eq!(handle(Direction::Egress, 1, &filters), HANDLE + 1);
        assert_eq!(handle(Direction::Egress, 2, &filters), HANDLE);
        assert_eq!(handle(Direction::Ingress, 1, &filters), HANDLE);
    }

    #[test]
    fn a_priority_is_as_far_out_as_filters_of_others_allow() {
        let cases = [
            ("none", vec![], 1, u16::MAX),
            ("in the middle", vec![filter(100, "flower", true, 0)], 1, u16::MAX),
            (
                "bpf at both ends",
                vec![filter(1, "bpf", true, 0), filter(u16::MAX, "bpf", true, 0)],
                1,
                u16::MAX,
            ),
            (
                "others at both ends",
                vec![
                    filter(1, "u32", true, 0),
                    filter(2, "bpf", false, 0),
                    filter(u16::MAX, "u32", true, 0),
                ],
                3,
                u16::MAX - 1,
            ),
            ("in another chain", vec![filter(1, "u32", true, 5)], 1, u16::MAX),
        ];
        for (what, filters, first, last) in cases {
            let found = [Position::First, Position::Last]
                .map(|position| priority(position, Direction::Egress, &filters));
            assert_eq!(found, [Some(first), Some(last)], "{what}");
            let elsewhere = priority(Position::First, Direction::Ingress, &filters);
            assert_eq!(elsewhere, Some(1), "{what}");
        }
        let full: Vec<_> = (1..=u16::MAX).map(|one| filter(one, "u32", true, 0)).collect();
        assert_eq!(priority(Position::First, Direction::Egress, &full[..100]), Some(101));
    }
}
