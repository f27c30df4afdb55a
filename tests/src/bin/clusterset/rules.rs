//! What the API server takes of an ExportRule, and of whom.

use anyhow::{Context as _, ensure};
use mcs_tests::{suite::Suite, wait};
use serde_json::json;

use crate::{objects::namespaced, world::World};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a developer writes ExportRules, and none that selects nothing", rule_is_written);
}

fn rule_is_written(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let tenant = world.first().tenant(&namespace)?;
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
    tenant.delete(&public)
}
