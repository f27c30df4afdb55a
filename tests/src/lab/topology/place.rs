//! A node on a backbone, and its pods.

use super::{
    Node,
    backbone::Backbone,
    pod::{Layout, Pod},
};
use crate::{
    prelude::*,
    server::{Serve, Servers},
};

/// A node and its pods.
// They have to be removed in this order.
pub struct Place {
    /// Those of the pods.
    pub servers: Servers,
    pods: BTreeMap<Layout, Vec<Pod>>,
    /// The node.
    pub node: Node,
    first: Subnet,
    number: u8,
}

impl Place {
    /// Makes the node with this number, and this number of pods of each layout, each with these servers.
    pub fn create(
        run: &Run,
        backbone: &Backbone,
        number: u8,
        pods: &[(Layout, u8)],
        serve: &[Serve],
    ) -> Result<Self> {
        let (node, first) = backbone.node(run, &format!("node-{number}"), number)?;
        let (mut servers, mut all) = (Servers::default(), BTreeMap::<_, Vec<_>>::new());
        for (layout, count) in pods {
            for host in 2..count + 2 {
                let pod = Pod::create(run, &node, *layout, first, host)?;
                servers.add(&pod.netns, pod.both(), serve)?;
                all.entry(*layout).or_default().push(pod);
            }
        }
        Ok(Self { servers, pods: all, node, first, number })
    }

    /// The addresses of both routers, as clients on this node see them.
    pub fn routers(&self) -> [(Ipv4Addr, Ipv6Addr); 2] {
        Backbone::routers(self.number)
    }

    /// A pod for clients.
    pub fn pod(&self, layout: Layout) -> Result<&Pod> {
        self.nth_pod(layout, 0)
    }

    /// Another pod with the same layout.
    pub fn peer(&self, layout: Layout) -> Result<&Pod> {
        self.nth_pod(layout, 1)
    }

    /// A name for something of this node; with "node" its own, which the router's interface has too.
    pub fn name(&self, role: &str) -> String {
        format!("{role}-{}", self.number)
    }

    /// Makes a pod that goes when it is dropped. It has no servers.
    pub fn another_pod(&self, run: &Run, layout: Layout) -> Result<Pod> {
        self.pod_of(run, layout, 100)
    }

    /// The same with this number in its address.
    pub fn pod_of(&self, run: &Run, layout: Layout, host: u8) -> Result<Pod> {
        Pod::create(run, &self.node, layout, self.first, host)
    }

    fn nth_pod(&self, layout: Layout, nth: usize) -> Result<&Pod> {
        let pod = self.pods.get(&layout).and_then(|pods| pods.get(nth));
        pod.with_context(|| format!("there is no {layout} pod {nth}"))
    }

    /// Every pod.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.values().flatten()
    }
}
