//! Whether services are exported and imported as their owners intend.

use std::collections::BTreeMap;

use anyhow::bail;
use serde_json::Value;

use mcs_controller::clusterset::{Condition, ConditionType, well_known};
use mcs_kube::told;

use super::{Unknown, Warning, listed, reports::Reports, room};
use crate::{
    cluster::{Cluster, EXPORTS, IMPORTS, SLICES},
    services::{
        key_of,
        ready::{ByService, by_cluster},
    },
    status::{self, Problem, condition, text},
};

/// The checks and their results, and the imports; none if they cannot be read.
pub(super) async fn checks(
    cluster: &Cluster,
    reports: &Reports,
) -> (Vec<(&'static str, anyhow::Result<String>)>, Vec<Value>) {
    let exports = cluster.list(EXPORTS).await;
    let (imports, found) = match cluster.list(IMPORTS).await {
        Ok(imports) => {
            // Who may not list slices has what conditions say.
            let slices = cluster.list_in(SLICES, None, well_known::SERVICE_NAME).await.ok();
            let ready = slices.map(|slices| by_cluster(&slices, &imports));
            let known = exports.as_deref().unwrap_or_default();
            let found = of_imports(&imports, known, ready.as_ref());
            let found = if imports.is_empty() { found } else { with_room(found, reports) };
            (imports, found)
        }
        Err(error) => (Vec::new(), Err(error)),
    };
    let exports = exports.and_then(|exports| of_exports(&exports));
    (vec![("exports", exports), ("imports", found)], imports)
}

fn of_exports(exports: &[Value]) -> anyhow::Result<String> {
    let problem = |export: &Value| {
        status::problem(export).or_else(|| conflict(export, ConditionType::Conflict))
    };
    summary("ServiceExports", exports, problem, |export| {
        let older = status::known::older(export);
        older
            .map(|older| Problem::new(export, "Older", older))
            .or_else(|| Problem::if_condition(export, ConditionType::Imported, "False"))
    })
}

/// Imports without problems of their own fail all the same if agents lack the room for them.
fn with_room(found: anyhow::Result<String>, reports: &Reports) -> anyhow::Result<String> {
    match (found, room::lacking(reports)) {
        (Ok(found), None) => match reports.share() {
            Ok(share) => Ok(format!("{found}; {share}, and have room for them")),
            Err(why) => {
                let what =
                    format!("{found}. Whether agents have room for them is not known: {why}");
                Err(Unknown(what).into())
            }
        },
        (found, None) => found,
        (Ok(_), Some(lacking)) => bail!(lacking),
        (Err(error), Some(lacking)) => bail!("{lacking}. {}", told(&error)),
    }
}

/// An export of this cluster reports the same conflict. `ready`: what slices say, if it is known.
fn of_imports(
    imports: &[Value],
    exports: &[Value],
    ready: Option<&ByService>,
) -> anyhow::Result<String> {
    let exported: Vec<_> = exports.iter().map(key_of).collect();
    let is_false =
        |import: &Value, kind: ConditionType| Problem::if_condition(import, kind, "False");
    let behind = |import: &Value| behind(import, ready?);
    let problem = |import: &Value| {
        let conflict = || conflict(import, ConditionType::ImportConflict);
        let of_others = || conflict().filter(|_| !exported.contains(&key_of(import)));
        let uncounted = || is_false(import, ConditionType::EndpointsReady);
        // Of an own import it says what the other conditions do.
        let refused = || is_false(import, ConditionType::Accepted);
        is_false(import, ConditionType::Ready)
            .or_else(|| uncounted().filter(|_| behind(import).is_none()))
            .or_else(|| refused().filter(|_| !status::is_own(import)))
            .or_else(of_others)
    };
    summary("ServiceImports", imports, problem, |import| {
        let counted = || Problem::if_condition(import, ConditionType::EndpointsReady, "True");
        status::unready(import)
            .or_else(|| behind(import))
            .or_else(|| counted().filter(|one| one.reason == Condition::PORT_PARTLY_READY))
            .or_else(|| is_false(import, ConditionType::SelectorsResolved))
            .or_else(|| Problem::if_condition(import, ConditionType::Accepted, "Unknown"))
    })
}

/// Says if the status of an import and its slices contradict each other. Ports do not count for a headless service here.
fn behind(import: &Value, ready: &ByService) -> Option<Problem> {
    let counted = condition(import, ConditionType::EndpointsReady.name())?;
    let says_ready = match (counted["status"].as_str()?, counted["reason"].as_str()?) {
        ("True", _) => true,
        ("False", "NoneReady") => false,
        _ => return None,
    };
    let of_clusters = ready.get(&key_of(import)).into_iter().flat_map(BTreeMap::values);
    let in_slices: usize = of_clusters.map(|one| one.ready).sum();
    let differ = import["spec"]["type"] == "ClusterSetIP" && says_ready != (in_slices > 0);
    differ.then(|| {
        let message = format!(
            "its status and its slices, in which {in_slices} endpoints are ready, differ: one is some seconds older. The status says: {}",
            text(&counted["message"])
        );
        Problem::new(import, "Differs", message)
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
    Ok(match objects.len() {
        0 => format!("there are no {kind}"),
        count => format!("{count} {kind}, each as it should be"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::reports::tests::reports, *};

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
        let error = of_imports(&all, &[], None).unwrap_err().to_string();
        assert_eq!(error, "1 of 2 ServiceImports: shop/cart: PortConflict: port web");
        assert!(of_imports(&all, &all, None).is_ok(), "the exports say so");
        assert!(of_imports(&all[1..], &[], None).is_ok());
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
        let error = of_imports(&[object("cart", &none)], &[], None).unwrap_err().to_string();
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
        let error = of_imports(&all, &[], None).unwrap_err().to_string();
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
        let warned = of_imports(std::slice::from_ref(&partly), &[], None).unwrap_err();
        assert!(warned.is::<Warning>(), "{warned}");
        assert_eq!(
            warned.to_string(),
            "1 of 1 ServiceImports: shop/web: PortPartlyReady: port http"
        );
        let failed = of_imports(&[partly, none], &[], None).unwrap_err();
        assert!(!failed.is::<Warning>() && failed.to_string().contains("shop/cart: PortNotReady"));
        assert!(of_imports(&[import("web", "True", "Ready")], &[], None).is_ok());
    }

    #[test]
    fn a_status_that_slices_contradict_is_a_warning() {
        let import = |status: &str, reason: &str| {
            let kind = ConditionType::EndpointsReady.name();
            let mut import = object(
                "web",
                &json!([{"type": kind, "status": status, "reason": reason, "message": "0 of 2"}]),
            );
            import["spec"] = json!({"type": "ClusterSetIP"});
            import
        };
        let slice = json!({
            "metadata": {"namespace": "shop", "labels": {
                well_known::SERVICE_NAME: "web", well_known::SOURCE_CLUSTER: "east",
            }},
            "endpoints": [{}, {"conditions": {"ready": false}}],
        });
        for (status, reason, slices, result) in [
            ("False", "NoneReady", &[][..], "FAILED"),
            ("False", "NoneReady", std::slice::from_ref(&slice), "warning"),
            ("False", Condition::PORT_NOT_READY, std::slice::from_ref(&slice), "FAILED"),
            ("True", "Ready", &[], "warning"),
            ("True", "Ready", std::slice::from_ref(&slice), "ok"),
        ] {
            let all = [import(status, reason)];
            let found = of_imports(&all, &[], Some(&by_cluster(slices, &all)));
            let told = match found {
                Ok(_) => "ok",
                Err(error) if error.is::<Warning>() => "warning",
                Err(_) => "FAILED",
            };
            assert_eq!(told, result, "{status} {reason} {slices:?}");
        }
        let all = [import("False", "NoneReady")];
        let ready = by_cluster(std::slice::from_ref(&slice), &all);
        let said = of_imports(&all, &[], Some(&ready)).unwrap_err().to_string();
        assert!(
            said.contains("in which 1 endpoints are ready") && said.ends_with("0 of 2"),
            "{said}"
        );
    }

    #[test]
    fn what_nobody_has_judged_and_what_is_in_doubt_is_no_success() {
        let with = |manager: &str, kind: ConditionType, status: &str| {
            let ready = json!({"type": "Ready", "status": "True"});
            let one = json!({"type": kind.name(), "status": status, "reason": "R", "message": "m"});
            let mut import = object("web", &json!([ready, one]));
            import["metadata"]["labels"] = json!({well_known::MANAGED_BY: manager});
            import
        };
        let mut unseen = with(well_known::CONTROLLER, ConditionType::Accepted, "True");
        unseen["status"] = Value::Null;
        let mut theirs = unseen.clone();
        theirs["metadata"]["labels"] = Value::Null;
        let own = |kind, status| with(well_known::CONTROLLER, kind, status);
        for (import, result) in [
            (unseen, "1 of 1 ServiceImports: shop/web: Pending: no controller has looked"),
            (theirs, "1 ServiceImports, each as it should be"),
            (own(ConditionType::SelectorsResolved, "False"), "1 of 1 ServiceImports: shop/web: R"),
            (own(ConditionType::Accepted, "False"), "1 ServiceImports, each as it should be"),
            (
                with("other", ConditionType::Accepted, "Unknown"),
                "1 of 1 ServiceImports: shop/web: R",
            ),
        ] {
            let found = of_imports(&[import], &[], None).or_else(|error| {
                anyhow::ensure!(error.is::<Warning>(), "no warning: {error}");
                Ok(error.to_string())
            });
            let found = found.unwrap_or_else(|error| error.to_string());
            assert!(found.starts_with(result), "{found}");
        }
        let refused = with("other", ConditionType::Accepted, "False");
        assert!(!of_imports(&[refused], &[], None).unwrap_err().is::<Warning>());
        assert_eq!(of_imports(&[], &[], None).unwrap(), "there are no ServiceImports");

        let export = |but: &Value| {
            let one = |kind: &str| json!({"type": kind, "status": "True", "observedGeneration": 1});
            let mut export = object("web", &json!([one("Valid"), one("Ready"), but]));
            export["metadata"]["generation"] = json!(2);
            export
        };
        let older = of_exports(&[export(&Value::Null)]).unwrap_err();
        assert!(older.is::<Warning>() && older.to_string().contains("older than its spec"));
        let lacking =
            json!({"type": ConditionType::Imported.name(), "status": "False", "reason": "R"});
        let mut lacking = export(&lacking);
        lacking["metadata"]["generation"] = json!(1);
        assert!(
            of_exports(&[lacking]).unwrap_err().is::<Warning>(),
            "a cluster does not import it"
        );
    }

    #[test]
    fn imports_that_agents_have_no_room_for_fail() {
        let rejection = json!({
            "object": {"namespace": "shop", "name": "web"}, "reason": "capacity", "message": "it does not fit",
        });
        let of = |rejections: Value| {
            reports([("n1", json!({"degraded": [], "report": {"rejections": rejections}}))])
        };
        let fine = || Ok("fine".to_owned());
        let (has_room, lacking) = (of(json!([])), of(json!([rejection])));
        let found = with_room(fine(), &has_room).unwrap();
        assert_eq!(found, "fine; 1 of 1 agents were asked, and have room for them");
        let found = with_room(fine(), &lacking).unwrap_err().to_string();
        assert!(found.starts_with("agents have no room for all of 1 "), "{found}");
        let warning = || Err(Warning("a port".to_owned()).into());
        assert!(with_room(warning(), &has_room).unwrap_err().is::<Warning>());
        let warned = with_room(warning(), &lacking).unwrap_err();
        assert!(!warned.is::<Warning>() && warned.to_string().ends_with(". a port"), "{warned}");
        let unknown = with_room(fine(), &Reports::default()).unwrap_err();
        assert!(unknown.is::<Unknown>(), "no agent was asked: {unknown}");
        let expected = "fine. Whether agents have room for them is not known: no agent is ready";
        assert_eq!(unknown.to_string(), expected);
    }
}
