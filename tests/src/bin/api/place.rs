//! Node facts from the API server (zone, cluster id), and the choice of imports.

use mcs_tests::{api_server::rights, manifests::Frontends};

use crate::{
    prelude::*,
    world::{NO_POD, backend},
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("only imports with the labels asked for", selects_imports);
    suite.case("the node's zone is followed", follows_zone);
    suite.case("the cluster's id is followed", follows_cluster_id);
    suite.case("weights and drains of source clusters are followed", follows_traffic);
    suite.case("a silent cluster none of whose pods answers is ejected", ejects);
    suite.case("ranges of ClusterSetIPs are followed", follows_vip_ranges);
    suite.case("flags go before what the cluster says", flags_first);
    suite.case("an address of the API server is no VIP", refuses_api_server);
    suite.case("a pod's service account", in_a_pod);
    suite.case("explain reads with the agent's rights, also while the server is away", explains);
}

fn node(zone: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": "n1", "labels": { "topology.kubernetes.io/zone": zone } },
    })
}

fn cluster_id(id: &str) -> Value {
    cluster_property("cluster.clusterset.k8s.io", id)
}

/// How long a node takes at most to find that no pod of a cluster answers: four rounds, and what connections take.
const EJECTION: Duration = Duration::from_secs(90);

/// Also what a node does that reaches no pod of a silent cluster, with `--full`: it takes a minute.
fn ejects(world: &mut World) -> Result {
    let target = world.fresh("ejected").with(&[11]);
    let ejected = target.service.clone();
    let service = target.service.endpoints("west", pod_addresses(NO_POD));
    let traffic = |value: &str| cluster_property("traffic.clusterset.mcs-agent.io", value);
    let api = &world.east.api;
    let objects: Vec<_> = [service.import()].into_iter().chain(service.slices()).collect();
    api.apply_all(&objects)?;
    let mut site = world.start("ejects", &["--probe-peers=on"])?;
    site.wait_until_healthy()?;
    site.wait_for(&service)?;
    api.apply(&traffic(r#"{"remote":{"unreachable":"eject"},"west":{"unreachable":"eject"}}"#))?;
    let says = |west: &'static str| {
        move |report: &Value| {
            let said = |cluster: &str| report["node"]["traffic"][cluster]["unreachable"].clone();
            (said("remote"), said("west")) == (json!("eject"), json!(west))
        }
    };
    site.wait_for_report("silent clusters", says("eject"))?;
    if is_full() {
        wait::within(EJECTION, "an ejected cluster", || {
            let report = site.report()?;
            ensure!(says("ejected")(&report), "it reports {}", report["node"]["traffic"]);
            Ok(())
        })?;
        // UDP clients leave it too: nothing would tell them.
        site.wait_for(&ejected)?;
    }
    api.delete(&traffic(""))?;
    site.wait_for(&service)?;
    objects.iter().try_for_each(|object| api.delete(object))
}

/// Weights and drains come from the API server alone, and the rules get them.
fn follows_traffic(world: &mut World) -> Result {
    let traffic = |value: &str| cluster_property("traffic.clusterset.mcs-agent.io", value);
    let wanted = json!({ "west": { "drain": true }, "east": { "weight": 10 } });
    world.east.api.apply(&traffic(&wanted.to_string()))?;
    let told = |expected: Value| move |report: &Value| report["node"]["traffic"] == expected;
    world.site.wait_for_report("weights and drains", told(wanted.clone()))?;
    world.east.api.apply(&traffic("much"))?;
    world.site.wait_for_report("a problem", |report| {
        report["source"].to_string().contains("traffic") && report["node"]["traffic"] == wanted
    })?;
    world.east.api.delete(&traffic(""))?;
    world.site.wait_for_report("no weights", told(json!({})))
}

/// An agent without `--vip-cidr` accepts what the cluster says, and takes no address away that it serves.
fn follows_vip_ranges(world: &mut World) -> Result {
    let [inside, outside] = ["inside", "outside"].map(|name| world.fresh(name).with(&[11]));
    let api = &world.east.api;
    let vips = |service: &Service| {
        let import = service.import();
        let ips = import["spec"]["ips"].as_array().into_iter().flatten();
        let range = |ip: &str| format!("{ip}/{}", if ip.contains(':') { 128 } else { 32 });
        ips.filter_map(Value::as_str).map(range).collect::<Vec<_>>().join(",")
    };
    let property = |ranges: &str| cluster_property("vip-ranges.clusterset.mcs-agent.io", ranges);
    let (first, second) = (vips(&inside.service), vips(&outside.service));
    api.apply(&property(&first))?;
    api.apply_all(&inside.objects())?;
    api.apply_all(&outside.objects())?;
    let mut site = world.start("ranges", &[])?;
    site.wait_until_healthy()?;
    site.wait_for(&inside.service)?;
    let reports = |what: &str, check: &dyn Fn(&Value) -> bool| site.wait_for_report(what, check);
    reports("an address outside", &|report| {
        let reasons = rejections(report, "outside");
        !reasons.is_empty() && reasons.iter().all(|reason| reason == "vip_outside_cidr")
    })?;
    api.apply(&property(&format!("{first},{second}")))?;
    site.wait_for(&outside.service)?;
    reports("a node that is content", &|report| report["vips_kept"] == json!([]))?;
    api.apply(&property("10.0.0.0"))?;
    reports("a problem", &|report| report["source"].to_string().contains("is no range"))?;
    api.apply(&property(&first))?;
    reports("addresses that stay", &|report| report["vips_kept"] != json!([]))?;
    let degraded = site.agent.status()?["degraded"].to_string();
    let expected = "outside ClusterProperty vip-ranges.clusterset.mcs-agent.io";
    ensure!(degraded.contains(expected), "{degraded}");
    site.wait_for(&outside.service)?;
    api.delete(&property(""))?;
    reports("no ranges", &|report| report["node"]["vip_ranges"] == json!([]))?;
    for target in [&inside, &outside] {
        target.objects().iter().try_for_each(|object| api.delete(object))?;
    }
    Ok(())
}

fn selects_imports(world: &mut World) -> Result {
    let [chosen, other] =
        ["chosen", "other"].map(|name| world.fresh(&format!("selected-{name}")).with(&[11]));
    let labelled = |stage: &str| {
        let mut import = chosen.service.import();
        import["metadata"]["labels"] = json!({ "stage": stage });
        import
    };
    let api = &world.east.api;
    api.apply_all(&other.objects())?;
    api.apply_all(&chosen.objects())?;
    let mut site = world.start("selected", &["--import-selector", "stage in (canary,all)"])?;
    site.wait_until_healthy()?;
    ensure!(site.agent.services()?["frontends"] == json!([]), "an import was followed");
    api.apply(&labelled("canary"))?;
    site.wait_for(&chosen.service)?;
    api.apply(&labelled("none"))?;
    site.agent.wait_until_gone(chosen.service.name())?;
    api.apply(&labelled("all"))?;
    site.wait_for(&chosen.service)?;
    site.agent.wait_until_gone(other.service.name())
}

/// Each endpoint is meant for one zone.
fn for_zones(service: &Service, zones: &[&str]) -> Value {
    let mut slice = service.slices()[0].clone();
    for (endpoint, zone) in slice["endpoints"].as_array_mut().into_iter().flatten().zip(zones) {
        endpoint["hints"] = json!({ "forZones": [{ "name": zone }] });
    }
    slice
}

fn follows_zone(world: &mut World) -> Result {
    let target = world.fresh("zoned").with(&[11, 12]);
    let of_zone = |pod| target.clone().with(&[pod]).service.frontends();
    let api = &world.east.api;
    api.apply(&node("a"))?;
    api.apply_all(&[target.service.import(), for_zones(&target.service, &["a", "b"])])?;
    let v4 =
        |frontends: Frontends| frontends.into_iter().filter(|((ip, ..), _)| ip.is_ipv4()).collect();
    let mut site = world.start("zoned", &["--node-name", "n1"])?;
    site.wait_until_healthy()?;
    let expect = |pod| {
        let expected: Frontends = v4(of_zone(pod));
        wait::until(&format!("{} alone", backend(pod)), || {
            let found: Frontends = v4(site.agent.frontends("zoned")?);
            ensure!(found == expected, "there are {found:?}");
            Ok(())
        })
    };
    expect(11)?;
    api.apply(&node("b"))?;
    expect(12)?;
    // A report comes a little later than what it is about.
    site.wait_for_report("the other zone", |report| report["node"]["zone"] == "b")
}

fn follows_cluster_id(world: &mut World) -> Result {
    let target = world.fresh("local").with(&[11]);
    let mut import = target.service.import();
    import["spec"]["internalTrafficPolicy"] = "Local".into();
    // Its endpoint is on a node of this name in the cluster "remote".
    let mut slice = target.service.slices()[0].clone();
    slice["endpoints"][0]["nodeName"] = "n1".into();
    let api = &world.east.api;
    api.apply_all(&[import, slice])?;
    let mut site = world.start("local", &["--node-name", "n1", "--zone", "a"])?;
    site.wait_until_healthy()?;
    let reports = |what: &str, check: &dyn Fn(&Value) -> bool| site.wait_for_report(what, check);
    reports("a policy that needs an identity", &|report| {
        rejections(report, "local") == ["traffic_policy_needs_identity"]
    })?;
    let backends = || -> Result<usize> {
        Ok(site.agent.frontends("local")?.values().map(std::collections::BTreeSet::len).sum())
    };
    api.apply(&cluster_id("elsewhere"))?;
    reports("a cluster id", &|report| report["node"]["cluster_id"] == "elsewhere")?;
    ensure!(backends()? == 0, "an endpoint of another cluster is taken for local");
    api.apply(&cluster_id("remote"))?;
    reports("another cluster id", &|report| report["node"]["cluster_id"] == "remote")?;
    wait::until("the local endpoint", || {
        ensure!(backends()? == 2, "there are {} backends", backends()?);
        Ok(())
    })?;
    api.delete(&cluster_id("remote"))?;
    reports("no cluster id", &|report| report["node"]["cluster_id"].is_null())
}

fn flags_first(world: &mut World) -> Result {
    let api = &world.east.api;
    api.apply_all(&[node("b"), cluster_id("remote")])?;
    let flags = ["--node-name", "n1", "--zone", "z", "--cluster-id", "own"];
    let ranges = ["--service-cidr", "10.96.0.0/16", "--vip-cidr", "0.0.0.0/0,::/0"];
    let mut site = world.start("flags", &[&flags[..], &ranges].concat())?;
    site.wait_until_healthy()?;
    let report = site.report()?;
    ensure!(report["node"]["zone"] == "z" && report["node"]["cluster_id"] == "own", "{report}");
    // No flag has the pod ranges of the Node, or what operators want of source clusters.
    let followed = report["source"]["kinds"].as_array().map(Vec::len);
    ensure!(followed == Some(4), "it follows {}", report["source"]["kinds"]);
    api.delete(&cluster_id("remote"))?;
    api.delete(&node("b"))
}

fn refuses_api_server(world: &mut World) -> Result {
    let service = Service::new("api-server", [world.control.address().into()]);
    let import = service.port(Protocol::Tcp, 6443, 8080).import();
    world.east.api.apply(&import)?;
    world.site.wait_for_report("a VIP that is the API server's", |report| {
        rejections(report, "api-server") == ["vip_is_api_server"]
    })?;
    world.east.api.delete(&import)
}

fn in_a_pod(world: &mut World) -> Result {
    let target = world.fresh("seen-by-a-pod").with(&[11]);
    let api = &world.east.api;
    api.apply_all(&target.objects())?;
    let account = world.run.directory().join("account");
    fs::create_dir(&account)?;
    fs::write(account.join("namespace"), "mcs-system")?;
    fs::copy(world.east.authority(), account.join("ca.crt"))?;
    world.east.write_token(&rights::account()?, &account.join("token"))?;
    let source = Source::Pod { account, server: world.east.address() };
    let mut site = world.start_on("in-a-pod", source, &[])?;
    site.wait_until_healthy()?;
    site.wait_for(&target.service)?;
    for object in target.objects() {
        api.delete(&object)?;
    }
    site.agent.wait_until_gone(target.service.name())
}

fn explains(world: &mut World) -> Result {
    let target = world.fresh("explained").with(&[11]);
    world.east.api.apply_all(&target.objects())?;
    world.site.wait_for(&target.service)?;
    // It has the address of the other, and the younger one loses.
    let mut taken = world.fresh("explained-late").with(&[12]).objects();
    taken[0]["spec"]["ips"] = target.service.import()["spec"]["ips"].take();
    world.east.api.apply_all(&taken)?;
    let explain = |world: &World, what: &str, status: i32, codes: &[&str]| {
        world.site.agent.explain(&world.network.node.netns, &[what], status, codes)
    };
    let said = explain(world, "default/explained", 0, &[])?;
    ensure!(said["source"].to_string().contains("Kubernetes at "), "{said:#}");
    let slice = &said["imports"][0]["slices"][0];
    ensure!(slice["endpoints"][0]["fates"][0]["fate"] == "used", "{said:#}");
    wait::until("the younger import", || {
        explain(world, "default/explained-late", 1, &["frontend-taken"])
    })?;
    let said = explain(world, &target.tcp(Family::V4).to_string(), 0, &["frontend-taken"])?;
    ensure!(said["imports"][0]["name"] == "explained", "{said:#}");
    ensure!(said["imports"][1]["name"] == "explained-late", "{said:#}");
    world.east.kill()?;
    let said = explain(world, "default/explained", 0, &["source-unread"]);
    world.east.start_again()?;
    let said = said?;
    ensure!(said["source"].is_null(), "{said:#}");
    ensure!(said["frontends"][0]["state"] == "ready", "{said:#}");
    world.site.wait_until_healthy()
}
