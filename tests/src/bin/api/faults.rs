//! Seeded faults of clusters and of rights. `explain` names each fault by a code and in words.

use mcs_tests::agent::fates;

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("explain names clusters that are drained or silent", clusters);
    suite.case("explain names a right that the agent lacks", rights);
}

/// The value of the property, the codes, and words of a finding if there is one.
const CLUSTERS: [(&str, &[&str], &str); 3] = [
    (r#"{"west":{"drain":true}}"#, &[], ""),
    (
        r#"{"east":{"drain":true},"west":{"drain":true}}"#,
        &["all-drained"],
        "clusters that are out of use serve it",
    ),
    (r#"{"west":{"unreachable":"eject"}}"#, &["peer-silent"], "west gives no sign of life"),
];

fn clusters(world: &mut World) -> Result {
    let target = world.fresh("away");
    let service = target.service.endpoints("east", pod_addresses(11));
    let service = service.endpoints("west", pod_addresses(12));
    let (api, site) = (&world.east.api, &world.site);
    let objects: Vec<_> = [service.import()].into_iter().chain(service.slices()).collect();
    api.apply_all(&objects)?;
    site.wait_for(&service)?;
    let traffic = |value: &str| cluster_property("traffic.clusterset.mcs-agent.io", value);
    for (value, codes, says) in CLUSTERS {
        api.apply(&traffic(value))?;
        let said = wait::until(value, || {
            let said =
                site.agent.explain(&world.network.node.netns, &["default/away"], 0, codes)?;
            let is_drained = fates(&said).contains(&format!("{} drained", pod_address(12)));
            ensure!(is_drained == codes.is_empty(), "{said:#}");
            Ok(said)
        })?;
        expect(&said, says)?;
    }
    api.delete(&traffic(""))?;
    objects.iter().try_for_each(|object| api.delete(object))
}

fn rights(world: &mut World) -> Result {
    let [role, _] = role_and_binding()?;
    let mut less = role.clone();
    for rule in less["rules"].as_array_mut().into_iter().flatten() {
        if rule["resources"][0] == "serviceimports" {
            rule["verbs"] = serde_json::json!(["get"]);
        }
    }
    let api = &world.east.api;
    api.apply(&less)?;
    let source = Source::Kubeconfig(world.east.agents_kubeconfig());
    let site = world.start_on("forbidden", source, &[])?;
    let asked = || {
        site.wait_for_problem("serviceimports.multicluster.x-k8s.io", "is forbidden")?;
        let codes = ["agent-behind", "source-unread"];
        site.agent.explain(&world.network.node.netns, &["default/away"], 1, &codes)
    };
    let said = asked();
    api.apply(&role)?;
    expect(&said?, "is forbidden")
}

fn expect(said: &Value, words: &str) -> Result {
    let findings = said["findings"].as_array().into_iter().flatten();
    let mut told = findings.filter_map(|one| one["message"].as_str());
    ensure!(words.is_empty() || told.any(|text| text.contains(words)), "{said:#}");
    Ok(())
}
