//! Services as kube-proxy and as mcs-agent read them, of the same addresses and endpoints.

use crate::prelude::*;

/// The namespace of all objects.
const NAMESPACE: &str = "default";
/// What the API server has to be given as its range.
pub(crate) const VIPS: &str = "10.96.0.0/16";
/// Where the ClusterSetIPs of IPv6 are: those of targets alone.
pub(crate) const VIPS_V6: &str = "fd96::/64";
const FIRST_VIP_V6: Ipv6Addr = Ipv6Addr::new(0xfd96, 0, 0, 0, 0, 0, 1, 0);
const FIRST_VIP: u32 = u32::from_be_bytes([10, 96, 1, 0]);
/// Where endpoints are that nobody is at.
pub(crate) const NOWHERE: &str = "10.128.0.0/9";
const FIRST_NOWHERE: u32 = u32::from_be_bytes([10, 128, 0, 0]);
const FIRST_LARGE: u32 = u32::from_be_bytes([10, 192, 0, 0]);
const FIRST_OTHER: u32 = u32::from_be_bytes([10, 191, 0, 0]);
/// As the controller that fills slices does.
pub(crate) const MOST_IN_A_SLICE: usize = 100;

/// A port of every service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Port {
    pub(crate) name: &'static str,
    pub(crate) protocol: &'static str,
    /// The frontend's.
    pub(crate) frontend: u16,
    /// The backend's.
    pub(crate) target: u16,
}

const fn tcp(name: &'static str, frontend: u16, target: u16) -> Port {
    Port { name, protocol: "TCP", frontend, target }
}

const fn udp(name: &'static str, frontend: u16, target: u16) -> Port {
    Port { name, protocol: "UDP", frontend, target }
}

/// Whoever connects is let go at once.
pub(crate) const ACCEPT: Port = tcp("accept", 80, 8080);
/// One HTTP request of each connection is answered.
pub(crate) const HTTP: Port = tcp("http", 81, 8081);
/// What comes is sent back.
pub(crate) const ECHO: Port = tcp("echo", 82, 8082);
/// What comes is thrown away.
pub(crate) const SINK: Port = tcp("sink", 83, 8083);
/// The server says which address was connected to.
pub(crate) const WHO: Port = tcp("who", 84, 8084);
/// Datagrams are sent back.
pub(crate) const UDP_ECHO: Port = udp("udp-echo", 53, 5353);
/// Datagrams are never read. No service has it.
pub(crate) const UDP_SINK: Port = udp("udp-sink", 54, 5354);
/// What comes is sent back, by servers outside of the lane's cgroup: its programs meet clients alone.
pub(crate) const APART: Port = tcp("apart", 85, 8085);
pub(crate) const UDP_APART: Port = udp("udp-apart", 55, 5355);
/// Of the target alone: what else there is has one port.
pub(crate) const TARGET_PORTS: [Port; 8] =
    [ACCEPT, HTTP, ECHO, SINK, WHO, UDP_ECHO, APART, UDP_APART];

/// A service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) vip: Ipv4Addr,
    /// For mcs-agent alone, like what it leads to.
    pub(crate) vip_v6: Option<Ipv6Addr>,
    ports: Vec<Port>,
    endpoints: Vec<Ipv4Addr>,
    endpoints_v6: Vec<Ipv6Addr>,
}

impl Service {
    /// The service with this number, with made-up endpoints and one port.
    pub(crate) fn made_up(number: u32, endpoints: u32) -> Self {
        let first = FIRST_NOWHERE + number * endpoints;
        let endpoints = (first..first + endpoints).map(Ipv4Addr::from).collect();
        Self::new(number, &[ACCEPT], endpoints)
    }

    /// The service with this number and many made-up endpoints: others in each of 100
    /// generations.
    pub(crate) fn large(number: u32, endpoints: u32, generation: u32) -> Self {
        let first = FIRST_LARGE + generation % 100 * endpoints;
        let endpoints = (first..first + endpoints).map(Ipv4Addr::from).collect();
        Self::new(number, &[ACCEPT], endpoints)
    }

    /// The service with this number, and real endpoints of both families.
    pub(crate) fn target(number: u32, endpoints: &[Ipv4Addr], endpoints_v6: &[Ipv6Addr]) -> Self {
        let vip = Ipv6Addr::from_bits(FIRST_VIP_V6.to_bits() + u128::from(number));
        let v4 = Self::new(number, &TARGET_PORTS, endpoints.to_vec());
        Self { vip_v6: Some(vip), endpoints_v6: endpoints_v6.to_vec(), ..v4 }
    }

