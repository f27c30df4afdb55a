use std::os::fd::AsFd as _;

use super::{
    TcError, TcHook,
    hook::{Classifier, Position},
    pins::TcPins,
};
use crate::netlink::{Direction, Filter, FilterPlace, Netlink, NewFilter};

/// What is there for filters on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Host {
    /// Nothing.
    None,
    /// A qdisc with both sides.
    Clsact,
    /// An older one, with ingress alone.
    Ingress,
}

/// Filters whose names begin with the path of our directory.
#[derive(Clone, Debug)]
pub(super) struct Clsact {
    pub(super) netlink: Netlink,
    pub(super) owner: String,
    pub(super) pins: TcPins,
}

impl Clsact {
    fn name(&self, hook: TcHook) -> String {
        format!("{}/{}", self.owner, hook.name())
    }

    /// The hook that a filter is ours for.
    pub(super) fn hook(&self, filter: &Filter) -> Option<TcHook> {
        let name = filter.name.as_ref()?.strip_prefix(&self.owner)?.strip_prefix('/')?;
        TcHook::named(name).filter(|hook| hook.direction() == filter.place.direction)
    }

    /// The filters of both sides of a device.
    pub(super) async fn filters(&self, device: u32) -> Result<Vec<Filter>, TcError> {
        let mut filters = Vec::new();
        for direction in Direction::ALL {
            filters.extend(self.netlink.filters(device, direction).await?);
        }
        Ok(filters)
    }

    /// Adds a filter among those that are there.
    pub(super) async fn attach(
        &self,
        hook: TcHook,
        device: u32,
        classifier: &Classifier,
        host: Host,
        filters: &[Filter],
    ) -> Result<(), TcError> {
        match host {
            Host::Clsact => {}
            Host::Ingress => return Err(TcError::IngressQdisc),
            Host::None => {
                if self.netlink.add_clsact(device).await? {
                    let error = |error| TcError::bpf("note that a qdisc was added", error);
                    self.pins.set_mark(device).map_err(error)?;
                }
            }
        }
        let direction = hook.direction();
        let no_priority = TcError::NoPriority { hook: hook.name(), direction: direction.name() };
        let priority = priority(hook.position(), direction, filters).ok_or(no_priority)?;
        let place = FilterPlace { index: device, direction, priority, handle: 0 };
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

    /// Removes a filter.
    pub(super) async fn detach(&self, place: FilterPlace) -> Result<(), TcError> {
        Ok(self.netlink.remove_filter(place).await?)
    }

    /// Removes the qdiscs that we have added and that hold no filter any more.
    pub(super) async fn collect(&self) -> Result<(), TcError> {
        let error = |error| TcError::bpf("look which qdiscs were added", error);
        for device in self.pins.marked().map_err(error)? {
            if self.filters(device).await?.is_empty() {
                self.netlink.remove_clsact(device).await?;
                self.pins.remove_mark(device).map_err(error)?;
            }
        }
        Ok(())
    }
}

/// A priority before, or after, all filters that are there. Filters of one priority must be of one
/// kind and protocol.
fn priority(position: Position, direction: Direction, filters: &[Filter]) -> Option<u16> {
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
