//! Figures by import and source cluster: exact, bounded, and never of another import.

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("connections and refusals by import and source cluster", exact);
    suite.case("failed connects by import and source cluster", failed);
    suite.case("imports beyond --metrics-imports are counted together", bounded);
    suite.case("an import that takes the place of another has its own figures", replaced);
    suite.case("figures of imports go on when the maps grow", grown);
    suite.case("--metrics-imports=0 counts nothing by import", off);
}

/// Beside that of the agent of all cases, in the same namespace.
const METRICS: &str = "127.0.0.1:16461";
const SHOP: Ipv4Addr = Ipv4Addr::new(10, 78, 1, 1);
const CART: Ipv4Addr = Ipv4Addr::new(10, 78, 1, 2);
const BARE: Ipv4Addr = Ipv4Addr::new(10, 78, 1, 3);

fn service(name: &str, vip: Ipv4Addr) -> Service {
    Service::new(name, [vip.into()])
        .port(Protocol::Tcp, 80, 8080)
        .port(Protocol::Udp, 53, 5353)
        .endpoints("east", [pod_address(PODS[0])])
        .endpoints("west", [pod_address(PODS[1])])
}

fn bare() -> Service {
    Service::new("bare", [BARE.into()]).port(Protocol::Tcp, 80, 8080)
}

fn start(world: &World, role: &str, flags: &[&str], services: &[&Service]) -> Result<Site> {
    let flags = [&["--metrics-address", METRICS], flags].concat();
    world.start(role, &flags, services)
}

/// What the agent says of imports, by labels: `import="default/shop",source_cluster="east"`.
fn figures(world: &World) -> Result<BTreeMap<String, u64>> {
    let samples = http::samples_at(&world.network.node.netns, METRICS)?;
    let figures = samples.into_iter().filter_map(|(name, value)| {
        let counters = ["mcs_import_connections_total{", "mcs_import_refusals_total{"];
        let labels = counters.iter().find_map(|counter| name.strip_prefix(counter))?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        Some((labels.trim_end_matches('}').to_owned(), value as u64))
    });
    Ok(figures.collect())
}

fn wait_for(world: &World, expected: &BTreeMap<String, u64>) -> Result {
    wait::until("the figures of an import that has gone to end", || {
        let figures = figures(world)?;
        ensure!(figures == *expected, "{figures:?}");
        Ok(())
    })
}

/// Waits until so many imports have no figures of their own.
fn wait_for_others(world: &World, expected: f64) -> anyhow::Result<()> {
    wait::until("the number of imports without figures", || {
        let samples = http::samples_at(&world.network.node.netns, METRICS)?;
        let found = samples.get("mcs_imports_without_series").copied();
        ensure!(found == Some(expected), "{found:?}");
        Ok(())
    })
}

/// What clients do, and what figures follow from it.
struct Clients<'a> {
    world: &'a World,
    site: &'a Site,
    expected: BTreeMap<String, u64>,
}

impl<'a> Clients<'a> {
    fn new(world: &'a World, site: &'a Site) -> Self {
        Self { world, site, expected: BTreeMap::new() }
    }

    fn at<T: Send>(&self, client: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let _in_cgroup = self.site.cgroup.visit()?;
        self.world.network.node.netns.run(client)?
    }

    fn expect(&mut self, labels: String, count: u64) {
        *self.expected.entry(labels).or_default() += count;
    }

    /// Connections to a VIP, which count as those of `import`.
    fn connect(&mut self, vip: Ipv4Addr, import: &str, times: usize) -> Result {
        let backends = self.at(|| {
            let connect = |_| identity(&connected(Family::V4, SocketAddr::new(vip.into(), 80))?);
            (0..times).map(connect).collect::<Result<Vec<SocketAddr>>>()
        })?;
        for backend in backends {
            let cluster = if backend.ip() == pod_address(PODS[0]) { "east" } else { "west" };
            self.expect(format!("import=\"{import}\",source_cluster=\"{cluster}\""), 1);
        }
        Ok(())
    }

    /// Connections that are refused.
    fn refused(
        &mut self,
        vip: Ipv4Addr,
        port: u16,
        (import, reason): (&str, &str),
        times: u64,
    ) -> Result {
        self.at(|| {
            for _ in 0..times {
                assert!(connected(Family::V4, SocketAddr::new(vip.into(), port)).is_err());
            }
            Ok(())
        })?;
        self.expect(format!("import=\"{import}\",reason=\"{reason}\""), times);
        Ok(())
    }

