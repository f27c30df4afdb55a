//! `mcs status --service`: the state of one service in each cluster, and why.

use std::process::ExitCode;

use mcs_kube::{
    one_line,
    program::{self, OutputArgs},
    told,
};
use serde::Serialize;
use serde_json::Value;

use super::{condition, text};
use crate::{
    cluster::{Cluster, EXPORTS, IMPORTS, NAMESPACES},
    exit::UNASKED,
    kubeconfig::KubeconfigArg,
};
use mcs_controller::clusterset::{
    Condition,
    ConditionType::{self, Conflict, EndpointsReady, ImportConflict, Imported, Ready, Valid},
    ServiceName,
};

/// The state of a service in a cluster.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ServiceStatus {
    /// The id of the cluster; its kubeconfig if it does not answer.
    pub(crate) cluster: String,
    /// `none`, or the reason of the export's most important condition.
    pub(crate) export: String,
    /// The same for the import.
    pub(crate) import: String,
    pub(crate) addresses: Vec<String>,
    /// The clusters that contribute to the import.
    pub(crate) clusters: Vec<String>,
    /// The problems.
    pub(crate) problems: Vec<String>,
    /// The import is missing, or a controller says that it is not ready. Other controllers need not write condition
    /// `Ready`.
    #[serde(skip)]
    pub(crate) is_refused: bool,
}

/// Reads `NAMESPACE/NAME`.
pub(crate) fn name(text: &str) -> Result<ServiceName, String> {
    let (namespace, name) = text.split_once('/').ok_or("write it as NAMESPACE/NAME")?;
    ServiceName::new(namespace, name).map_err(|error| error.to_string())
}

pub(super) fn run(
    kubeconfigs: &[KubeconfigArg],
    name: &ServiceName,
    output: &OutputArgs,
) -> anyhow::Result<ExitCode> {
    let read = || program::block_on(read_all(kubeconfigs, name));
    let all = output.show(read, |all, style| {
        let rows = all.iter().map(|one| {
            vec![
                one.cluster.clone(),
                one.export.clone(),
                one.import.clone(),
                one.addresses.join(","),
                one.clusters.join(","),
                one.problems.join("; "),
            ]
        });
        style.table(&["CLUSTER", "EXPORT", "IMPORT", "ADDRESSES", "FROM", "PROBLEMS"], rows)
    })?;
    let missing: Vec<_> = all.iter().filter(|one| one.import != "Ready").collect();
    Ok(match missing.is_empty() {
        true => ExitCode::SUCCESS,
        false if missing.iter().all(|one| one.import.is_empty()) => UNASKED.into(),
        false => ExitCode::FAILURE,
    })
}

async fn read_all(
    kubeconfigs: &[KubeconfigArg],
    name: &ServiceName,
) -> anyhow::Result<Vec<ServiceStatus>> {
    let mut all = Vec::new();
    for (kubeconfig, cluster) in Cluster::open_each(kubeconfigs).await? {
        let (cluster, found) = match cluster {
            Ok(cluster) => (cluster.id.to_string(), read(&cluster, name).await),
            Err(error) => (kubeconfig, Err(error)),
        };
        let found = found.unwrap_or_else(|error| ServiceStatus {
            problems: vec![told(&error)],
            ..ServiceStatus::default()
        });
        all.push(ServiceStatus { cluster, ..found });
    }
    Ok(all)
}

/// The state of the service in this cluster.
pub(crate) async fn read(cluster: &Cluster, name: &ServiceName) -> anyhow::Result<ServiceStatus> {
    let namespace = name.namespace();
    // A caller without the right to read namespaces gets the other results.
    let found = cluster.get(NAMESPACES, None, namespace).await;
    let has_namespace = found.map_or(true, |found| found.is_some());
    let export = cluster.get(EXPORTS, Some(namespace), name.name()).await?;
    let import = cluster.get(IMPORTS, Some(namespace), name.name()).await?;
    let judged = judged(namespace, has_namespace, export.as_ref(), import.as_ref());
    Ok(ServiceStatus { cluster: cluster.id.to_string(), ..judged })
}

