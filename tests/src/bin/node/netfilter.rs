//! The packet path with connection tracking on the node: kube-proxy's rule against invalid packets, and
//! masquerading.

use crate::prelude::*;

const BYTES: usize = 2_000_000;
const CONNECTIONS: usize = 40;
/// The kernel chooses no such port.
const PORT: u16 = 20_042;
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) fn cases(suite: &mut Suite<World>) {
    each(suite, &Layout::ALL, "with a rule that drops INVALID packets", is_valid);
    each(suite, &Layout::ALL, "masqueraded on the uplink", is_masqueraded);
    each(suite, &[Layout::Routed], "a backend that a rule forbids", is_forbidden);
}

/// A table of the node. It is removed when this is dropped.
pub(crate) struct Table<'a> {
    node: &'a Namespace,
}

impl<'a> Table<'a> {
    const NAME: &'static str = "mcs-test";

    pub(crate) fn create(node: &'a Namespace, content: &str) -> Result<Self> {
        let name = Self::NAME;
        node.output("nft", &[&format!("table inet {name} {{{content}\n}}")])?;
        Ok(Self { node })
    }

    /// The named counters, in packets.
    fn counters(&self) -> Result<BTreeMap<String, u64>> {
        let listed = self.node.output("nft", &["-j", "list", "table", "inet", Self::NAME])?;
        let listed: Value = serde_json::from_str(&listed)?;
        let items = listed["nftables"].as_array().context("nft lists nothing")?;
        let counters = items.iter().filter_map(|item| {
            let counter = &item["counter"];
            Some((counter["name"].as_str()?.to_owned(), counter["packets"].as_u64()?))
        });
        Ok(counters.collect())
    }
}

impl Drop for Table<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.node.output("nft", &["delete", "table", "inet", Self::NAME]) {
            eprintln!("cannot delete a table: {error:#}");
        }
    }
}

/// As kube-proxy's, which relies on every packet of a connection passing, both ways.
const INVALID: &str = "
    counter invalid { }
    counter established { }
    chain forward {
        type filter hook forward priority filter; policy accept;
        ct state invalid counter name invalid drop
        ct state established counter name established
    }";

fn is_valid(world: &World, layout: Layout, family: Family) -> Result {
    let node = &world.place.node.netns;
    if layout == Layout::Bridged {
        expect_bridges_are_filtered(node)?;
    }
    let pod = world.place.pod(layout)?;
    forget_mtus(world, pod)?;
    let table = Table::create(node, INVALID)?;
    for target in [&world.web, &world.far, &world.own[&layout]] {
        use_much(pod, target, family).with_context(|| target.service.name().to_owned())?;
    }
    for target in world.neighbour.values() {
        use_much(pod, target, family).with_context(|| target.service.name().to_owned())?;
    }
    let counters = table.counters()?;
    let (invalid, established) = (counters["invalid"], counters["established"]);
    ensure!(invalid == 0, "{invalid} packets were dropped as INVALID");
    ensure!(established > 1_000, "only {established} packets were ESTABLISHED");
    tell(format!("{established} packets ESTABLISHED, {invalid} INVALID"));
    Ok(())
}

/// kube-proxy needs that, too: else it sees one direction of a connection within the bridge.
fn expect_bridges_are_filtered(node: &Namespace) -> Result {
    let setting = "/proc/sys/net/bridge/bridge-nf-call-iptables";
    match node.run(|| std::fs::read_to_string(setting))? {
        Ok(value) if value.trim() == "1" => Ok(()),
        Ok(value) => Err(skip(format!("{setting} is {}", value.trim()))),
        Err(error) => Err(skip(format!("{setting}: {error}"))),
    }
}

fn forget_mtus(world: &World, pod: &Pod) -> Result {
    world.backbone.forget_mtus()?;
    pod.netns.forget_mtus()
}

/// Bulk, and many short connections.
fn use_much(pod: &Pod, target: &Target, family: Family) -> Result {
    let (tcp, udp) = (target.tcp(family), target.udp(family));
    pod.netns.run(|| {
        bulk(&greeted(family, tcp)?.0, BYTES).context("bulk")?;
        ask_until_known(&client::udp(family)?, udp, 4_000)?;
        for _ in 0..CONNECTIONS {
            bulk(&greeted(family, tcp)?.0, 100)?;
            let reply = ask(&client::udp(family)?, udp)?;
            ensure!(reply.source == udp, "{reply:?}");
        }
        anyhow::Ok(())
    })?
}

const MASQUERADE: &str = "
    counter masqueraded { }
    chain postrouting {
        type nat hook postrouting priority srcnat; policy accept;
        oifname \"uplink\" counter name masqueraded masquerade
    }";

/// Servers see the node, and clients the VIP as ever.
fn is_masqueraded(world: &World, layout: Layout, family: Family) -> Result {
    let pod = world.place.pod(layout)?;
    forget_mtus(world, pod)?;
    let table = Table::create(&world.place.node.netns, MASQUERADE)?;
    use_much(pod, &world.far, family)?;
    let (vip, own) = (world.web.udp(family), family.address(pod.v4(), pod.v6(), 0).ip());
    let reply = pod.netns.run(|| {
        // Masquerading begins with a connection, and the kernel still tracks those of earlier cases, whose ports it chose.
        let socket = UdpSocket::bind(family.any(PORT))?;
        socket.set_read_timeout(Some(wait::scaled(PATIENCE)))?;
        ask(&socket, vip)
    })??;
    ensure!(reply.source == vip, "{reply:?}");
    let seen = world.server(mcs_tests::manifests::Protocol::Udp, reply.backend)?.seen();
    let last = seen.last().context("the server saw nobody")?;
    ensure!(last.ip() != own, "{} saw the pod, as {last}", reply.backend);
    // One for each connection, but for those with a port of an earlier one.
    let masqueraded = table.counters()?["masqueraded"];
    ensure!(masqueraded > CONNECTIONS as u64, "{masqueraded} connections were masqueraded");
    Ok(())
}

/// A rule by address, as of a network policy, sees the backend of packets that are translated.
fn is_forbidden(world: &World, layout: Layout, family: Family) -> Result {
    let pod = world.place.pod(layout)?;
    let forbidden = family.address(pod.v4(), pod.v6(), 0).ip();
    let header = if family == Family::V4 { "ip" } else { "ip6" };
    let all = backends(Distance::Near, World::WEB, family, UDP.1);
    let backend = all.first().context("there is no backend")?;
    let rule = format!("{header} saddr {forbidden} {header} daddr {} drop", backend.ip());
    let _table = Table::create(
        &world.place.node.netns,
        &format!("chain forward {{\ntype filter hook forward priority filter;\n{rule}\n}}"),
    )?;
    let (mut answered, mut lost) = (0, 0);
    pod.netns.run(|| {
        for _ in 0..CONNECTIONS {
            let socket = client::udp(family)?;
            socket.set_read_timeout(Some(Duration::from_millis(50)))?;
            match ask(&socket, world.web.udp(family)) {
                Ok(reply) => {
                    ensure!(reply.backend != *backend, "the forbidden backend answered");
                    answered += 1;
                }
                Err(_) => lost += 1,
            }
        }
        anyhow::Ok(())
    })??;
    ensure!(answered > 0 && lost > 0, "{answered} answered, {lost} lost");
    Ok(())
}
