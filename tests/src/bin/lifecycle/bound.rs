//! More objects than `--max-memory` has room for.

use crate::prelude::*;

/// Room for 47 frontends: of these services, each with four, the first eleven get some.
const SMALL: [&str; 2] = ["--tc=on", "--max-memory=64Ki"];
const OTHERS: usize = 12;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case(
        "what does not fit into --max-memory is rejected, and nothing else is affected, under load",
        is_full,
    );
    suite.case(
        "a service that does not fit is refused at once by both paths until there is room",
        is_refused,
    );
}

fn is_full(world: &mut World) -> Result {
    // Room for some 8000 endpoints. The target has a few.
    let (target, mut site, _in_cgroup) = world.stage("bounded", &["--max-memory=1Mi"])?;
    Load::of(&target).during(&world.network.pod, || {
        (0..10).try_for_each(|one| site.manifests.write(&large(one)))?;
        wait_for(&site, 7000)?;
        // Who is there can change as before, and a restart takes nothing from anybody.
        for set in [SETS[1], SETS[0]] {
            site.apply(&target.clone().with(set).service)?;
        }
        site.agent.replace(&["--max-memory=1Mi"])?;
        site.agent.wait_for(&target.service)
    })?;
    let status = site.agent.status()?;
    let rejections = status["report"]["rejections"].as_array().context("no rejections")?;
    ensure!(rejections.len() == 3, "{} rejections: {rejections:?}", rejections.len());
    for rejection in rejections {
        ensure!(rejection["reason"] == "capacity", "{rejection}");
        let message = rejection["message"].as_str().unwrap_or_default();
        ensure!(message.contains("--max-memory"), "{message}");
        tell(message);
    }
    let degraded = status["degraded"].to_string();
    ensure!(degraded.contains("3 parts of imports do not fit into --max-memory=1Mi"), "{degraded}");
    let number = |of: &serde_json::Value| of.as_u64().context("no number");
    let (bytes, room) =
        (number(&status["report"]["config_map_bytes"])?, &status["report"]["capacity"]);
    // VIPs beyond one for each frontend come on top.
    let refused = 104 * number(&room["vips"])?.saturating_sub(number(&room["frontends"])?);
    ensure!(bytes - refused <= 1 << 20, "the maps take {bytes} bytes");
    Ok(())
}

fn is_refused(world: &mut World) -> Result {
    let network = world.another("room")?;
    let [first, last] = ["first", "youngest"].map(|name| world.target(name));
    let others: Vec<_> = (0..OTHERS).map(|one| world.target(&format!("other-{one}"))).collect();
    let node = &network.node.netns;
    let site = Site::start(&world.run, "room", node, &SMALL, &[&first.service])?;
    for target in [&first, &last] {
        lead(&network, target)?;
    }
    let fresh = others.iter().chain([&last]);
    fresh.map(|target| &target.service).try_for_each(|one| site.manifests.write(one))?;
    let name = last.service.name();
    wait::until("the rejection", || {
        let status = site.agent.status()?;
        let rejections = status["report"]["rejections"].as_array().context("no rejections")?;
        let of_last = rejections.iter().filter(|one| one["object"]["name"] == name);
        ensure!(of_last.count() > 0, "{rejections:?}");
        Ok(())
    })?;
    serves(&site, &network, &first)?;
    for (sockets, family) in CLIENTS {
        by(&site, &network, sockets, || refuses(&last, family))
            .with_context(|| format!("{family}, sockets: {sockets}"))?;
    }
    let counters = site.agent.counters()?;
    for name in ["refused_unknown_port", "packet_refused_unknown_port"] {
        ensure!(counters[name] > 0, "{name} did not count");
    }
    let degraded = site.agent.status()?["degraded"].to_string();
    ensure!(degraded.contains("do not fit into --max-memory=64Ki"), "{degraded}");
    let explained = site.agent.command(&["explain", &format!("default/{name}")])?;
    let said = String::from_utf8_lossy(&explained.stdout);
    ensure!(said.contains("no-room") && !said.contains("unknown-port"), "{said}");

    others.iter().try_for_each(|one| site.manifests.remove(one.service.name()))?;
    site.agent.wait_for(&last.service)?;
    [&first, &last].into_iter().try_for_each(|target| serves(&site, &network, target))
}

/// Fails unless the service's pods answer clients of each path and family.
pub(crate) fn serves(site: &Site, network: &Network, target: &Target) -> Result {
    for (sockets, family) in CLIENTS {
        let who = by(site, network, sockets, || answers(target, family))?;
        ensure!(who.iter().all(|one| backends(SETS[0]).contains(one)), "{who:?} answered");
    }
    Ok(())
}

/// Fails unless clients are refused, and soon.
pub(crate) fn refuses(target: &Target, family: Family) -> Result {
    let (tcp, udp) = (target.tcp(family), target.udp(family));
    client::refused_at_once(|| connected(family, tcp).map(drop)).context("TCP")?;
    client::refused_at_once(|| {
        let socket = udp_connected(family, udp)?;
        socket.send(b"anybody there")?;
        socket.recv(&mut [0; 16]).map(drop)
    })
    .context("UDP")
}
