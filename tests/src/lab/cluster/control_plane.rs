//! etcd, the API server, the controller manager and the scheduler of a cluster.

use std::path::Path;

use super::{
    ClusterSetup,
    certificates::{Authority, TokenKeys, User},
    daemons::Daemons,
    etcd, kubeconfig,
    kubectl::Kubectl,
    layout::{API_SERVER_PORT, Cluster, list},
};

const LOCAL: &str = "127.0.0.1";
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// The names of the API server, as pods know it.
const NAMES: [&str; 4] = [
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

const ADMINISTRATOR: User<'_> = User { name: "admin", group: Some("system:masters") };

/// Starts the control plane of a cluster in a new network namespace, and waits until its
/// API server is ready.
pub(super) fn start(
    setup: &ClusterSetup<'_>,
    cluster: Cluster,
    authority: &Authority,
) -> anyhow::Result<Daemons> {
    let netns = setup.wan.control_plane(cluster)?;
    let cgroup = Path::new(cluster.set.name()).join(cluster.to_string());
    let mut daemons = Daemons::create(
        cluster.directory(),
        setup.hierarchies.unified.join(cgroup),
        Vec::new(),
        vec![
            "nsenter".into(),
            format!("--net={}", netns.path().display()).into(),
            "env".into(),
            "-i".into(),
        ],
    )?;
    let tokens = TokenKeys::create(authority.directory())?;
    let file = |path: &Path| path.display().to_string();

    let flags = etcd::flags(&cluster.directory().join("etcd"), "warn");
    daemons.start("etcd", &setup.programs.find("etcd")?, flags)?;

    let [address, _] = cluster.addresses();
    let addresses = cluster.addresses().into_iter().chain(cluster.kubernetes());
    let serving = authority.server("kube-apiserver", &NAMES, addresses)?;
    let kubelet_client = authority.client("kube-apiserver-kubelet", &ADMINISTRATOR)?;
    let flags = [
        format!("--etcd-servers={}", etcd::URL),
        format!("--secure-port={API_SERVER_PORT}"),
        format!("--advertise-address={address}"),
        format!("--service-cluster-ip-range={}", list(cluster.services())),
        format!("--client-ca-file={}", file(&authority.certificate())),
        format!("--tls-cert-file={}", file(&serving.certificate)),
        format!("--tls-private-key-file={}", file(&serving.key)),
        format!("--kubelet-client-certificate={}", file(&kubelet_client.certificate)),
        format!("--kubelet-client-key={}", file(&kubelet_client.key)),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        format!("--service-account-issuer={ISSUER}"),
        format!("--service-account-key-file={}", file(&tokens.public)),
        format!("--service-account-signing-key-file={}", file(&tokens.private)),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--allow-privileged".to_owned(),
    ];
    daemons.start("kube-apiserver", &setup.kubernetes(cluster, "kube-apiserver")?, flags)?;
    kubeconfig::write(authority, cluster, &cluster.kubeconfig(), &ADMINISTRATOR)?;
    let kubectl = Kubectl::new(setup.programs, cluster)?;
    daemons.wait(&format!("the API server of {cluster}"), setup.observer, || {
        kubectl.run(&["get", "--raw", "/readyz"])
    })?;

    let user = |name: &str| -> anyhow::Result<[String; 2]> {
        let path = cluster.directory().join(format!("{name}.kubeconfig"));
        let name = format!("system:{name}");
        kubeconfig::write(authority, cluster, &path, &User { name: &name, group: None })?;
        Ok([format!("--kubeconfig={}", file(&path)), format!("--bind-address={LOCAL}")])
    };
    let flags = [
        "--leader-elect=false".to_owned(),
        "--use-service-account-credentials".to_owned(),
        format!("--root-ca-file={}", file(&authority.certificate())),
        format!("--service-account-private-key-file={}", file(&tokens.private)),
        format!("--service-cluster-ip-range={}", list(cluster.services())),
        format!("--cluster-cidr={}", list(cluster.pods())),
        "--allocate-node-cidrs=false".to_owned(),
    ];
    let name = "kube-controller-manager";
    daemons.start(name, &setup.kubernetes(cluster, name)?, user(name)?.into_iter().chain(flags))?;

    let name = "kube-scheduler";
    let flags = ["--leader-elect=false".to_owned()];
    daemons.start(name, &setup.kubernetes(cluster, name)?, user(name)?.into_iter().chain(flags))?;
    Ok(daemons)
}
