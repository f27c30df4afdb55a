//! CRDs of the Multi-Cluster Services API that come late, have another version, or validate nothing.

use crate::prelude::*;

const IMPORTS: &str = "serviceimports.multicluster.x-k8s.io";

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("objects that the definition lets in", lets_in);
    suite.case("the definition comes late, as v1alpha1, and then as v1beta1", comes_late);
    suite.case("objects that are anything", anything);
    suite.case("imports of another group", another_group);
}

fn lets_in(world: &mut World) -> Result {
    let port = |port: i64, protocol: &str| json!({ "port": port, "protocol": protocol });
    let spec = |ips: &[&str], ports: &[Value]| json!({ "type": "ClusterSetIP", "ips": ips, "ports": ports });
    let tcp = [port(80, "TCP")];
    let mut cases = vec![
        ("bad-ip", spec(&["10.78.1"], &tcp), vec!["vip_invalid"]),
        ("bad-loopback", spec(&["127.0.0.1"], &tcp), vec!["vip_forbidden"]),
        ("bad-twice", spec(&["10.78.1.1", "10.78.1.1"], &tcp), vec!["vip_duplicate"]),
        ("bad-port", spec(&["10.78.1.2"], &[port(0, "TCP")]), vec!["port_invalid"]),
        ("bad-big", spec(&["10.78.1.3"], &[port(70_000, "UDP")]), vec!["port_invalid"]),
        ("bad-negative", spec(&["10.78.1.4"], &[port(-1, "TCP")]), vec!["port_invalid"]),
        ("bad-protocol", spec(&["10.78.1.5"], &[port(80, "QUIC")]), vec!["protocol_unsupported"]),
    ];
    let mut affinity = spec(&["10.78.1.6"], &tcp);
    affinity["sessionAffinity"] = "Sometimes".into();
    cases.push(("bad-affinity", affinity, vec!["affinity_invalid"]));
    let mut policy = spec(&["10.78.1.7"], &tcp);
    policy["internalTrafficPolicy"] = "Nearby".into();
    cases.push(("bad-policy", policy, vec!["traffic_policy_invalid"]));

    let good = world.fresh("good").with(&[11]);
    for (name, spec, _) in &cases {
        world.east.api.apply(&import("v1beta1", name, spec))?;
    }
    world.east.api.apply_all(&good.objects())?;
    world.site.wait_for(&good.service)?;
    for (name, spec, reasons) in &cases {
        world.site.wait_for_report(&format!("{name} rejected: {reasons:?}"), |report| {
            rejections(report, name) == *reasons
        })?;
        world.east.api.delete(&import("v1beta1", name, spec))?;
    }
    world.site.wait_for_report("nothing of that rejected any more", |report| {
        cases.iter().all(|(name, ..)| rejections(report, name).is_empty())
    })
}

fn import(version: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("multicluster.x-k8s.io/{version}"),
        "kind": "ServiceImport",
        "metadata": { "namespace": "default", "name": name },
        "spec": spec,
    })
}

/// The definition of ServiceImports, with these of its versions served, and the last one stored.
fn definition(world: &World, served: &[&str]) -> Result<Value> {
    let all = documents(&world.control.mcs_definitions()?)?;
    let imports = all.into_iter().find(|one| one["metadata"]["name"] == IMPORTS);
    let mut imports = imports.unwrap_or_default();
    for version in imports["spec"]["versions"].as_array_mut().into_iter().flatten() {
        let name = version["name"].as_str().unwrap_or_default().to_owned();
        version["served"] = served.contains(&name.as_str()).into();
    }
    Ok(imports)
}

fn synced_version(report: &Value) -> Option<String> {
    let kinds = report["source"]["kinds"].as_array()?;
    let imports =
        kinds.iter().find(|kind| kind["resource"] == IMPORTS && kind["synced"] == true)?;
    Some(imports["version"].as_str()?.to_owned())
}

fn comes_late(world: &mut World) -> Result {
    let target = world.fresh("late").with(&[11, 12]);
    // Some maps hold it, from another life.
    world.east.api.apply_all(&target.objects())?;
    let mut site = world.start("late", &[])?;
    site.wait_until_healthy()?;
    site.wait_for(&target.service)?;
    site.agent.stop()?;
    for object in target.objects() {
        world.east.api.delete(&object)?;
    }

    world.west.api.apply_all(&target.service.slices())?;
    let kubeconfig = world.west.agents_kubeconfig();
    let _in_cgroup = site.cgroup.visit()?;
    traffic::during(&world.network.pod, &target.load(&[11, 12, 13]), || {
        site.agent.start_again_on(Source::Kubeconfig(kubeconfig))?;
        site.wait_for_problem(
            IMPORTS,
            "install its CRD; the agent changes nothing until it can read it",
        )?;
        ensure!(!site.agent.is_healthy()?, "it is healthy without ServiceImports");
        let changed = target.clone().with(&[13]);
        world.west.api.apply_all(&changed.service.slices())?;
        let import = v1alpha1(changed.service.import());
        // A list in between would be empty, and right.
        site.freeze()?;
        let added = world.west.api.apply(&definition(world, &["v1alpha1"])?).and_then(|()| {
            world.west.api.wait_for_kind(&import)?;
            world.west.api.apply(&import)
        });
        site.thaw()?;
        added?;
        site.wait_for(&changed.service)?;
        site.wait_until_healthy()?;
        let version = synced_version(&site.report()?);
        ensure!(version.as_deref() == Some("v1alpha1"), "{version:?} was read");

        world.west.api.apply(&definition(world, &["v1beta1"])?)?;
        site.wait_for_report("v1beta1 to be read", |report| {
            synced_version(report).as_deref() == Some("v1beta1")
        })?;
        site.wait_until_content()?;
        site.wait_for(&changed.service)
    })?;
    for object in target.objects() {
        world.west.api.delete(&object)?;
    }
    site.agent.wait_until_gone(target.service.name())
}

