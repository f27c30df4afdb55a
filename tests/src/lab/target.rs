//! Services of a world, each with ClusterSetIPs of its own.

use std::sync::atomic::AtomicU8;

use crate::{manifests::Aside, prelude::*, topology::backbone::Distance, traffic::Load};

/// The port of a service's TCP frontend, and of its backends.
pub const TCP: (u16, u16) = (80, 8080);
/// The port of a service's UDP frontend, and of its backends.
pub const UDP: (u16, u16) = (53, 5353);
/// A port of a service, TCP and UDP, where its backends have no server.
pub const DEAF: (u16, u16) = (99, 9999);
/// A port that no service has.
pub const UNKNOWN_PORT: u16 = 7;

/// Where remote pods are that are linked to the node.
pub const REMOTE: Subnet = Subnet(9);

/// A service with an address of each family.
#[derive(Clone, Debug)]
pub struct Target {
    /// What its manifests say.
    pub service: Service,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

impl Target {
    /// A service with these addresses, a TCP and a UDP port, and no endpoints.
    pub fn new(name: &str, v4: Ipv4Addr, v6: Ipv6Addr) -> Self {
        let service = Service::new(name, [IpAddr::from(v4), v6.into()]);
        Self { service, v4, v6 }.port(Protocol::Tcp, TCP).port(Protocol::Udp, UDP)
    }

    /// Its import and its slices, in this order.
    pub fn objects(&self) -> Vec<Value> {
        let mut objects = vec![self.service.import()];
        objects.extend(self.service.slices());
        objects
    }

    /// Clients of both families, and the pods of [`REMOTE`] that may answer.
    pub fn load(&self, pods: &[u8]) -> Load {
        Load {
            tcp: Family::ON_WIRE.map(|family| (family, self.tcp(family))).into(),
            udp: Family::ON_WIRE.map(|family| (family, self.udp(family))).into(),
            backends: backends(pods),
        }
    }

    /// Its addresses.
    pub const fn vips(&self) -> (Ipv4Addr, Ipv6Addr) {
        (self.v4, self.v6)
    }

    /// One of its ports, as a socket of that family writes it.
    pub fn at(&self, family: Family, port: u16) -> SocketAddr {
        family.address(self.v4, self.v6, port)
    }

    /// Its frontend of a protocol.
    pub fn of(&self, family: Family, protocol: Protocol) -> SocketAddr {
        match protocol {
            Protocol::Tcp => self.tcp(family),
            Protocol::Udp => self.udp(family),
        }
    }

    /// Its TCP frontend.
    pub fn tcp(&self, family: Family) -> SocketAddr {
        self.at(family, TCP.0)
    }

    /// Its UDP frontend.
    pub fn udp(&self, family: Family) -> SocketAddr {
        self.at(family, UDP.0)
    }

    /// The same with one more port.
    #[must_use]
    pub fn port(mut self, protocol: Protocol, (frontend, backend): (u16, u16)) -> Self {
        self.service = self.service.port(protocol, frontend, backend);
        self
    }

    /// The same with these pods of [`REMOTE`] as its endpoints.
    #[must_use]
    pub fn with(self, pods: &[u8]) -> Self {
        self.with_cluster("remote", pods)
    }

    /// The same with these pods of [`REMOTE`] as its endpoints in a cluster.
    #[must_use]
    pub fn with_cluster(mut self, cluster: &str, pods: &[u8]) -> Self {
        self.service = self.service.endpoints(cluster, remote(pods));
        self
    }

    /// The same with these endpoints.
    #[must_use]
    pub fn with_ips(mut self, ips: impl IntoIterator<Item = IpAddr>) -> Self {
        self.service = self.service.endpoints("remote", ips);
        self
    }

    /// The same with these pods of a [backbone](crate::topology::backbone) as its endpoints.
    #[must_use]
    pub fn with_remote(self, distance: Distance, pods: &[u8]) -> Self {
        self.with_ips(pods.iter().flat_map(|pod| distance.pod(*pod)))
    }

    /// The same, with some of its pods of [`REMOTE`] kept from new clients.
    #[must_use]
    pub fn aside(self, why: Aside, pods: &[u8]) -> Self {
        self.aside_ips(why, remote(pods))
    }

    /// The same, with some of its endpoints kept from new clients.
    #[must_use]
    pub fn aside_ips(mut self, why: Aside, ips: impl IntoIterator<Item = IpAddr>) -> Self {
        self.service = self.service.aside(why, ips);
        self
    }
}

fn remote(pods: &[u8]) -> impl Iterator<Item = IpAddr> {
    pods.iter().flat_map(|pod| REMOTE.both(*pod))
}

/// Where pods of [`REMOTE`] answer, by TCP and by UDP.
pub fn backends(pods: &[u8]) -> BTreeSet<SocketAddr> {
    remote(pods).flat_map(|ip| [TCP.1, UDP.1].map(|port| SocketAddr::new(ip, port))).collect()
}

/// Gives each service addresses that no other one has.
#[derive(Debug, Default)]
pub struct Vips(AtomicU8);

impl Vips {
    /// A service with a TCP and a UDP port, no endpoints, and no agent that knows it.
    pub fn target(&self, name: &str) -> Target {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        let v4 = Ipv4Addr::new(10, 78, 0, number);
        let v6 = Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 1, number.into());
        Target::new(name, v4, v6)
    }
}
