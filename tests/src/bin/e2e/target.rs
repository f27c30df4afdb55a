//! A service of one cluster that another one imports.

use crate::prelude::*;

/// The port of the TCP frontends, and that of the UDP frontends.
pub(crate) const TCP: u16 = 80;
pub(crate) const UDP: u16 = 53;

/// A ServiceImport, which the suite writes as a controller would.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) vips: Vec<IpAddr>,
}

impl Target {
    /// The same name as DNS has it.
    pub(crate) fn domain(&self) -> String {
        format!("{}.{NAMESPACE}.svc.clusterset.local", self.name)
    }

    /// Where TCP is served.
    pub(crate) fn tcp(&self) -> impl Iterator<Item = SocketAddr> {
        self.vips.iter().map(|vip| SocketAddr::new(*vip, TCP))
    }

    /// Where UDP is served.
    pub(crate) fn udp(&self) -> impl Iterator<Item = SocketAddr> {
        self.vips.iter().map(|vip| SocketAddr::new(*vip, UDP))
    }

    /// Where anything is served.
    pub(crate) fn frontends(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        let tcp = self.tcp().map(|address| ("tcp", address));
        tcp.chain(self.udp().map(|address| ("udp", address)))
    }

    /// Writes the import, and slices with the servers of these clusters as they are now.
    pub(crate) fn publish(&self, importer: &Member, exporters: &[&Member]) -> Result {
        let mut service = Service::new(self.name.as_str(), self.vips.iter().copied())
            .namespace(NAMESPACE)
            .port(Protocol::Tcp, TCP, member::TCP)
            .port(Protocol::Udp, UDP, member::UDP);
        for exporter in exporters {
            service = service.endpoints(&exporter.name, exporter.servers()?);
        }
        let mut objects = vec![service.import()];
        objects.extend(service.slices());
        importer.apply(&objects)
    }

    /// Deletes the import and its slices.
    pub(crate) fn withdraw(&self, importer: &Member) -> Result {
        importer.run(&["delete", "serviceimport", &self.name])?;
        let label = format!("multicluster.kubernetes.io/service-name={}", self.name);
        importer.run(&["delete", "endpointslices", "--selector", &label]).map(drop)
    }
}