    fn check(&self) -> Result {
        assert_eq!(figures(self.world)?, self.expected);
        Ok(())
    }
}

fn exact(world: &mut World) -> Result {
    let services = [service("shop", SHOP), service("cart", CART), bare()];
    let mut site = start(world, "figures", &[], &services.each_ref())?;
    let mut clients = Clients::new(world, &site);
    clients.check()?;
    clients.connect(SHOP, "default/shop", 40)?;
    clients.connect(CART, "default/cart", 20)?;
    clients.refused(BARE, 80, ("default/bare", "no_backend"), 3)?;
    clients.refused(BARE, 81, ("default/bare", "unknown_port"), 2)?;
    clients.refused(CART, 81, ("default/cart", "unknown_port"), 1)?;
    clients.check()?;
    let backends = "mcs_import_backends{import=\"default/shop\",source_cluster=\"east\"}";
    wait::until("the backends of both frontends", || {
        let count = http::samples_at(&world.network.node.netns, METRICS)?.get(backends).copied();
        ensure!(count == Some(2.0), "{count:?}");
        Ok(())
    })?;

    // Of an unconnected socket the first datagram counts.
    let of_shop = |figures: &BTreeMap<String, u64>| {
        let shop = figures.iter().filter(|(labels, _)| labels.contains("default/shop\",source"));
        shop.map(|(_, count)| count).sum::<u64>()
    };
    clients.at(|| {
        for _ in 0..2 {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            for _ in 0..3 {
                socket.send_to(b"hello", (SHOP, 53))?;
            }
        }
        Ok(())
    })?;
    assert_eq!(of_shop(&figures(world)?), of_shop(&clients.expected) + 2);
    drop(clients);

    // The next agent counts from zero, and nothing twice.
    site.agent.stop()?;
    site.agent.come_back(&["--metrics-address", METRICS])?;
    let mut clients = Clients::new(world, &site);
    clients.check()?;
    clients.connect(SHOP, "default/shop", 10)?;
    clients.refused(CART, 81, ("default/cart", "unknown_port"), 4)?;
    clients.check()
}

/// Nothing listens on the port of one of two services that have passive health.
fn failed(world: &mut World) -> Result {
    const CONNECTS: u64 = 12;
    if !Features::probe()?.socket_tracepoints {
        return Err(skip("passive health takes Linux 5.12"));
    }
    let asking = |name, vip: Ipv4Addr, port| {
        let service = Service::new(name, [vip.into()]).port(Protocol::Tcp, 80, port);
        service.endpoints("east", [pod_address(PODS[0])]).passive_health(true)
    };
    let services = [asking("shop", SHOP, 8080), asking("cart", CART, 8081)];
    let site = start(world, "failed", &[], &services.each_ref())?;
    let mut clients = Clients::new(world, &site);
    clients.connect(SHOP, "default/shop", 5)?;
    clients.at(|| {
        let connect = || connected(Family::V4, SocketAddr::new(CART.into(), 80));
        assert!((0..CONNECTS).all(|_| connect().is_err()), "somebody answered");
        Ok(())
    })?;
    wait::until("the count of all", || {
        let samples = http::samples_at(&world.network.node.netns, METRICS)?;
        let failed = samples.iter().filter(|(name, _)| name.contains("_failed_connects_total"));
        let failed: Vec<_> = failed.map(|(name, count)| format!("{name} {count}")).collect();
        let expected =
            "mcs_import_failed_connects_total{import=\"default/cart\",source_cluster=\"east\"}";
        ensure!(failed == [format!("{expected} {CONNECTS}")], "{failed:?}");
        Ok(())
    })?;
    site.remove(&services[1])?;
    wait::until("the count of an import that has gone to end", || {
        let samples = http::samples_at(&world.network.node.netns, METRICS)?;
        ensure!(samples.keys().all(|name| !name.contains("default/cart")), "it is there");
        Ok(())
    })
}

