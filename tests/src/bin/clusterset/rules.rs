//! Exports that nobody names: ExportRules, and namespaces that an importing cluster lacks.

use anyhow::{Context as _, ensure};
use mcs_tests::{api_server::rights, suite::Suite, wait};
use serde_json::json;

use crate::{
    cluster::conditions,
    controller::NAMESPACE,
    objects::{export, namespaced, service},
    world::{World, slice_of},
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a rule exports Services by their labels, or all of a namespace", rule_exports);
    suite.case("an export with a name that no Service can have says so", misnamed);
    suite.case("a namespace is created for a service of a peer", creates_namespaces);
}

fn rule_exports(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let exporter = world.first();
    let tenant = exporter.tenant(&namespace)?;
    let mut service = service(&namespace);
    service["metadata"]["labels"] = json!({ "tier": "public" });
    exporter.api().apply_all([&service, &slice_of(&namespace, 0, 1)])?;
    let mut public =
        namespaced("clusterset.mcs-agent.io/v1alpha1", "ExportRule", &namespace, "by-label");
    let more = json!([
        { "key": "tier", "operator": "NotIn", "values": ["internal"] },
        { "key": "hidden", "operator": "DoesNotExist" },
    ]);
    let selector = json!({ "matchLabels": { "tier": "public" }, "matchExpressions": more });
    public["spec"] = json!({ "serviceSelector": selector });
    wait::until("the rights of a developer", || tenant.apply(&public))?;
    let mut wrong = public.clone();
    wrong["metadata"]["name"] = json!("wrong");
    for (operator, values) in [("In", json!([])), ("NotIn", json!(null)), ("Exists", json!(["x"]))]
    {
        let mut expression = json!({ "key": "tier", "operator": operator });
        if !values.is_null() {
            expression["values"] = values;
        }
        wrong["spec"] = json!({ "serviceSelector": { "matchExpressions": [expression] } });
        let answer = tenant.apply(&wrong).err().context("it is taken")?;
        ensure!(format!("{answer:#}").contains("In and NotIn need values"), "{answer:#}");
    }
    world.second().wait_for_addresses(&namespace, &["10.77.9.17"])?;
    exporter.wait_for_conditions(&namespace, &["Valid=True/Valid", "Ready=True/Exported"])?;
    service["metadata"]["labels"] = json!({ "tier": "private" });
    exporter.api().apply(&service)?;
    world.second().wait_for_nothing(&namespace)?;
    let mut whole = public.clone();
    whole["metadata"]["name"] = json!("everything");
    whole["spec"] = json!({ "exportedAnnotations": { "example.com/team": "shop" } });
    tenant.apply(&whole)?;
    world.second().wait_for_addresses(&namespace, &["10.77.9.17"])?;
    world.second().wait_for_import(&namespace, |import| {
        ensure!(import["metadata"]["annotations"]["example.com/team"] == "shop", "no annotation");
        Ok(())
    })?;
    exporter.api().delete(&service)?;
    wait::until("an end of the export", || {
        ensure!(exporter.api().read(&export(&namespace)).is_err(), "it is there");
        Ok(())
    })?;
    tenant.delete(&public)?;
    tenant.delete(&whole)?;
    world.second().wait_for_nothing(&namespace)?;
    // An export that somebody has written is not the rule's.
    exporter.export(&service, None)?;
    exporter.wait_for_conditions(&namespace, &["Ready=True/Exported"])?;
    exporter.unexport(&namespace)
}

fn misnamed(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let api = world.first().api();
    let mut misnamed = export(&namespace);
    misnamed["metadata"]["name"] = json!("hello.world");
    api.apply(&misnamed)?;
    wait::until("conditions of the export", || {
        let found = conditions(&api.read(&misnamed)?);
        ensure!(found == ["Valid=False/NoService", "Ready=False/Pending"], "{found:?}");
        Ok(())
    })?;
    api.delete(&misnamed)
}

fn creates_namespaces(world: &mut World) -> anyhow::Result<()> {
    let namespace = "made-by-the-controller";
    // The chart grants it with `createNamespaces`.
    let rules = json!([{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["create"] }]);
    let account = (NAMESPACE, "mcs-controller");
    world.second().api().apply_all(&rights::everywhere("creates-namespaces", &rules, account))?;
    world.clusters[1].controller.restart_with(&["--create-namespaces"])?;
    world.first().add_namespace(namespace)?;
    world.first().export(&service(namespace), Some(&slice_of(namespace, 0, 1)))?;
    world.second().wait_for_addresses(namespace, &["10.77.9.17"])?;
    world.clusters[1].controller.restart_with(&[])?;
    world.first().unexport(namespace)
}
