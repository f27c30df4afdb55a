//! Chooses a few endpoints of many, of different services if possible.

use std::net::{IpAddr, SocketAddr};

/// The services in a sample.
const SERVICES: usize = 16;

/// Chooses `count` distinct addresses at random, with their services. The `kept` ones come first if they are still
/// endpoints of their services. Other resting pods are not chosen.
///
/// `services`: a sample of services with endpoints. `endpoints`: the endpoints of a service.
pub(super) fn choose<S: Clone>(
    services: Sample<S>,
    endpoints: impl Fn(&S) -> Vec<SocketAddr>,
    rests: impl Fn(IpAddr) -> bool,
    kept: &[(S, SocketAddr)],
    count: usize,
) -> Vec<(S, SocketAddr)> {
    let is_there = |(service, address): &&(S, SocketAddr)| endpoints(service).contains(address);
    let mut chosen: Vec<_> = kept.iter().filter(is_there).take(count).cloned().collect();
    let mut left: Vec<_> = services
        .taken
        .into_iter()
        .map(|service| {
            let mut endpoints = endpoints(&service);
            endpoints.retain(|address| !rests(address.ip()));
            (service, endpoints)
        })
        .collect();
    fastrand::shuffle(&mut left);
    while chosen.len() < count && !left.is_empty() {
        left.retain_mut(|(service, endpoints)| {
            endpoints.retain(|address| chosen.iter().all(|(_, other)| other != address));
            if endpoints.is_empty() || chosen.len() == count {
                return false;
            }
            let address = endpoints.swap_remove(fastrand::usize(..endpoints.len()));
            chosen.push((service.clone(), address));
            true
        });
    }
    chosen
}

/// A sample of many services, with equal chances. A cluster can have tens of thousands, with thousands of endpoints each.
#[derive(Clone, Debug)]
pub struct Sample<S> {
    taken: Vec<S>,
    seen: usize,
}

impl<S> Default for Sample<S> {
    fn default() -> Self {
        Self { taken: vec![], seen: 0 }
    }
}

impl<S> Sample<S> {
    /// Offers a service, which may replace another in the sample.
    pub fn add(&mut self, service: S) {
        self.seen += 1;
        if self.taken.len() < SERVICES {
            self.taken.push(service);
        } else if let Some(place) = self.taken.get_mut(fastrand::usize(..self.seen)) {
            *place = service;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &S> {
        self.taken.iter()
    }
}

impl<S> FromIterator<S> for Sample<S> {
    fn from_iter<T: IntoIterator<Item = S>>(all: T) -> Self {
        let mut sample = Self::default();
        all.into_iter().for_each(|service| sample.add(service));
        sample
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Each service has that many endpoints.
    fn endpoints(service: u8, count: u16) -> Vec<SocketAddr> {
        (1..=count).map(|port| SocketAddr::from(([10, 2, service, 1], port))).collect()
    }

    #[test]
    fn services_take_turns_and_no_address_comes_twice() {
        for _ in 0..50 {
            let chosen =
                choose((0..3).collect(), |&service| endpoints(service, 9), |_| false, &[], 4);
            let services: BTreeSet<_> = chosen.iter().map(|(service, _)| *service).collect();
            let addresses: BTreeSet<_> = chosen.iter().map(|(_, address)| *address).collect();
            assert_eq!((services.len(), addresses.len()), (3, 4));
        }
        assert_eq!(choose((0..1).collect(), |_| endpoints(0, 2), |_| false, &[], 4).len(), 2);
        assert_eq!(
            choose((0..2).collect(), |_| endpoints(0, 1), |_| false, &[], 4).len(),
            1,
            "one pod of two services"
        );
        assert!(
            choose(Sample::default(), |&service| endpoints(service, 9), |_| false, &[], 4)
                .is_empty()
        );
    }

    #[test]
    fn others_are_chosen_from_time_to_time() {
        let mut seen = BTreeSet::new();
        for _ in 0..2000 {
            let chosen =
                choose((0..100).collect(), |&service| endpoints(service, 3), |_| false, &[], 4);
            seen.extend(chosen.into_iter().map(|(_, address)| address));
        }
        assert_eq!(seen.len(), 300);
    }

    #[test]
    fn what_is_kept_comes_again_while_it_is_there() {
        let kept = [(1, endpoints(1, 9)[8]), (2, endpoints(2, 10)[9]), (1, endpoints(1, 9)[0])];
        let chosen =
            choose((0..3).collect(), |&service| endpoints(service, 9), |_| false, &kept, 3);
        assert_eq!(chosen[..2], [kept[0], kept[2]], "one is gone");
        assert_eq!(chosen.len(), 3);
    }
}
