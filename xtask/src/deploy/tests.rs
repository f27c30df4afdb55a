//! Tests of the chart `mcs`: what it makes of the values of both programs.

use std::collections::BTreeSet;

use super::*;

const COREFILE: &str = include_str!("../../../deploy/dns/Corefile");
const BLOCK: &str = include_str!("../../../deploy/helm/mcs/dns/clusterset.server");

/// Renders the charts, if helm is there: setup of another purpose does not build it.
struct Charts {
    workspace: Workspace,
    copies: Copies,
}

impl Charts {
    fn find() -> Option<Self> {
        let workspace = Workspace::discover().unwrap();
        helm(&workspace).ok()?;
        let copies = unchanged(&workspace).unwrap();
        Some(Self { workspace, copies })
    }

    /// What a release `mcs` of this chart installs.
    fn render(&self, chart: &str, values: &[&str]) -> Result<String> {
        let mut helm = helm(&self.workspace)?;
        helm.args(["template", "mcs"]).arg(self.copies.path(chart));
        helm.args(["--namespace", "mcs-system", "--kube-version", KUBERNETES]);
        printed(helm.args(values.iter().flat_map(|value| ["--set", value])))
    }
}

/// The objects, without the lines that name their templates.
fn objects(manifests: &str) -> Vec<String> {
    let lines = |object: &str| {
        let lines = object.lines().filter(|line| !line.starts_with("# Source: "));
        lines.collect::<Vec<_>>().join("\n")
    };
    manifests.split("---\n").map(lines).collect()
}

fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

#[test]
fn charts_below_mcs_install_what_they_install_alone() {
    let Some(charts) = Charts::find() else { return };
    let below = objects(&charts.render("mcs", &["dns.rbac=false"]).unwrap());
    let agent = charts.render("mcs-agent", &["fullnameOverride=mcs-agent"]);
    let controller = &["namespaceOverride=mcs-controller", "namespace.create=true"];
    let controller = charts.render("mcs-controller", controller);
    let alone = [objects(&agent.unwrap()), objects(&controller.unwrap())].concat();
    for object in &alone {
        assert!(below.contains(object), "{object}");
    }
    for object in &below {
        assert!(alone.contains(object), "{object}");
    }
}

#[test]
fn global_values_reach_both_programs_unless_they_have_their_own() {
    let Some(charts) = Charts::find() else { return };
    let global = [
        "global.clusterId=east",
        "global.vipCidrs={243.0.0.0/8,fd43::/64}",
        "global.serviceCidrs={10.96.0.0/16}",
        "global.image.repository=registry.example/mcs",
        "global.image.tag=v1",
        "global.imagePullSecrets[0].name=registry",
    ];
    let shared = charts.render("mcs", &global).unwrap();
    for argument in [
        "- --cluster-id=east\n",
        "- --vip-cidr=243.0.0.0/8\n",
        "- --vip-cidr=fd43::/64\n",
        "- --service-cidr=10.96.0.0/16\n",
    ] {
        assert_eq!(count(&shared, argument), 2, "{argument}");
    }
    assert!(!shared.contains("servicecidrs"), "nobody reads them");
    // Two containers of the agent, its hook, and the controller.
    assert_eq!(count(&shared, "image: registry.example/mcs:v1\n"), 4);
    assert_eq!(count(&shared, "- name: registry\n"), 3);
    assert!(!shared.contains("localhost/"));
    assert!(!shared.contains("resourceNames: [cluster.clusterset.k8s.io]"));

    let digest = format!("sha256:{:064}", 0);
    let own = [
        "mcs-agent.vipCidrs={244.0.0.0/8}".to_owned(),
        format!("mcs-agent.image.digest={digest}"),
        "mcs-controller.image.repository=other.example/mcs".to_owned(),
    ];
    let own: Vec<_> = global.into_iter().chain(own.iter().map(String::as_str)).collect();
    let own = charts.render("mcs", &own).unwrap();
    assert_eq!(count(&own, "- --vip-cidr=243.0.0.0/8\n"), 1);
    assert_eq!(count(&own, "- --vip-cidr=244.0.0.0/8\n"), 1);
    assert_eq!(count(&own, &format!("image: registry.example/mcs@{digest}\n")), 3);
    assert_eq!(count(&own, "image: other.example/mcs:v1\n"), 1);
}

