//! What the cases share: an API server, and nodes with kube-proxy in both modes, each with clients.

use comfy_table::{Table, presets::NOTHING};
use mcs_tests::{
    cluster::ProxyMode,
    manifests::Frontends,
    world::{self, Cluster},
};

use crate::{
    client::{order, pairs},
    clients::Clients,
    prelude::*,
    tally::row,
};

/// How long clients go on before a transition, and after it.
const BEFORE: Duration = Duration::from_millis(300);
const AFTER: Duration = Duration::from_millis(1500);
const AFTER_FULL: Duration = Duration::from_secs(10);

/// Who serves sockets of clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SocketLb {
    /// Socket programs, as by default.
    All,
    /// None: packets of pods are translated, and clients of the host are left to kube-proxy.
    Off,
}

/// What is left of the agent after a transition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Programs {
    /// They show the VIP to clients, and translate the packets of their flows.
    Attached,
    /// None: what was connected to a backend shows it.
    Removed,
}

/// A node, with its clients.
pub(crate) struct Proxied {
    pub(crate) node: ProxiedNode,
    pub(crate) socket_lb: SocketLb,
    clients: Vec<Clients>,
}

impl fmt::Display for Proxied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = match self.socket_lb {
            SocketLb::All => "sockets",
            SocketLb::Off => "packets",
        };
        write!(f, "{}, {path}", self.node.mode)
    }
}

/// What there is of the import.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Import {
    /// Nothing. Its derived Service stays, with slices that bear the labels of the import.
    Deleted,
    /// The import without a slice of its own: kube-proxy alone reads them.
    WithoutSlices,
    /// The import with its slices.
    Complete,
    /// The same, with a status that says that there are no slices.
    Absent,
}

// They have to be removed in this order.
pub(crate) struct World {
    pub(crate) nodes: Vec<Proxied>,
    pub(crate) service: DerivedService,
    import: Import,
    cluster: Cluster,
}

impl World {
    /// Creates everything.
    pub(crate) fn begin(run: Run) -> Result<Self> {
        let begin = Instant::now();
        let cluster = world::World::of(run).cluster()?;
        let service = DerivedService::new("web", 1, &ProxiedNode::REMOTE_PODS);
        cluster.apply(&service)?;
        let mut nodes = Vec::new();
        for mode in [ProxyMode::Nftables, ProxyMode::Iptables] {
            for (socket_lb, flags) in
                [(SocketLb::All, &[][..]), (SocketLb::Off, &["--socket-lb=off"])]
            {
                let node = cluster.node(mode, flags)?;
                nodes.push(Proxied { node, socket_lb, clients: Vec::new() });
            }
        }
        for proxied in &mut nodes {
            proxied.node.wait_until_served(&service)?;
            let start = |place| Clients::start(&proxied.node, place, &service);
            proxied.clients = Place::BOTH.into_iter().map(start).collect::<Result<_, _>>()?;
        }
        tell(format!("{:.1} s until kube-proxy served everywhere", begin.elapsed().as_secs_f64()));
        Ok(Self { nodes, service, import: Import::Deleted, cluster })
    }

    /// Does `work` on every node at the same time.
    pub(crate) fn on_each(&mut self, work: impl Fn(&mut ProxiedNode) -> Result + Sync) -> Result {
        let work = &work;
        thread::scope(|scope| {
            let each = self.nodes.iter_mut().map(|proxied| {
                scope.spawn(move || work(&mut proxied.node).with_context(|| proxied.to_string()))
            });
            each.collect::<Vec<_>>().into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })
    }

    /// Makes the import what is given, and waits until every agent follows.
    pub(crate) fn set_import(&mut self, import: Import) -> Result {
        let (api, service) = (&self.cluster.member.server.api, &self.service);
        if import == Import::Deleted {
            if self.import != Import::Deleted {
                api.delete(&service.import())?;
            }
        } else {
            api.apply(&service.import())?;
            api.apply_status(&status(service, import))?;
        }
        if import == Import::WithoutSlices {
            api.apply_all(&service.slices_without_import())?;
        } else {
            api.apply_all(&service.slices())?;
        }
        self.import = import;
        let expected = match import {
            Import::Complete => service.frontends(),
            Import::Deleted | Import::WithoutSlices | Import::Absent => Frontends::new(),
        };
        let name = service.name().to_owned();
        self.on_each(|node| match node.agent() {
            Ok(agent) => agent.wait_for_frontends(&name, &expected),
            // kube-proxy alone.
            Err(_) => Ok(()),
        })
    }

