use std::collections::BTreeSet;

use super::{refusal::Refusal, service::Service};
use crate::model::{Capacity, Reason};

/// A capacity flag, and how much of it all objects together want.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    flag: &'static str,
    allowed: usize,
    noun: &'static str,
    wanted: usize,
}

impl Limit {
    pub(super) fn new(flag: &'static str, allowed: u32, noun: &'static str, wanted: usize) -> Self {
        Self { flag, allowed: usize::try_from(allowed).unwrap_or(usize::MAX), noun, wanted }
    }

    /// Whether one more fits where `used` are.
    pub(super) fn has_room(&self, used: usize) -> bool {
        self.fits(used.saturating_add(1))
    }

    /// Whether `total` fit.
    fn fits(&self, total: usize) -> bool {
        total <= self.allowed
    }

    fn suffices(&self) -> bool {
        self.fits(self.wanted)
    }

    pub(super) fn refuse(&self, what: &str) -> Refusal {
        let Self { flag, allowed, noun, wanted } = self;
        Refusal::new(
            Reason::Capacity,
            format!(
                "{what} does not fit: {wanted} {noun} are wanted and {flag} allows {allowed}; raise \
                 it to {wanted} or more"
            ),
        )
    }
}

/// Takes from the services, which are sorted by precedence, what the capacity has no room for.
///
/// A source cluster without room loses its backends. A frontend whose backends do not fit as a
/// whole keeps none, and refuses: a part of them would spread clients in a way nobody asked for.
/// What comes after it and fits is served.
pub(super) fn bound(services: &mut [Service<'_>], capacity: Capacity) {
    bound_clusters(services, capacity.clusters);
    bound_endpoints(services, capacity.endpoints);
}

/// A missing source cluster counts as one.
fn bound_clusters(services: &mut [Service<'_>], allowed: u32) {
    let wanted: BTreeSet<&str> = services.iter().flat_map(Service::clusters).collect();
    let limit = Limit::new("--max-clusters", allowed, "source clusters", wanted.len());
    if limit.suffices() {
        return;
    }
    let mut admitted: BTreeSet<String> = BTreeSet::new();
    for service in services {
        let mut refused = BTreeSet::new();
        for cluster in service.clusters() {
            if admitted.contains(cluster) {
                continue;
            }
            if limit.has_room(admitted.len()) {
                admitted.insert(cluster.to_owned());
            } else {
                refused.insert(cluster.to_owned());
            }
        }
        service.drop_clusters(&refused);
        let refusals = refused.iter().map(|name| limit.refuse(&format!("source cluster {name:?}")));
        service.refusals.extend(refusals);
    }
}

fn bound_endpoints(services: &mut [Service<'_>], allowed: u32) {
    let wanted = services.iter().flat_map(|s| &s.frontends).map(|(_, f)| f.backends.len()).sum();
    let limit = Limit::new("--max-endpoints", allowed, "endpoints", wanted);
    if limit.suffices() {
        return;
    }
    let mut used = 0;
    for Service { frontends, refusals, .. } in services {
        for (id, frontend) in frontends {
            let count = frontend.backends.len();
            if limit.fits(used + count) {
                used += count;
            } else {
                frontend.backends.clear();
                refusals.push(limit.refuse(&format!("frontend {id} with {count} endpoints")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        Backend, Frontend, FrontendId, Protocol, ServiceImport,
        fixture::{import, key},
    };

    /// A service with a frontend per list of source clusters: one backend for each.
    fn service<'a>(import: &'a ServiceImport, frontends: &[&[&str]]) -> Service<'a> {
        let frontends = frontends
            .iter()
            .zip(80..)
            .map(|(clusters, port)| {
                let id = FrontendId { ip: [10, 0, 0, 1].into(), port, protocol: Protocol::Tcp };
                let backends = clusters
                    .iter()
                    .zip(1..)
                    .map(|(cluster, port)| Backend {
                        address: ([10, 1, 0, 1], port).into(),
                        cluster: (*cluster).to_owned(),
                    })
                    .collect();
                let frontend = Frontend {
                    import: key("shop/web"),
                    port_name: String::new(),
                    affinity_seconds: None,
                    backends,
                };
                (id, frontend)
            })
            .collect();
        Service { import, frontends, has_vip: true, has_slices: true, refusals: vec![] }
    }

    fn backends(services: &[Service<'_>]) -> Vec<Vec<usize>> {
        services
            .iter()
            .map(|service| service.frontends.iter().map(|(_, f)| f.backends.len()).collect())
            .collect()
    }

    fn capacity(endpoints: u32, clusters: u32) -> Capacity {
        Capacity { endpoints, clusters, ..Capacity::default() }
    }

    #[test]
    fn a_frontend_fits_whole_or_refuses() {
        let web = import("shop/web");
        let three: &[&str] = &["east"; 3];
        let two: &[&str] = &["east"; 2];
        let services = || vec![service(&web, &[three, two]), service(&web, &[three, two])];
        for (endpoints, expected, refused) in [
            (10, [[3, 2], [3, 2]], [0, 0]),
            (9, [[3, 2], [3, 0]], [0, 1]),
            (7, [[3, 2], [0, 2]], [0, 1]),
            (4, [[3, 0], [0, 0]], [1, 2]),
            (2, [[0, 2], [0, 0]], [1, 2]),
            (0, [[0, 0], [0, 0]], [2, 2]),
        ] {
            let mut services = services();
            bound(&mut services, capacity(endpoints, 1));
            assert_eq!(backends(&services), expected.map(|row| row.to_vec()), "{endpoints}");
            assert_eq!([0, 1].map(|i: usize| services[i].refusals.len()), refused, "{endpoints}");
        }
        let mut services = services();
        bound(&mut services, capacity(9, 1));
        assert_eq!(
            services[1].refusals,
            [Refusal::new(
                Reason::Capacity,
                "frontend 10.0.0.1:81/TCP with 2 endpoints does not fit: 10 endpoints are wanted \
                 and --max-endpoints allows 9; raise it to 10 or more"
            )]
        );
    }

    #[test]
    fn a_cluster_without_room_loses_its_backends() {
        let web = import("shop/web");
        let services = || {
            vec![
                service(&web, &[&["east", "east"], &["west"]]),
                service(&web, &[&["", "east"], &["north", "west"]]),
            ]
        };
        for (clusters, expected, refused) in [
            (4, [[2, 1], [2, 2]], [0, 0]),
            (3, [[2, 1], [2, 1]], [0, 1]),
            (2, [[2, 1], [1, 1]], [0, 2]),
            (1, [[2, 0], [1, 0]], [1, 3]),
            (0, [[0, 0], [0, 0]], [2, 4]),
        ] {
            let mut services = services();
            bound(&mut services, capacity(100, clusters));
            assert_eq!(backends(&services), expected.map(|row| row.to_vec()), "{clusters}");
            assert_eq!([0, 1].map(|i: usize| services[i].refusals.len()), refused, "{clusters}");
        }
        let mut services = services();
        bound(&mut services, capacity(100, 3));
        assert_eq!(
            services[1].refusals,
            [Refusal::new(
                Reason::Capacity,
                "source cluster \"north\" does not fit: 4 source clusters are wanted and \
                 --max-clusters allows 3; raise it to 4 or more"
            )]
        );
    }
}