/// The state of the service in a cluster with these objects.
pub(crate) fn judged(
    namespace: &str,
    has_namespace: bool,
    export: Option<&Value>,
    import: Option<&Value>,
) -> ServiceStatus {
    let mut problems = Vec::new();
    let mut told = |object: Option<&Value>, kinds: &[(ConditionType, &str)]| {
        let Some(object) = object else { return "none".to_owned() };
        let find =
            |(kind, good): &(ConditionType, _)| Some((condition(object, kind.name())?, *good));
        let found = kinds.iter().filter_map(find);
        let is_partial = |one: &Value| one["reason"] == Condition::PORT_PARTLY_READY;
        let is_failing = |(one, good): &(&Value, &str)| one["status"] != *good || is_partial(one);
        let failing: Vec<_> = found.filter(is_failing).collect();
        problems.extend(failing.iter().map(|(one, _)| one_line(&text(&one["message"]))));
        let first = failing.first().map(|(one, _)| *one);
        let shown = first.or_else(|| condition(object, "Ready"));
        shown.map_or_else(|| "Pending".to_owned(), |one| one_line(&text(&one["reason"])))
    };
    let wanted = [(Valid, "True"), (Ready, "True"), (Imported, "True"), (Conflict, "False")];
    let export = told(export, &wanted);
    let found = import;
    let mut import = told(found, &[(Ready, "True")]);
    told(found, &[(EndpointsReady, "True"), (ImportConflict, "False")]);
    if found.is_none() && !has_namespace {
        "no namespace".clone_into(&mut import);
        problems.push(format!(
            "this cluster lacks namespace {namespace}: create it, or let the controller do so (--create-namespaces)"
        ));
    } else if found.is_none() {
        problems.push(
            "there is no import: no cluster exports it to this one (see its ServiceExports, their audience, and `namespaces` \
             of the ClusterPeers here), or the API server of this cluster refuses it (see condition ImportsWritten of the \
             ClusterPeers here, and the Events of the namespace)"
                .to_owned(),
        );
    }
    problems.dedup();
    let is_refused = found.is_none_or(|import| {
        condition(import, "Ready").is_some_and(|ready| ready["status"] != "True")
    });
    let texts = |list: &Value, one: fn(&Value) -> &Value| {
        list.as_array().into_iter().flatten().map(|item| one_line(&text(one(item)))).collect()
    };
    let found = found.unwrap_or(&Value::Null);
    ServiceStatus {
        cluster: String::new(),
        export,
        import,
        addresses: texts(&found["spec"]["ips"], |ip| ip),
        clusters: texts(&found["status"]["clusters"], |one| &one["cluster"]),
        problems,
        is_refused,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_that_is_not_imported_says_why() {
        let one = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": format!("{reason}!")});
        let object = |conditions: Vec<Value>| json!({"status": {"conditions": conditions, "clusters": [{"cluster": "west"}]}, "spec": {"ips": ["241.0.0.1"]}});
        let lacking = judged("shop", false, None, None);
        assert_eq!((&*lacking.export, &*lacking.import), ("none", "no namespace"));
        assert!(lacking.problems[0].contains("--create-namespaces"), "{lacking:?}");
        assert!(judged("shop", true, None, None).problems[0].contains("no cluster exports it"));
        let export = object(vec![
            one("Valid", "True", "Valid"),
            one("Ready", "Unknown", "NotRenewed"),
            one(Imported.name(), "False", "NamespaceMissing"),
        ]);
        let import = object(vec![
            one("Ready", "True", "Ready"),
            one(ImportConflict.name(), "True", "PortConflict"),
            one(EndpointsReady.name(), "False", "NoneReady"),
        ]);
        let found = judged("shop", true, Some(&export), Some(&import));
        assert_eq!((&*found.export, &*found.import), ("NotRenewed", "Ready"), "it serves");
        let problems = ["NotRenewed!", "NamespaceMissing!", "NoneReady!", "PortConflict!"];
        assert_eq!(found.problems, problems);
        assert_eq!((&*found.addresses[0], &*found.clusters[0]), ("241.0.0.1", "west"));
        let partly = one(EndpointsReady.name(), "True", Condition::PORT_PARTLY_READY);
        let import = object(vec![one("Ready", "True", "Ready"), partly]);
        let found = judged("shop", true, None, Some(&import));
        assert_eq!((&*found.import, &*found.problems[0]), ("Ready", "PortPartlyReady!"));
    }

    #[test]
    fn a_controller_of_others_need_not_say_that_an_import_is_ready() {
        let with = |ready: Option<&str>| {
            let ready: Vec<_> =
                ready.iter().map(|status| json!({"type": "Ready", "status": status})).collect();
            let other =
                json!({"type": ImportConflict.name(), "status": "True", "message": "b\u{202e}\na"});
            let conditions = [vec![other], ready].concat();
            json!({"spec": {"ips": ["1\u{1b}[2J"]}, "status": {"conditions": conditions}})
        };
        let refused =
            |import: Option<Value>| judged("shop", true, None, import.as_ref()).is_refused;
        assert!(refused(None) && refused(Some(with(Some("False")))));
        assert!(refused(Some(with(Some("Unknown")))));
        assert!(!refused(Some(with(Some("True")))) && !refused(Some(with(None))));
        let found = judged("shop", true, None, Some(&with(None)));
        assert_eq!(found.addresses, [r"1\u{1b}[2J"]);
        assert_eq!(found.problems, [r"b\u{202e} a"]);
    }

    #[test]
    fn a_service_has_a_namespace() {
        assert!(name("shop/web").is_ok() && name("web").is_err() && name("Shop/web").is_err());
    }
}
