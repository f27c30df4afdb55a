//! The agent's RBAC rights: each is needed, and missing ones are reported.

use mcs_tests::api_server::rights::account;

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("every right that is shipped is needed", every_right_is_needed);
    suite.case("rights are removed and restored under load", removed_and_restored);
    suite.case("a token is renewed under load", token_is_renewed);
}

fn every_right_is_needed(world: &mut World) -> Result {
    let [role, _] = role_and_binding()?;
    world.control.install_types(&world.west)?;
    let rules = role["rules"].as_array().context("a role without rules")?.clone();
    for (index, rule) in rules.iter().enumerate() {
        let resource = rule["resources"][0].as_str().context("a rule without resource")?;
        let group = rule["apiGroups"][0].as_str().unwrap_or_default();
        let mut place = [resource, group].join(".").trim_end_matches('.').to_owned();
        match rule["resourceNames"][0].as_str() {
            Some("traffic.clusterset.mcs-agent.io") => place += " (traffic)",
            Some("vip-ranges.clusterset.mcs-agent.io") => place += " (VIP ranges)",
            _ => {}
        }
        for (position, verb) in rule["verbs"].as_array().into_iter().flatten().enumerate() {
            let mut less = role.clone();
            let verbs = &mut less["rules"][index]["verbs"];
            verbs.as_array_mut().context("a rule without verbs")?.remove(position);
            // A list that is streamed is a watch.
            let server = if verb == "list" { &world.west } else { &world.east };
            server.api.apply(&less)?;
            let source = Source::Kubeconfig(server.agents_kubeconfig());
            let role_name = format!("less-{index}-{position}-{resource}");
            let site = world.start_on(&role_name, source, &["--node-name", "n1"])?;
            site.wait_for_problem(&place, "is forbidden")?;
            // Without these the agent goes on, and says what it does not do.
            let goes_on = [
                "servicecidrs.networking.k8s.io",
                "clusterproperties.about.k8s.io (traffic)",
                "clusterproperties.about.k8s.io (VIP ranges)",
            ];
            if goes_on.contains(&&*place) {
                site.wait_for_report("an agent that is synced", |report| report["synced"] == true)?;
            } else {
                ensure!(site.report()?["synced"] == false, "synced without {verb} of {place}");
            }
            server.api.apply(&role)?;
        }
    }
    Ok(())
}

fn removed_and_restored(world: &mut World) -> Result {
    let [_, binding] = role_and_binding()?;
    let target = world.fresh("rights").with(&[11, 12]);
    world.east.api.apply_all(&target.objects())?;
    world.site.wait_for(&target.service)?;
    let _in_cgroup = world.site.cgroup.visit()?;
    let World { east, base: mcs_tests::world::World { network, site, .. }, .. } = world;
    traffic::during(&network.pod, &target.load(&[11, 12, 13]), || {
        east.api.delete(&binding)?;
        // Watches that are open stay so.
        east.kill()?;
        east.start_again()?;
        site.wait_for_problem("endpointslices.discovery.k8s.io", "is forbidden")?;
        east.api.apply_all(&target.clone().with(&[13]).objects())?;
        ensure!(site.report()?["synced"] == true, "it is not synced any more");
        site.wait_for(&target.service)?;
        east.api.apply(&binding)?;
        site.wait_until_content()?;
        site.wait_for(&target.clone().with(&[13]).service)
    })?;
    Ok(())
}

fn token_is_renewed(world: &mut World) -> Result {
    let account = account()?;
    let token_file = world.east.agents_token();
    let target = world.fresh("token").with(&[11, 12]);
    world.east.api.apply_all(&target.objects())?;
    world.site.wait_for(&target.service)?;
    let _in_cgroup = world.site.cgroup.visit()?;
    let World { east, base: mcs_tests::world::World { network, site, .. }, .. } = world;
    traffic::during(&network.pod, &target.load(&[11, 12, 13]), || {
        // A token is of an account that exists.
        east.api.delete(&account)?;
        east.api.apply(&account)?;
        east.kill()?;
        east.start_again()?;
        site.wait_for_problem("endpointslices.discovery.k8s.io", "Unauthorized")?;
        east.write_token(&account, &token_file)?;
        site.wait_until_content()?;
        let changed = target.clone().with(&[13]);
        east.api.apply_all(&changed.objects())?;
        site.wait_for(&changed.service)
    })?;
    Ok(())
}