    /// The service with this number, and real endpoints of IPv4.
    pub(crate) fn probe(number: u32, endpoints: &[Ipv4Addr]) -> Self {
        Self::new(number, &[WHO], endpoints.to_vec())
    }

    fn new(number: u32, ports: &[Port], endpoints: Vec<Ipv4Addr>) -> Self {
        let vip = Ipv4Addr::from(FIRST_VIP + number);
        // As they are sorted by name.
        let name = format!("s{number:05}");
        let (vip_v6, endpoints_v6) = (None, Vec::new());
        Self { name, vip, vip_v6, ports: ports.to_vec(), endpoints, endpoints_v6 }
    }

    /// The same with other endpoints.
    pub(crate) fn with(&self, endpoints: Vec<Ipv4Addr>) -> Self {
        Self { endpoints, ..self.clone() }
    }

    /// The same with its last endpoint replaced by one of 65,536 others.
    pub(crate) fn with_another(&self, which: u32) -> Self {
        let mut endpoints = self.endpoints.clone();
        endpoints.pop();
        endpoints.push(Ipv4Addr::from(FIRST_OTHER + which % (1 << 16)));
        self.with(endpoints)
    }

    pub(crate) fn ports(&self) -> &[Port] {
        &self.ports
    }

    pub(crate) fn endpoints(&self) -> &[Ipv4Addr] {
        &self.endpoints
    }

    /// What kube-proxy reads.
    pub(crate) fn service(&self) -> Value {
        let ports = self.ports.iter().map(|port| {
            json!({
                "name": port.name,
                "protocol": port.protocol,
                "port": port.frontend,
                "targetPort": port.target,
            })
        });
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "namespace": NAMESPACE, "name": self.name },
            "spec": { "clusterIP": self.vip, "ports": ports.collect::<Vec<_>>() },
        })
    }

    /// What mcs-agent reads.
    pub(crate) fn import(&self) -> Value {
        let ports = self.ports.iter().map(
            |port| json!({ "name": port.name, "protocol": port.protocol, "port": port.frontend }),
        );
        let vips = [self.vip.into()].into_iter().chain(self.vip_v6.map(IpAddr::from));
        json!({
            "apiVersion": "multicluster.x-k8s.io/v1beta1",
            "kind": "ServiceImport",
            "metadata": { "namespace": NAMESPACE, "name": self.name },
            "spec": {
                "type": "ClusterSetIP",
                "ips": vips.collect::<Vec<_>>(),
                "ports": ports.collect::<Vec<_>>(),
            },
        })
    }

    /// What both read: labels say to each that they are its own.
    pub(crate) fn slices(&self) -> Vec<Value> {
        let chunks = self.endpoints.chunks(MOST_IN_A_SLICE).enumerate();
        let v4 = chunks.map(|(number, some)| {
            let mut slice = self.slice(&number.to_string(), "IPv4", some);
            slice["metadata"]["labels"]["kubernetes.io/service-name"] = self.name.clone().into();
            slice
        });
        let v6 = self.vip_v6.map(|_| self.slice("v6", "IPv6", &self.endpoints_v6));
        v4.chain(v6).collect()
    }

    fn slice<A: Serialize>(&self, name: &str, family: &str, endpoints: &[A]) -> Value {
        let ports = self.ports.iter().map(
            |port| json!({ "name": port.name, "protocol": port.protocol, "port": port.target }),
        );
        let endpoints = endpoints.iter().map(|address| json!({ "addresses": [address] }));
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "namespace": NAMESPACE,
                "name": format!("{}-{name}", self.name),
                "labels": {
                    "multicluster.kubernetes.io/service-name": self.name,
                    "multicluster.kubernetes.io/source-cluster": "remote",
                },
            },
            "addressType": family,
            "endpoints": endpoints.collect::<Vec<_>>(),
            "ports": ports.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn nobody_shares_an_address() {
        let services: Vec<_> = (0..300).map(|number| Service::made_up(number, 10)).collect();
        let vips: BTreeSet<_> = services.iter().map(|service| service.vip).collect();
        let endpoints: BTreeSet<_> = services.iter().flat_map(Service::endpoints).collect();
        assert_eq!((vips.len(), endpoints.len()), (300, 3000));
        assert!(services.iter().map(|service| &service.name).is_sorted());
    }

    #[test]
    fn a_slice_holds_no_more_than_it_may() {
        let service = Service::made_up(0, 250);
        let lengths = service.slices().into_iter();
        let lengths = lengths.map(|slice| slice["endpoints"].as_array().map_or(0, Vec::len));
        assert_eq!(lengths.collect::<Vec<_>>(), [100, 100, 50]);
    }
}
