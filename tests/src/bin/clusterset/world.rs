//! What the cases share: two clusters that are peers of each other, and pods that servers play.

use std::{
    cell::{Cell, OnceCell},
    net::Ipv4Addr,
    thread,
};

use anyhow::Context as _;
use mcs_tests::{
    api_server::ControlPlane,
    run::Run,
    topology::{Node, Subnet},
};

use crate::{
    clients::Clients, cluster::Cluster, connectivity::Dataplane, dns::Dns, objects, peering,
};

/// The pods of all clusters.
pub(crate) const PODS: Subnet = Subnet(9);
/// The range of one cluster's pods, by the cluster's place.
pub(crate) const POD_RANGES: [&str; 3] = ["10.77.9.16/28", "10.77.9.32/28", "10.77.9.48/28"];

// They have to be removed in this order.
pub(crate) struct World {
    clients: OnceCell<Clients>,
    pub(crate) dns: OnceCell<Dns>,
    dataplane: OnceCell<Dataplane>,
    pub(crate) clusters: Vec<Cluster>,
    /// A cluster that a case has made, and only the second one knows.
    pub(crate) spare: Option<Cluster>,
    pub(crate) control: ControlPlane,
    pub(crate) node: Node,
    pub(crate) run: Run,
    numbers: Cell<u8>,
}

impl World {
    /// Starts two clusters.
    pub(crate) fn begin(run: Run) -> anyhow::Result<Self> {
        let node = Node::create(&run)?;
        let control = ControlPlane::linked(&run, &node)?;
        let clusters = thread::scope(|scope| {
            let control = &control;
            let starts = [("c1", 1), ("c2", 2)]
                .map(|(id, number)| scope.spawn(move || Cluster::start(control, id, number)));
            let started = starts.into_iter().map(|one| one.join().ok().context("a panic")?);
            started.collect::<anyhow::Result<Vec<_>>>()
        })?;
        peering::connect(&clusters[0], &clusters[1], POD_RANGES[1])?;
        peering::connect(&clusters[1], &clusters[0], POD_RANGES[0])?;
        let numbers = Cell::new(1);
        let (clients, dns, dataplane) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        Ok(Self { clients, dns, dataplane, clusters, spare: None, control, node, run, numbers })
    }

    /// A namespace of both clusters that no other case uses.
    pub(crate) fn fresh(&self) -> anyhow::Result<String> {
        let name = namespace_of(self.numbers.replace(self.numbers.get() + 1));
        for cluster in &self.clusters {
            cluster.add_namespace(&name)?;
        }
        Ok(name)
    }

    /// Agents of both clusters and what plays their pods.
    pub(crate) fn dataplane(&self) -> anyhow::Result<&Dataplane> {
        if self.dataplane.get().is_none() {
            // Nobody else has set it meanwhile.
            let _ = self.dataplane.set(Dataplane::start(self)?);
        }
        self.dataplane.get().context("no dataplane")
    }

    /// CoreDNS of the second cluster, with the shipped configuration.
    pub(crate) fn dns(&self) -> anyhow::Result<&Dns> {
        if self.dns.get().is_none() {
            // Nobody else has set it meanwhile.
            let _ = self.dns.set(Dns::start(self, 1)?);
        }
        self.dns.get().context("no CoreDNS")
    }

    /// Clients in the second cluster of a service of the first one, which stays.
    pub(crate) fn clients(&self) -> anyhow::Result<&Clients> {
        if self.clients.get().is_none() {
            // Nobody else has set it meanwhile.
            let _ = self.clients.set(Clients::begin(self)?);
        }
        self.clients.get().context("no clients")
    }

    /// Takes them away, as long as a case uses the rest of the world.
    pub(crate) fn take_clients(&mut self) -> Option<Clients> {
        self.clients.take()
    }

    /// Puts them back.
    pub(crate) fn put_clients(&mut self, clients: Clients) {
        self.clients = OnceCell::from(clients);
    }

    /// Starts a third cluster, which is a peer of both and has the same namespaces.
    pub(crate) fn add_third(&mut self) -> anyhow::Result<()> {
        if self.clusters.len() > 2 {
            return Ok(());
        }
        let third = Cluster::start(&self.control, "c3", 3)?;
        for number in 1..self.numbers.get() {
            third.add_namespace(&namespace_of(number))?;
        }
        for (other, range) in self.clusters.iter().zip(POD_RANGES) {
            peering::connect(other, &third, POD_RANGES[2])?;
            peering::connect(&third, other, range)?;
        }
        self.clusters.push(third);
        Ok(())
    }

    /// Where an administrator's commands run.
    pub(crate) fn first(&self) -> &Cluster {
        &self.clusters[0]
    }

    /// The other cluster.
    pub(crate) fn second(&self) -> &Cluster {
        &self.clusters[1]
    }
}

fn namespace_of(number: u8) -> String {
    format!("case-{number}")
}

/// The address of a pod, by the places of its cluster and of the pod, from 0.
pub(crate) fn pod(cluster: u8, pod: u8) -> Ipv4Addr {
    PODS.v4(16 * (cluster + 1) + 1 + pod)
}

/// The slice of a cluster's pods.
pub(crate) fn slice_of(namespace: &str, cluster: u8, pods: u8) -> serde_json::Value {
    let addresses: Vec<_> = (0..pods).map(|number| pod(cluster, number).to_string()).collect();
    objects::slice(namespace, &addresses, objects::PORTS)
}