#[test]
fn parts_of_mcs_can_be_left_out() {
    let Some(charts) = Charts::find() else { return };
    let no_agent = charts.render("mcs", &["mcs-agent.enabled=false"]).unwrap();
    assert!(!no_agent.contains("kind: DaemonSet") && no_agent.contains("kind: Deployment"));
    let no_controller = charts.render("mcs", &["mcs-controller.enabled=false"]).unwrap();
    assert!(
        no_controller.contains("kind: DaemonSet") && !no_controller.contains("kind: Deployment")
    );
    for value in
        ["global.vipCidr={243.0.0.0/8}", "mcs-agent.vipCidr={243.0.0.0/8}", "agent.enabled=false"]
    {
        assert!(charts.render("mcs", &[value]).is_err(), "{value} is taken");
    }
    assert!(charts.render("mcs-agent", &["enabled=false"]).is_err());
}

#[test]
fn an_id_is_written_if_somebody_asks_for_it() {
    let Some(charts) = Charts::find() else { return };
    let refused = charts.render("mcs", &["clusterProperties.create=true"]).unwrap_err();
    assert!(refused.to_string().contains("set global.clusterId"), "{refused}");
    let id = ["clusterProperties.create=true", "global.clusterId=east"];
    let with_id = charts.render("mcs", &id).unwrap();
    assert_eq!(count(&with_id, "kind: ClusterProperty\n"), 1);
    let set = [&id[..], &["clusterProperties.clusterset=shop"]].concat();
    let with_both = charts.render("mcs", &set).unwrap();
    assert!(with_both.contains("value: \"east\"") && with_both.contains("value: \"shop\""));
}

#[test]
fn core_dns_gets_the_same_block_by_either_config_map() {
    assert!(COREFILE.contains(BLOCK));
}

/// The fields of a manifest, each with the fields and named items that it is in.
fn fields(manifest: &str) -> BTreeSet<String> {
    let mut path: Vec<(usize, &str)> = Vec::new();
    let mut fields = BTreeSet::new();
    for line in manifest.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        let is_item = text.starts_with("- ");
        if text.starts_with('#') || (is_item && !text.starts_with("- name: ")) {
            continue;
        }
        path.retain(|(above, _)| *above < indent);
        let name = if is_item { text } else { text.split(':').next().unwrap_or(text) };
        path.push((indent, name));
        fields.insert(path.iter().map(|(_, name)| *name).collect::<Vec<_>>().join("/"));
    }
    fields
}

/// `helm rollback` of an uninstall, and `kubectl apply` after it, remove no field that no manifest of the release has had.
#[test]
fn cleanup_has_no_field_that_an_agent_lacks() {
    let Some(charts) = Charts::find() else { return };
    let values = ["uninstall.cleanup=false", "rbac.create=false", "serviceAccount.create=false"];
    let agent = fields(&charts.render("mcs-agent", &values).unwrap());
    let cleanup = [&values[..], &["cleanup=true"]].concat();
    let cleanup = fields(&charts.render("mcs-agent", &cleanup).unwrap());
    assert!(cleanup.len() > 50, "{cleanup:?}");
    let added: Vec<_> = cleanup.difference(&agent).collect();
    assert!(added.is_empty(), "{added:?}");
}

/// A file that a kustomization does not list is not applied with it.
#[test]
fn kustomizations_list_all_files_beside_them() {
    let workspace = Workspace::discover().unwrap();
    for name in ["base", "cleanup", "controller"] {
        let directory = workspace.root.join("deploy/kustomize").join(name);
        let list = fs::read_to_string(directory.join("kustomization.yaml")).unwrap();
        let listed: BTreeSet<_> =
            list.lines().filter_map(|line| line.trim().strip_prefix("- ")).collect();
        for file in fs::read_dir(&directory).unwrap() {
            let file = file.unwrap().file_name().into_string().unwrap();
            assert!(file == "kustomization.yaml" || listed.contains(&*file), "{name}/{file}");
        }
    }
}

#[test]
fn critical_pods_have_a_quota_in_the_namespace_of_each_program() {
    let Some(charts) = Charts::find() else { return };
    let values = ["mcs-agent.criticalPodsQuota=true", "mcs-controller.criticalPodsQuota=true"];
    let manifests = charts.render("mcs", &values).unwrap();
    for (namespace, class) in
        [("mcs-system", "system-node-critical"), ("mcs-controller", "system-cluster-critical")]
    {
        let quota = manifests.split("---\n").find(|object| {
            object.contains("kind: ResourceQuota\n")
                && object.contains(&format!("namespace: {namespace}\n"))
        });
        assert!(quota.unwrap().contains(&format!("values: [{class}]")), "{namespace}");
    }
    for chart in ["mcs-agent", "mcs-controller"] {
        // The API server takes no quota for no class.
        let values = ["criticalPodsQuota=true", "priorityClassName="];
        let manifests = charts.render(chart, &values).unwrap();
        assert!(!manifests.contains("ResourceQuota"), "{chart}");
    }
}
