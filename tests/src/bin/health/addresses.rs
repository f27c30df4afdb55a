//! The addresses of the HTTP servers, also one that is in use.

use std::net::TcpListener;

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a port in use is reported, and everything else works", in_use);
    suite.case("one address serves both, of both families", both);
    suite.case("off is off", off);
}

fn in_use(world: &mut World) -> Result {
    let netns = Namespace::create(&world.run, "taken")?;
    let holder = netns.run(|| TcpListener::bind(METRICS))??;
    let manifests = Manifests::create(&world.run)?;
    manifests.write(&web())?;
    let flags = ["--health-address", HEALTH, "--metrics-address", METRICS];
    let mut site = Launch::new(&world.run, "taken", &netns).flags(&flags).reads(manifests)?;
    wait::until("the maps", || site.agent.wait_for(&web()))?;
    let problem = format!("cannot listen on {METRICS}");
    wait::until("the problem to be reported", || {
        let says = [
            "[-]addresses failed: ",
            &problem,
            "give --metrics-address another address",
            "[+]hooks ok",
            "[+]sync ok",
        ];
        expect(&health(&netns, "/readyz")?, 503, &says)
    })?;
    expect(&health(&netns, "/livez")?, 200, &["ok"])?;
    let status = site.agent.status()?;
    ensure!(status["degraded"].to_string().contains(&problem), "{}", status["degraded"]);
    ensure!(site.agent.log()?.contains(&problem), "the log says nothing of it");

    drop(holder);
    site.agent.wait_until_healthy()?;
    expect(&ask(&netns, &format!("{METRICS}/metrics"), &[])?, 200, &["mcs_build_info"])
}

fn both(world: &mut World) -> Result {
    let netns = Namespace::create(&world.run, "both")?;
    let flags = ["--health-address", "[::]:7070", "--metrics-address", "[::]:7070"];
    let site = Site::start(&world.run, "both", &netns, &flags, &[&web()])?;
    for host in ["127.0.0.1:7070", "[::1]:7070"] {
        expect(&ask(&netns, &format!("{host}/readyz"), &[])?, 200, &["ok"])?;
        expect(&ask(&netns, &format!("{host}/metrics"), &[])?, 200, &["mcs_build_info"])?;
    }
    drop(site);
    Ok(())
}

fn off(world: &mut World) -> Result {
    let netns = Namespace::create(&world.run, "off")?;
    let flags = ["--health-address=off", "--metrics-address=off"];
    let site = Site::start(&world.run, "off", &netns, &flags, &[&web()])?;
    let listening = netns.output("ss", &["--no-header", "--listening", "--tcp"])?;
    ensure!(listening.is_empty(), "{listening}");
    drop(site);
    Ok(())
}