fn v1alpha1(mut import: Value) -> Value {
    import["apiVersion"] = "multicluster.x-k8s.io/v1alpha1".into();
    import
}

/// A definition that checks nothing, as nobody ships: whatever is in there, the rest is served.
fn anything(world: &mut World) -> Result {
    let mut loose = definition(world, &["v1beta1", "v1alpha1"])?;
    for version in loose["spec"]["versions"].as_array_mut().into_iter().flatten() {
        let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        version["schema"] = json!({ "openAPIV3Schema": open });
    }
    world.west.api.apply(&loose)?;
    let west = Source::Kubeconfig(world.west.agents_kubeconfig());
    let site = world.start_on("anything", west, &[])?;
    let good = world.fresh("fine").with(&[11]);
    let name = |number: usize| format!("anything-{number}");
    let specs = [
        json!({}),
        json!({ "type": "Sideways", "ports": [] }),
        json!({ "type": "ClusterSetIP", "ports": "80" }),
        json!({ "type": "ClusterSetIP", "ports": [{ "port": "http" }] }),
        json!({ "type": "ClusterSetIP", "ports": [], "ips": { "v4": "10.78.2.1" } }),
        json!({ "type": "ClusterSetIP", "ports": [{ "port": 1_u64 << 40 }] }),
    ];
    // The definition takes its time to be that loose everywhere.
    wait::until("anything to be let in", || {
        world.west.api.apply(&import("v1beta1", &name(0), &specs[0]))
    })?;
    for (number, spec) in specs.iter().enumerate() {
        world.west.api.apply(&import("v1beta1", &name(number), spec))?;
    }
    world.west.api.apply_all(&good.objects())?;
    site.wait_for(&good.service)?;
    let all_rejected = |report: &Value| {
        (0..specs.len()).all(|number| rejections(report, &name(number)) == ["malformed"])
    };
    site.wait_for_report("every malformed object rejected", all_rejected)?;
    // One may become good, and a good one bad.
    let mut other = good.service.import();
    world.west.api.apply(&import(
        "v1beta1",
        &name(0),
        &json!({ "type": "Headless", "ports": [] }),
    ))?;
    other["spec"] = json!({ "type": "ClusterSetIP" });
    world.west.api.delete(&good.service.import())?;
    world.west.api.apply(&other)?;
    site.wait_for_report("another one malformed", |report| {
        rejections(report, &name(0)).is_empty() && rejections(report, "fine") == ["malformed"]
    })?;
    site.agent.wait_until_gone("fine")
}

fn another_group(world: &mut World) -> Result {
    const GROUP: &str = "multicluster.example.org";
    let api = &world.west.api;
    let text = definition(world, &["v1beta1"])?.to_string();
    let definition: Value = serde_json::from_str(&text.replace("multicluster.x-k8s.io", GROUP))?;
    api.apply(&definition)?;
    let [mut role, mut binding] = role_and_binding()?;
    for name in [&mut role["metadata"]["name"], &mut binding["metadata"]["name"]] {
        *name = "another-group".into();
    }
    binding["roleRef"]["name"] = "another-group".into();
    for rule in role["rules"].as_array_mut().into_iter().flatten() {
        rule["apiGroups"] = json!([GROUP]);
    }

    let target = world.fresh("grouped").with(&[11]);
    let mut import = target.service.import();
    import["apiVersion"] = format!("{GROUP}/v1beta1").into();
    api.wait_for_kind(&import)?;
    api.apply_all(&target.service.slices())?;
    api.apply(&import)?;
    let west = Source::Kubeconfig(world.west.agents_kubeconfig());
    let mut site = world.start_on("grouped", west, &["--import-group", GROUP])?;
    site.wait_for_problem(&format!("serviceimports.{GROUP}"), "is forbidden")?;
    api.apply_all(&[role, binding])?;
    site.wait_until_healthy()?;
    site.wait_for(&target.service)
}
