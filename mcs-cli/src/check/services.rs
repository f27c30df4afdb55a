//! Whether services are exported and imported as their owners intend.

use std::collections::BTreeMap;

use anyhow::bail;
use serde_json::Value;

use mcs_controller::clusterset::{Condition, ConditionType};
use mcs_kube::told;

use super::{Warning, listed, room};
use crate::{
    cluster::{Cluster, EXPORTS, IMPORTS},
    status::{self, Problem},
};

/// The checks and their results.
pub(super) async fn checks(cluster: &Cluster) -> Vec<(&'static str, anyhow::Result<String>)> {
    let exports = cluster.list(EXPORTS).await;
    let imports = cluster.list(IMPORTS).await;
    let known = exports.as_deref().unwrap_or_default();
    let imports = imports.and_then(|imports| of_imports(&imports, known));
    let imports = with_room(imports, room::lacking(cluster).await);
    vec![("exports", exports.and_then(|exports| of_exports(&exports))), ("imports", imports)]
}

fn of_exports(exports: &[Value]) -> anyhow::Result<String> {
    let problem = |export: &Value| {
        status::problem(export).or_else(|| conflict(export, ConditionType::Conflict))
    };
    summary("ServiceExports", exports, problem, |_| None)
}

/// Imports without problems of their own fail all the same if agents lack the room for them.
fn with_room(found: anyhow::Result<String>, lacking: Option<String>) -> anyhow::Result<String> {
    match (found, lacking) {
        (found, None) => found,
        (Ok(_), Some(lacking)) => bail!(lacking),
        (Err(error), Some(lacking)) => bail!("{lacking}. {}", told(&error)),
    }
}

/// An export of this cluster reports the same conflict.
fn of_imports(imports: &[Value], exports: &[Value]) -> anyhow::Result<String> {
    let name = |object: &Value| {
        let metadata = &object["metadata"];
        (metadata["namespace"].clone(), metadata["name"].clone())
    };
    let exported: Vec<_> = exports.iter().map(name).collect();
    let problem = |import: &Value| {
        let conflict = || conflict(import, ConditionType::ImportConflict);
        let of_others = || conflict().filter(|_| !exported.contains(&name(import)));
        let is_false = |kind: ConditionType| Problem::if_condition(import, kind, "False");
        is_false(ConditionType::Ready)
            .or_else(|| is_false(ConditionType::EndpointsReady))
            .or_else(of_others)
    };
    summary("ServiceImports", imports, problem, |import| {
        let counted = Problem::if_condition(import, ConditionType::EndpointsReady, "True")?;
        (counted.reason == Condition::PORT_PARTLY_READY).then_some(counted)
    })
}

fn conflict(object: &Value, kind: ConditionType) -> Option<Problem> {
    Problem::if_condition(object, kind, "True")
}

/// Fails if an object has a problem, or else warns of what may be on purpose.
fn summary(
    kind: &str,
    objects: &[Value],
    problem: impl Fn(&Value) -> Option<Problem>,
    doubt: impl Fn(&Value) -> Option<Problem>,
) -> anyhow::Result<String> {
    let told = |mut problems: Vec<Problem>| {
        // What few objects have comes first: the message names some alone.
        let mut shares = BTreeMap::<_, usize>::new();
        for one in &problems {
            *shares.entry(one.reason.clone()).or_default() += 1;
        }
        problems.sort_by_key(|one| shares.get(&one.reason).copied());
        let named: Vec<_> = problems.iter().map(ToString::to_string).collect();
        let [count, of] = [named.len(), objects.len()];
        (count > 0).then(|| format!("{count} of {of} {kind}: {}", listed(&named)))
    };
    if let Some(failures) = told(objects.iter().filter_map(problem).collect()) {
        bail!(failures);
    }
    if let Some(doubts) = told(objects.iter().filter_map(doubt).collect()) {
        return Err(Warning(doubts).into());
    }
    Ok(format!("{} {kind}, each as it should be", objects.len()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, conditions: &Value) -> Value {
        json!({
            "metadata": {"namespace": "shop", "name": name},
            "status": {"conditions": conditions},
        })
    }

    #[test]
    fn objects_with_problems_are_counted_and_named() {
        let conflict = json!([{
            "type": ConditionType::ImportConflict.name(), "status": "True", "reason": "PortConflict",
            "message": "port web",
        }]);
        let all = [object("cart", &conflict), object("web", &json!([]))];
        let error = of_imports(&all, &[]).unwrap_err().to_string();
        assert_eq!(error, "1 of 2 ServiceImports: shop/cart: PortConflict: port web");
        assert!(of_imports(&all, &all).is_ok(), "the exports say so");
        assert!(of_imports(&all[1..], &[]).is_ok());
    }

    #[test]
    fn an_import_without_a_ready_endpoint_is_a_problem() {
        let none = json!([
            { "type": "Ready", "status": "True" },
            {
                "type": ConditionType::EndpointsReady.name(), "status": "False", "reason": "NoneReady",
                "message": "0 of 2",
            },
        ]);
        let error = of_imports(&[object("cart", &none)], &[]).unwrap_err().to_string();
        assert_eq!(error, "1 of 1 ServiceImports: shop/cart: NoneReady: 0 of 2");
    }

    #[test]
    fn what_few_objects_have_is_named_first() {
        let of = |name: &str, reason: &str| {
            object(
                name,
                &json!([{ "type": "Ready", "status": "False", "reason": reason, "message": "" }]),
            )
        };
        let all = [of("a", "Pending"), of("b", "Pending"), of("c", "Refused")];
        let error = of_imports(&all, &[]).unwrap_err().to_string();
        let place = |name: &str| error.find(name).unwrap();
        assert!(place("shop/c") < place("shop/a") && place("shop/a") < place("shop/b"), "{error}");
    }

    #[test]
    fn a_port_without_a_ready_endpoint_is_a_problem_and_one_that_a_cluster_lacks_a_warning() {
        let import = |name: &str, status: &str, reason: &str| {
            let kind = ConditionType::EndpointsReady.name();
            object(
                name,
                &json!([
                    { "type": "Ready", "status": "True" },
                    { "type": kind, "status": status, "reason": reason, "message": "port http" },
                ]),
            )
        };
        let partly = import("web", "True", Condition::PORT_PARTLY_READY);
        let none = import("cart", "False", Condition::PORT_NOT_READY);
        let warned = of_imports(std::slice::from_ref(&partly), &[]).unwrap_err();
        assert!(warned.is::<Warning>(), "{warned}");
        assert_eq!(
            warned.to_string(),
            "1 of 1 ServiceImports: shop/web: PortPartlyReady: port http"
        );
        let failed = of_imports(&[partly, none], &[]).unwrap_err();
        assert!(!failed.is::<Warning>() && failed.to_string().contains("shop/cart: PortNotReady"));
        assert!(of_imports(&[import("web", "True", "Ready")], &[]).is_ok());
    }

    #[test]
    fn imports_that_agents_have_no_room_for_fail() {
        let lacking = || Some("no room".to_owned());
        assert_eq!(with_room(Ok("fine".to_owned()), None).unwrap(), "fine");
        let found = with_room(Ok("fine".to_owned()), lacking()).unwrap_err();
        assert_eq!(found.to_string(), "no room");
        let warned = with_room(Err(Warning("a port".to_owned()).into()), lacking()).unwrap_err();
        assert!(!warned.is::<Warning>() && warned.to_string() == "no room. a port");
    }
}