fn bounded(world: &mut World) -> Result {
    let shop = service("shop", SHOP);
    let site = start(world, "bounded", &["--metrics-imports", "1"], &[&shop])?;
    site.apply(&service("cart", CART))?;
    site.apply(&bare())?;
    let mut clients = Clients::new(world, &site);
    clients.connect(SHOP, "default/shop", 5)?;
    clients.refused(SHOP, 81, ("default/shop", "unknown_port"), 1)?;
    clients.connect(CART, "other", 7)?;
    clients.refused(CART, 81, ("other", "unknown_port"), 2)?;
    clients.refused(BARE, 80, ("other", "no_backend"), 3)?;
    clients.check()?;

    // Nobody loses a place to a larger import.
    let many = service("cart", CART).endpoints("north", (20..26).map(pod_address));
    site.apply(&many)?;
    clients.refused(SHOP, 81, ("default/shop", "unknown_port"), 1)?;
    clients.refused(CART, 81, ("other", "unknown_port"), 1)?;
    clients.check()?;
    site.apply(&service("cart", CART))?;
    wait_for_others(world, 2.0)?;

    // The place of an import that has gone is for another one.
    site.remove(&shop)?;
    clients.expected.retain(|labels, _| labels.contains("other"));
    wait_for(world, &clients.expected)?;
    wait_for_others(world, 1.0)?;
    clients.connect(CART, "default/cart", 3)?;
    clients.refused(CART, 81, ("default/cart", "unknown_port"), 1)?;
    clients.check()
}

fn replaced(world: &mut World) -> Result {
    let flags = ["--metrics-imports", "1"];
    let shop = service("shop", SHOP);
    let site = start(world, "replaced", &flags, &[&shop])?;
    let mut clients = Clients::new(world, &site);
    clients.connect(SHOP, "default/shop", 5)?;
    clients.refused(SHOP, 81, ("default/shop", "unknown_port"), 2)?;
    clients.check()?;
    site.remove(&shop)?;
    clients.expected.clear();
    wait_for(world, &clients.expected)?;
    site.apply(&service("cart", CART))?;
    clients.connect(CART, "default/cart", 3)?;
    clients.refused(CART, 81, ("default/cart", "unknown_port"), 1)?;
    // It has gone.
    clients.at(|| {
        assert!(connected(Family::V4, SocketAddr::new(SHOP.into(), 80)).is_err());
        Ok(())
    })?;
    clients.check()?;

    // The source clusters change places too.
    let north = Service::new("cart", [CART.into()])
        .port(Protocol::Tcp, 80, 8080)
        .endpoints("north", [pod_address(PODS[0])]);
    site.apply(&north)?;
    site.apply(&service("cart", CART))?;
    let figures = figures(world)?;
    assert!(figures.keys().all(|labels| !labels.contains("north")), "{figures:?}");
    Ok(())
}

fn grown(world: &mut World) -> Result {
    const ROOM: &str = "mcs_capacity_room{resource=\"clusters\"}";
    let site = start(world, "grown", &[], &[&service("shop", SHOP)])?;
    let mut clients = Clients::new(world, &site);
    clients.connect(SHOP, "default/shop", 5)?;
    let room = || {
        let samples = http::samples_at(&world.network.node.netns, METRICS)?;
        samples.get(ROOM).copied().context("no room")
    };
    let before = room()?;
    let wide = (0..70).fold(bare(), |wide, number| {
        wide.endpoints(&format!("cluster-{number}"), [Ipv4Addr::new(10, 79, 1, number).into()])
    });
    site.apply(&wide)?;
    wait::until("larger maps", || {
        let room = room()?;
        ensure!(room > before, "there is room for {room} clusters");
        Ok(())
    })?;
    site.apply(&service("cart", CART))?;
    clients.connect(SHOP, "default/shop", 5)?;
    clients.connect(CART, "default/cart", 5)?;
    clients.refused(CART, 81, ("default/cart", "unknown_port"), 1)?;
    clients.check()
}

fn off(world: &mut World) -> Result {
    let services = [service("shop", SHOP), bare()];
    let site = start(world, "off", &["--metrics-imports", "0"], &services.each_ref())?;
    let mut clients = Clients::new(world, &site);
    clients.connect(SHOP, "default/shop", 3)?;
    clients.refused(BARE, 80, ("default/bare", "no_backend"), 1)?;
    assert_eq!(figures(world)?, BTreeMap::new());
    Ok(())
}
