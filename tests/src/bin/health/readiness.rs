//! Readiness and liveness: an agent is ready once it is synced and attached, and alive while it waits for that too.

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a healthy agent answers", healthy);
    suite.case("unknown paths get 404, other methods 405", elsewhere);
    suite.case("ready when everything was read", unsynced);
    suite.case("alive and not ready while another agent has the directory", waiting);
    suite.case("not ready while a hook is detached", detached);
    suite.case("healthz has the fields of kube-proxy's", healthz);
}

fn healthy(world: &mut World) -> Result {
    let netns = &world.network.node.netns;
    for path in ["/livez", "/readyz"] {
        let answer = health(netns, path)?;
        expect(&answer, 200, &[])?;
        assert_eq!(answer.body, "ok");
    }
    expect(&health(netns, "/livez?verbose")?, 200, &["[+]control ok", "livez check passed"])?;
    let checks = [
        "shutdown",
        "control",
        "sync",
        "programs",
        "hooks",
        "devices",
        "places",
        "maps",
        "addresses",
        "ranges",
    ]
    .map(|check| format!("[+]{check} ok\n"));
    let expected = format!("{}readyz check passed\n", checks.concat());
    assert_eq!(health(netns, "/readyz?verbose=1")?.body, expected);
    ensure!(world.site.agent.is_healthy()?, "status is of another opinion");
    Ok(())
}

fn elsewhere(world: &mut World) -> Result {
    let netns = &world.network.node.netns;
    expect(&health(netns, "/metrics")?, 404, &["/livez, /readyz and /healthz"])?;
    expect(&ask(netns, &format!("{METRICS}/readyz"), &[])?, 404, &["/metrics"])?;
    expect(&ask(netns, &format!("{HEALTH}/livez"), &["--request", "POST"])?, 405, &[])?;
    let head = ask(netns, &format!("{HEALTH}/livez"), &["--head"])?;
    expect(&head, 200, &[])?;
    assert_eq!(head.body, "");
    Ok(())
}

fn unsynced(world: &mut World) -> Result {
    let broken = |manifests: &Manifests| -> Result {
        manifests.write(&web())?;
        Ok(fs::write(manifests.path().join("broken.yaml"), "kind: [")?)
    };
    let (mut site, netns) = another(world, "unsynced", &[], broken)?;
    wait::until("the maps, without everything", || {
        site.agent.wait_for(&web())?;
        expect(&health(&netns, "/readyz")?, 503, &["[-]sync failed: not synced", "[+]hooks ok"])?;
        // The report follows the maps a little later.
        let problems = samples(&netns)?["mcs_source_problems"];
        ensure!(problems == 1.0, "{problems} problems");
        Ok(())
    })?;
    expect(&health(&netns, "/livez")?, 200, &[])?;
    expect(&health(&netns, "/healthz")?, 200, &[])?;
    let figures = samples(&netns)?;
    assert_eq!(figures["mcs_source_synced{resource=\"manifests\"}"], 0.0);
    assert_eq!(figures["mcs_check_ok{check=\"sync\"}"], 0.0);
    let lost = figures["mcs_source_last_contact_timestamp_seconds{resource=\"manifests\"}"];
    ensure!(
        lost <= figures["kubeproxy_sync_proxy_rules_last_timestamp_seconds"].ceil(),
        "contact at {lost}"
    );

    fs::remove_file(site.manifests.path().join("broken.yaml"))?;
    site.agent.wait_until_healthy()?;
    expect(&health(&netns, "/readyz")?, 200, &["ok"])?;
    assert_eq!(samples(&netns)?["mcs_source_synced{resource=\"manifests\"}"], 1.0);
    Ok(())
}

fn waiting(world: &mut World) -> Result {
    let (mut first, netns) = another(world, "first", &[], |manifests| manifests.write(&web()))?;
    first.agent.wait_until_healthy()?;
    let second = mcs_tests::netns::Namespace::create(&world.run, "second")?;
    let mut config = first.agent.config().clone();
    config.log = world.run.directory().join("second.log");
    let mut agent = mcs_tests::agent::Agent::start(&second, config)?;
    wait::until("it to wait", || {
        expect(&health(&second, "/readyz")?, 503, &["[-]start failed"])?;
        expect(&health(&second, "/livez")?, 200, &["ok"])
    })?;
    expect(&health(&netns, "/readyz")?, 200, &["ok"])?;
    first.agent.stop()?;
    agent.wait_until_healthy()?;
    expect(&health(&second, "/readyz")?, 200, &["ok"])
}

fn detached(world: &mut World) -> Result {
    let Site { agent, bpffs, .. } = &world.site;
    let netns = &world.network.node.netns;
    let pin = bpffs.path().join("mcs/links/connect4").display().to_string();
    wait::until("readyz to tell it", || {
        // The agent may have attached it again at once; what is detached cannot be detached.
        let _ = netns.output("bpftool", &["link", "detach", "pinned", &pin]);
        expect(&health(netns, "/readyz")?, 503, &["[-]hooks failed: connect4 is not attached"])
    })?;
    wait_for_sample(world, "mcs_hook_attached{hook=\"connect4\"}", 1.0)?;
    wait::until("the hook to be back", || expect(&health(netns, "/readyz")?, 200, &["ok"]))?;
    ensure!(agent.is_healthy()?, "status is of another opinion");
    Ok(())
}

fn healthz(world: &mut World) -> Result {
    let before = sample(world, "kubeproxy_proxy_healthz_total{code=\"200\"}").unwrap_or(0.0);
    let answer = health(&world.network.node.netns, "/healthz")?;
    expect(&answer, 200, &[])?;
    ensure!(answer.headers.contains("content-type: application/json"), "{}", answer.headers);
    ensure!(answer.headers.contains("x-content-type-options: nosniff"), "{}", answer.headers);
    let body: Value = serde_json::from_str(&answer.body)?;
    assert_eq!(body["healthy"], true);
    assert_eq!(body["lastUpdated"], body["currentTime"]);
    ensure!(body["currentTime"].as_str().is_some_and(|time| time.ends_with('Z')), "{body}");
    assert_eq!(sample(world, "kubeproxy_proxy_healthz_total{code=\"200\"}")?, before + 1.0);
    Ok(())
}
