//! A member cluster with the objects of every system, and a node that kube-proxy serves.

use comfy_table::{Table, presets::NOTHING};
use mcs_tests::{
    cluster::ProxyMode,
    member::{DerivedService, Member, Place, ProxiedNode},
    world::{self, Cluster},
};

use crate::{
    prelude::*,
    reach::Reach,
    system::{self, System},
};

/// It asks for fewer backends than kube-proxy serves.
const PREFERS: &str = "cilium-affinity";

/// By system, address, protocol and client.
type Reached = BTreeMap<(String, IpAddr, &'static str, String), Reach>;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("what works without the agent works with it", works_with_it);
}

// They have to be removed in this order.
pub(crate) struct World {
    nodes: Vec<ProxiedNode>,
    systems: Vec<System>,
    _cluster: Cluster,
}

impl World {
    /// Creates everything.
    pub(crate) fn begin(run: Run) -> Result<Self> {
        let cluster = world::World::of(run).cluster()?;
        let systems = system::all()?;
        for system in &systems {
            create(&cluster.member, system).with_context(|| system.name.clone())?;
        }
        // kube-proxy writes all at once, so that all is there when the last one is.
        let last = DerivedService::new("last", 1, &ProxiedNode::REMOTE_PODS);
        cluster.apply(&last)?;
        let modes = [ProxyMode::Nftables, ProxyMode::Iptables];
        let nodes = modes.map(|mode| cluster.node(mode, &[]));
        let nodes: Vec<_> = nodes.into_iter().collect::<Result<_>>()?;
        nodes.iter().try_for_each(|node| node.wait_until_served(&last))?;
        Ok(Self { nodes, systems, _cluster: cluster })
    }

    /// What clients reach everywhere. `before`: what they reached before.
    fn reach(&self, before: Option<&Reached>) -> Result<Reached> {
        let mut all = Reached::new();
        for node in &self.nodes {
            for place in Place::BOTH {
                let of_node = || self.reach_from(&format!("{place}, {}", node.mode), before);
                all.extend(node.as_client(place, || Ok(of_node()))?);
            }
        }
        Ok(all)
    }

    fn reach_from(&self, client: &str, before: Option<&Reached>) -> Reached {
        let mut all = Reached::new();
        for system in &self.systems {
            for ip in &system.addresses {
                for protocol in [Protocol::Tcp, Protocol::Udp] {
                    let key = (system.name.clone(), *ip, protocol.name(), client.to_owned());
                    let enough = before.and_then(|before| before.get(&key));
                    all.insert(key, Reach::of(*ip, protocol, enough));
                }
            }
        }
        all
    }
}

fn create(member: &Member, system: &System) -> Result {
    let api = &member.server.api;
    for object in &system.objects {
        let mut spec = object.clone();
        let status = spec.as_object_mut().and_then(|fields| fields.remove("status"));
        api.apply(&spec).with_context(|| object["kind"].to_string())?;
        if let Some(status) = status {
            spec["status"] = status;
            spec.as_object_mut().map(|fields| fields.remove("spec"));
            api.apply_status(&spec)?;
        }
    }
    Ok(())
}

fn works_with_it(world: &mut World) -> Result {
    let before = world.reach(None)?;
    world.nodes.iter_mut().try_for_each(ProxiedNode::install)?;
    let after = world.reach(Some(&before))?;
    let services: Value = world.nodes[0].agent()?.services()?;
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(["system", "address", "", "from", "backends without agent", "with"]);
    let (mut worked, mut harmed) = (0, Vec::new());
    for (key, before) in &before {
        let ((system, ip, protocol, client), after) = (key, &after[key]);
        let (ip, protocol) = (ip.to_string(), (*protocol).to_owned());
        let row =
            [system.clone(), ip, protocol, client.clone(), before.to_string(), after.to_string()];
        if before.works() {
            worked += 1;
            let keeps = before.backends.is_subset(&after.backends) || system.starts_with(PREFERS);
            if !after.works() || !keeps {
                harmed.push(row.join(" "));
            }
        }
        table.add_row(row);
    }
    tell(table.trim_fmt());
    tell(format!("{worked} addresses worked without the agent, {} do not with it", harmed.len()));
    ensure!(worked > 0, "nothing worked without the agent");
    ensure!(services.to_string().contains("10.96."), "the agent serves nothing: {services}");
    ensure!(harmed.is_empty(), "harmed:\n{}", harmed.join("\n"));
    world.nodes.iter_mut().try_for_each(ProxiedNode::uninstall)
}
