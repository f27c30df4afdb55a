//! A ServiceImport with a derived Service, as kube-proxy and the agent read it: both can serve its addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde_json::{Value, json};

use super::node::REMOTE;
use crate::{
    client::Family,
    manifests::{Frontends, Protocol, Service},
};

/// The port of a TCP frontend, and of its backends.
pub const TCP: (u16, u16) = (80, 8080);
/// The port of a UDP frontend, and of its backends.
pub const UDP: (u16, u16) = (53, 5353);

const DERIVED_SERVICE: &str = "multicluster.kubernetes.io/derived-service";
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// An import whose VIPs are the ClusterIPs of its derived Service.
#[derive(Clone, Debug)]
pub struct DerivedService {
    service: Service,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

impl DerivedService {
    /// One with the ClusterIPs of this number, and with remote pods as its endpoints.
    pub fn new(name: &str, number: u8, pods: &[u8]) -> Self {
        let v4 = Ipv4Addr::new(10, 96, 77, number);
        let v6 = Ipv6Addr::new(0xfd96, 0, 0, 0, 0, 0, 0, 0x7700 + u16::from(number));
        let service = Service::new(name, [IpAddr::from(v4), v6.into()])
            .port(Protocol::Tcp, TCP.0, TCP.1)
            .port(Protocol::Udp, UDP.0, UDP.1)
            .endpoints("remote", pods.iter().flat_map(|pod| REMOTE.both(*pod)));
        Self { service, v4, v6 }
    }

    /// The name of the import.
    pub fn name(&self) -> &str {
        self.service.name()
    }

    /// One of its frontends.
    pub fn at(&self, family: Family, protocol: Protocol) -> SocketAddr {
        let port = match protocol {
            Protocol::Tcp => TCP.0,
            Protocol::Udp => UDP.0,
        };
        family.address(self.v4, self.v6, port)
    }

    /// What an agent that serves it has in its maps.
    pub fn frontends(&self) -> Frontends {
        self.service.frontends()
    }

    /// The derived Service.
    pub fn derived(&self) -> Value {
        let port = |name: &str, protocol: Protocol, (port, target): (u16, u16)| json!({ "name": name, "protocol": protocol.name(), "port": port, "targetPort": target });
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "namespace": "default", "name": self.derived_name() },
            "spec": {
                "clusterIP": self.v4,
                "clusterIPs": [self.v4, self.v6],
                "ipFamilyPolicy": "RequireDualStack",
                "ports": [
                    port("tcp-80", Protocol::Tcp, TCP),
                    port("udp-53", Protocol::Udp, UDP),
                ],
            },
        })
    }

    /// The import, which names the derived Service.
    pub fn import(&self) -> Value {
        let mut import = self.service.import();
        import["metadata"]["annotations"] = json!({ DERIVED_SERVICE: self.derived_name() });
        import
    }

    /// Its slices, which kube-proxy and the agent read.
    pub fn slices(&self) -> Vec<Value> {
        let mut slices = self.service.slices();
        for slice in &mut slices {
            slice["metadata"]["labels"][SERVICE_NAME] = self.derived_name().into();
        }
        slices
    }

    /// The same slices without the labels of the import: kube-proxy alone reads them.
    pub fn slices_without_import(&self) -> Vec<Value> {
        let mut slices = self.slices();
        for slice in &mut slices {
            slice["metadata"]["labels"] = json!({ SERVICE_NAME: self.derived_name() });
        }
        slices
    }

    fn derived_name(&self) -> String {
        format!("derived-{}", self.name())
    }
}
