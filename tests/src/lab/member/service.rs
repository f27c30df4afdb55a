//! A ServiceImport with a derived Service, as kube-proxy and the agent read it: both can serve its addresses.

use crate::{manifests::Frontends, prelude::*};

const DERIVED_SERVICE: &str = "multicluster.kubernetes.io/derived-service";
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// An import whose VIPs are the ClusterIPs of its derived Service.
#[derive(Clone, Debug)]
pub struct DerivedService(Target);

impl DerivedService {
    /// One with the ClusterIPs of this number, and with remote pods as its endpoints.
    pub fn new(name: &str, number: u8, pods: &[u8]) -> Self {
        let v4 = Ipv4Addr::new(10, 96, 77, number);
        let v6 = Ipv6Addr::new(0xfd96, 0, 0, 0, 0, 0, 0, 0x7700 + u16::from(number));
        Self(Target::new(name, v4, v6).with(pods))
    }

    /// The name of the import.
    pub fn name(&self) -> &str {
        self.0.service.name()
    }

    /// One of its frontends.
    pub fn at(&self, family: Family, protocol: Protocol) -> SocketAddr {
        self.0.of(family, protocol)
    }

    /// What an agent that serves it has in its maps.
    pub fn frontends(&self) -> Frontends {
        self.0.service.frontends()
    }

    /// The derived Service.
    pub fn derived(&self) -> Value {
        let port = |name: &str, protocol: Protocol, (port, target): (u16, u16)| json!({ "name": name, "protocol": protocol.name(), "port": port, "targetPort": target });
        let (v4, v6) = self.0.vips();
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "namespace": "default", "name": self.derived_name() },
            "spec": {
                "clusterIP": v4,
                "clusterIPs": [v4, v6],
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
        let mut import = self.0.service.import();
        import["metadata"]["annotations"] = json!({ DERIVED_SERVICE: self.derived_name() });
        import
    }

    /// Its slices, which kube-proxy and the agent read.
    pub fn slices(&self) -> Vec<Value> {
        let mut slices = self.0.service.slices();
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
