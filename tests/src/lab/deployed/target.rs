//! A service of one cluster that another one imports.

use super::{Member, NAMESPACE, ports};
use crate::prelude::*;

/// The port of the TCP frontends.
pub const TCP: u16 = 80;
/// That of the UDP frontends.
pub const UDP: u16 = 53;

/// A ServiceImport, which the suite writes as a controller would.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// Its ClusterSetIPs.
    pub vips: Vec<IpAddr>,
}

impl Target {
    /// The same name as DNS has it.
    pub fn domain(&self) -> String {
        format!("{}.{NAMESPACE}.svc.clusterset.local", self.name)
    }

    /// Where TCP is served.
    pub fn tcp(&self) -> impl Iterator<Item = SocketAddr> {
        self.vips.iter().map(|vip| SocketAddr::new(*vip, TCP))
    }

    /// Where UDP is served.
    pub fn udp(&self) -> impl Iterator<Item = SocketAddr> {
        self.vips.iter().map(|vip| SocketAddr::new(*vip, UDP))
    }

    /// Where anything is served.
    pub fn frontends(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        let tcp = self.tcp().map(|address| ("tcp", address));
        tcp.chain(self.udp().map(|address| ("udp", address)))
    }

    /// Writes the import, and slices with the servers of these clusters as they are now.
    pub fn publish(&self, importer: &Member, exporters: &[&Member]) -> Result {
        let servers = exporters.iter().map(|exporter| Ok((&*exporter.name, exporter.servers()?)));
        self.publish_with(importer, servers.collect::<Result<Vec<_>>>()?)
    }

    /// Writes the import, and slices with these addresses of each of these clusters.
    pub fn publish_with<'a>(
        &self,
        importer: &Member,
        servers: impl IntoIterator<Item = (&'a str, Vec<IpAddr>)>,
    ) -> Result {
        let mut service = Service::new(self.name.as_str(), self.vips.iter().copied())
            .namespace(NAMESPACE)
            .port(Protocol::Tcp, TCP, ports::TCP)
            .port(Protocol::Udp, UDP, ports::UDP);
        for (cluster, addresses) in servers {
            service = service.endpoints(cluster, addresses);
        }
        let mut objects = vec![service.import()];
        objects.extend(service.slices());
        importer.apply(&objects)
    }

    /// Deletes the import and its slices.
    pub fn withdraw(&self, importer: &Member) -> Result {
        importer.run(&["delete", "serviceimport", &self.name])?;
        let label = format!("multicluster.kubernetes.io/service-name={}", self.name);
        importer.run(&["delete", "endpointslices", "--selector", &label]).map(drop)
    }
}