    /// Installs the agent on every node where it is not, or removes it.
    pub(crate) fn set_agent(&mut self, installed: bool) -> Result {
        self.on_each(|node| match (node.agent().is_ok(), installed) {
            (false, true) => node.install(),
            (true, false) => node.uninstall(),
            _ => Ok(()),
        })
    }

    /// Does `work` while clients everywhere use the service. Nothing may fail.
    pub(crate) fn under_load(
        &mut self,
        programs: Programs,
        work: impl FnOnce(&mut Self) -> Result,
    ) -> Result {
        self.order(order::BEGIN)?;
        thread::sleep(wait::scaled(BEFORE));
        let before = self.tallies()?;
        ensure_nothing_failed("before the transition", &before)?;
        if programs == Programs::Removed {
            self.order(order::NAMELESS)?;
        }
        let worked = work(self);
        Self::watch();
        let tallies = self.tallies()?;
        self.order(order::END)?;
        tell(table(&tallies));
        worked?;
        ensure_nothing_failed("in the transition", &tallies)
    }

    /// Lets clients go on for a while.
    pub(crate) fn watch() {
        thread::sleep(if is_full() { AFTER_FULL } else { AFTER });
    }

    /// Ends the TCP connections of all clients.
    pub(crate) fn end_tcp(&mut self) -> Result {
        self.order(order::END_TCP)
    }

    fn order(&mut self, order: &str) -> Result {
        self.ask(order).map(drop)
    }

    /// The counts since the last time, of each node.
    fn tallies(&mut self) -> Result<Vec<(String, Tally)>> {
        self.ask(order::TALLY)
    }

    fn ask(&mut self, order: &str) -> Result<Vec<(String, Tally)>> {
        let mut everywhere = self.nodes.iter_mut().flat_map(|proxied| &mut proxied.clients);
        everywhere.try_for_each(|clients| clients.order(order))?;
        let mut tallies = Vec::new();
        for proxied in &mut self.nodes {
            let name = proxied.to_string();
            let mut tally = Tally::default();
            for clients in &mut proxied.clients {
                let place = clients.place();
                tally.add(&clients.answer()?, &format!("{name}, {place}"));
            }
            tallies.push((name, tally));
        }
        Ok(tallies)
    }
}

fn ensure_nothing_failed(when: &str, tallies: &[(String, Tally)]) -> Result {
    let failed: u32 = tallies.iter().map(|(_, tally)| tally.total().failed).sum();
    let texts: Vec<_> =
        tallies.iter().flat_map(|(_, tally)| &tally.failures).map(String::as_str).collect();
    ensure!(failed == 0, "{failed} failed {when}:\n{}", texts.join("\n"));
    Ok(())
}

/// The import with its status alone.
fn status(service: &DerivedService, import: Import) -> Value {
    let mut object = service.import();
    object.as_object_mut().map(|object| object.remove("spec"));
    object["status"] = json!({ "clusters": [{ "cluster": "remote" }] });
    if import == Import::Absent {
        object["status"]["endpointSliceObjects"] = "Absent".into();
    }
    object
}

/// Kinds and families by node: conversations / new connections / failed.
fn table(tallies: &[(String, Tally)]) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    let names = tallies.iter().map(|(name, _)| name.clone());
    table.set_header(["conversations/new/failed".to_owned()].into_iter().chain(names));
    for (kind, family) in pairs() {
        let row = row(kind, family);
        let cells = tallies.iter().map(|(_, tally)| {
            let counts = tally.rows.get(&row).copied().unwrap_or_default();
            let mut cell = format!("{}/{}/{}", counts.conversations, counts.new, counts.failed);
            if counts.moved > 0 {
                cell = format!("{cell} ({} moved)", counts.moved);
            }
            if counts.lost > 0 {
                cell = format!("{cell} ({} lost)", counts.lost);
            }
            cell
        });
        table.add_row([row.clone()].into_iter().chain(cells));
    }
    table.trim_fmt()
}
