//! The page: what it says, to whom, and what a name in an object cannot do to it.

use mcs_tests::browser::Browser;

use crate::prelude::*;

/// The names of an object that is in nobody's favour.
const MARKUP: &str =
    "\"><script>document.title='owned'</script><img src=x onerror=document.title='owned'>";
/// How wide a phone's window is.
const PHONE: u16 = 390;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("the page says what status says, to clients on this machine alone", page);
    suite.full("a browser runs nothing of the page, which fits a phone", browser);
}

/// A node with clusters in several states, and objects of people who mean no good.
fn site(world: &World, role: &str) -> Result<(Site, Namespace)> {
    let netns = Namespace::create(&world.run, role)?;
    netns.ip("link set lo up\naddr add 10.79.0.1/32 dev lo\n")?;
    for pod in 1..=4 {
        netns.ip(&format!("addr add 10.202.0.{pod}/32 dev lo\n"))?;
    }
    let manifests = Manifests::create(&world.run)?;
    let pods =
        |cluster: u8, count: u8| (1..=count).map(move |pod| IpAddr::from([10, cluster, 0, pod]));
    let service = |namespace: &str, name: &str, number: u8| {
        Service::new(name, [[10, 78, 1, number].into()]).namespace(namespace).port(
            Protocol::Tcp,
            80,
            8080,
        )
    };
    for one in [
        service("shop", "cart", 1).endpoints("east", pods(201, 3)).endpoints("west", pods(202, 1)),
        service("shop", "checkout", 2)
            .endpoints("west", pods(202, 4))
            .endpoints("north", pods(203, 4)),
        service("bank", "ledger", 3).endpoints("west", pods(202, 2)),
        service("media", "search", 4),
        Service::new("video", [Ipv4Addr::new(169, 254, 0, 9).into()]).namespace("media").port(
            Protocol::Tcp,
            443,
            8443,
        ),
    ] {
        manifests.write(&one)?;
    }
    let mut tiers = service("shop", "orders", 5).import();
    let results = r#"[{"clusters":["west"]},{"clusters":["north"]}]"#;
    tiers["metadata"]["annotations"] =
        json!({"clusterset.mcs-agent.io/cluster-selector-results": results});
    let slices = service("shop", "orders", 5)
        .endpoints("west", pods(202, 2))
        .endpoints("north", pods(203, 2))
        .slices();
    let items: Vec<_> = std::iter::once(tiers).chain(slices).collect();
    let orders = json!({"apiVersion": "v1", "kind": "List", "items": items});
    manifests.put("orders", &orders)?;
    manifests.put("hostile", &hostile())?;
    let flags = [
        "--probe-peers=on",
        "--page",
        "--health-address=0.0.0.0:16450",
        "--metrics-address=off",
        "--node-name=worker-1",
        "--cluster-id=east",
        "--zone=a",
    ];
    let mut site = Launch::new(&world.run, role, &netns).flags(&flags).reads(manifests)?;
    site.agent.wait_until_healthy()?;
    Ok((site, netns))
}

/// Imports whose names and values are markup, control characters and as long as can be.
fn hostile() -> Value {
    let import = |name: &str, ip: &str| {
        json!({
            "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport",
            "metadata": {"namespace": "tenant", "name": name},
            "spec": {"type": "ClusterSetIP", "ips": [ip], "ports": [{"port": 80, "protocol": "TCP"}]},
        })
    };
    let items = [
        import("markup", MARKUP),
        import(MARKUP, "10.78.1.10"),
        import("control", "\u{1b}[2J\u{7}\u{202e}owned"),
        import(&"long-".repeat(50), "10.78.1.12"),
    ];
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

fn get(netns: &Namespace, path: &str) -> Result<Answer> {
    ask(netns, &format!("{HEALTH}{path}"), &[])
}

fn page(world: &mut World) -> Result {
    let (site, netns) = site(world, "page")?;
    let says = [
        "mcs-agent on node worker-1",
        "●&nbsp;healthy",
        "shop/cart",
        "75.0&nbsp;% east",
        "25.0&nbsp;% west",
        "1 west; 2 north",
        "✕&nbsp;Refusing",
        "✕&nbsp;Rejected",
    ];
    let answer = wait::until("the page", || {
        let answer = get(&netns, "/page")?;
        expect(&answer, 200, &says)?;
        Ok(answer)
    })?;
    for header in [
        "content-security-policy: default-src 'none'; style-src 'self';",
        "content-type: text/html",
    ] {
        ensure!(answer.headers.contains(header), "no {header} in {}", answer.headers);
    }
    ensure!(!answer.body.contains("<script") && !answer.body.contains("<img"), "{}", answer.body);
    ensure!(
        answer.body.contains("&lt;script&gt;") && answer.body.contains("\\u{1b}[2J"),
        "{}",
        answer.body
    );
    ensure!(!answer.body.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{}", answer.body);
    ensure!(!site.agent.log()?.contains(['\u{1b}', '\u{7}']), "the log has control characters");

    let one = get(&netns, "/page?import=shop/cart")?;
    expect(&one, 200, &["10.201.0.1:8080", "10.78.1.1:80/TCP"])?;
    ensure!(!one.body.contains("bank/ledger"), "it lists other imports too");
    expect(&get(&netns, "/page.css")?, 200, &["prefers-color-scheme"])?;
    // A name that leads here by somebody else's DNS, and an address that others reach.
    for (url, flags) in [
        (format!("{HEALTH}/page"), &["--header", "Host: owned.example"][..]),
        ("10.79.0.1:16450/page".to_owned(), &[]),
        ("10.79.0.1:16450/page".to_owned(), &["--header", "Host: localhost"]),
    ] {
        expect(&ask(&netns, &url, flags)?, 403, &["mcs ui"])?;
    }
    let off = ask(&world.network.node.netns, &format!("{HEALTH}/page"), &[])?;
    expect(&off, 404, &["there is /livez"])?;
    Ok(())
}

fn browser(world: &mut World) -> Result {
    let browser = Browser::find()?;
    let (_site, netns) = site(world, "browser")?;
    let url = format!("http://{HEALTH}/page");
    let document = browser.document(&netns, &format!("{url}?reload=off"))?;
    ensure!(document.contains("<title>mcs-agent on node worker-1</title>"), "{document}");
    ensure!(!document.contains("<img") && !document.contains("<script"), "{document}");
    ensure!(document.contains("&lt;img src=x onerror="), "{document}");
    let [page, style] = ["/page?reload=off", "/page.css"].map(|path| get(&netns, path));
    let width = browser.width(&netns, &page?.body, &style?.body, PHONE)?;
    ensure!(width == PHONE, "it is {width} pixels wide in a window of {PHONE}");
    Ok(())
}
