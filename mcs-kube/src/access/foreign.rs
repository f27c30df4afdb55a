//! Settings that a kubeconfig from elsewhere, such as from a Secret, must not have.

use std::net::IpAddr;

use hyper::Uri;
use kube::config::Kubeconfig;

use crate::text::one_line_of;

/// The bytes of a URL in a message.
const LONGEST_URL: usize = 200;

/// A field that names a file or a program. The writer of a Secret must not read the files of this machine.
pub(super) fn of_this_machine(kubeconfig: &Kubeconfig) -> Option<&'static str> {
    let users = kubeconfig.auth_infos.iter().filter_map(|user| user.auth_info.as_ref());
    let of_users = users.flat_map(|user| {
        [
            user.exec.as_ref().map(|_| "exec"),
            user.auth_provider.as_ref().map(|_| "auth-provider"),
            user.token_file.as_ref().map(|_| "tokenFile"),
            user.client_certificate.as_ref().map(|_| "client-certificate"),
            user.client_key.as_ref().map(|_| "client-key"),
        ]
    });
    let clusters = kubeconfig.clusters.iter().filter_map(|cluster| cluster.cluster.as_ref());
    let of_clusters = clusters
        .map(|cluster| cluster.certificate_authority.as_ref().map(|_| "certificate-authority"));
    of_users.chain(of_clusters).flatten().next()
}

/// Whether a cluster is reached through a proxy. The writer of a Secret must not choose whom this machine talks to in the
/// clear.
pub(super) fn has_proxy(kubeconfig: &Kubeconfig) -> bool {
    let mut clusters = kubeconfig.clusters.iter().filter_map(|cluster| cluster.cluster.as_ref());
    clusters.any(|cluster| cluster.proxy_url.as_ref().is_some_and(|url| !url.is_empty()))
}

/// The setting that would let anybody answer as the API server. A proxy on a loopback address is trusted.
pub(super) fn unverified(kubeconfig: &Kubeconfig) -> Option<String> {
    let mut clusters = kubeconfig.clusters.iter().filter_map(|cluster| cluster.cluster.as_ref());
    clusters.find_map(|cluster| {
        if cluster.insecure_skip_tls_verify == Some(true) {
            return Some("insecure-skip-tls-verify".to_owned());
        }
        let server = cluster.server.as_deref().unwrap_or_default();
        is_unverified(server).then(|| format!("the server {}", one_line_of(server, LONGEST_URL)))
    })
}

/// Whether [`ApiAccess::from_content`] rejects a kubeconfig with this URL: it has no TLS, and is not a loopback address. A
/// text that is not a URL fails later.
///
/// [`ApiAccess::from_content`]: crate::ApiAccess::from_content
pub fn is_unverified(server: &str) -> bool {
    let Ok(url) = server.parse::<Uri>() else { return false };
    let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let is_beside = host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    url.scheme_str() != Some("https") && !is_beside
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::sync::watch;

    use crate::{ApiAccess, KubeconfigContent};

    /// What is said of a Secret with this user and this cluster.
    async fn refused(user: Value, cluster: Value) -> Option<String> {
        let content = json!({
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        });
        let (_keep, content) = watch::channel(content.to_string().into());
        let content = KubeconfigContent { name: "Secret peer-east".to_owned(), content };
        ApiAccess::from_content(content).await.err().map(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_secret_leads_to_nobody_who_cannot_be_told() {
        let refused = async |cluster: Value| refused(json!({"token": "a"}), cluster).await;
        for server in ["https://east:6443", "http://127.0.0.1:8001", "http://[::1]:8001"] {
            assert_eq!(refused(json!({"server": server})).await, None);
        }
        for server in ["http://169.254.169.254", "http://localhost.example", "HTTP://10.0.0.1:80"] {
            let said = refused(json!({"server": server})).await.unwrap();
            let expected = format!("the kubeconfig of Secret peer-east has the server {server}: ");
            assert!(said.starts_with(&expected), "{said}");
        }
        let proxied = json!({"server": "https://east:6443", "proxy-url": "http://10.0.0.1:3128"});
        assert!(refused(proxied).await.unwrap().starts_with(
            "the kubeconfig of Secret peer-east has proxy-url, which is not followed there"
        ));
        let insecure = json!({"server": "https://east:6443", "insecure-skip-tls-verify": true});
        assert!(refused(insecure).await.unwrap().contains("has insecure-skip-tls-verify: "));
    }

    #[tokio::test]
    async fn a_secret_names_no_file_and_no_program() {
        let file = || json!("/etc/shadow");
        let exec = json!({"command": "sh", "apiVersion": "client.authentication.k8s.io/v1"});
        for (part, field, value) in [
            ("user", "exec", exec),
            ("user", "auth-provider", json!({"name": "gcp", "config": {"cmd-path": "sh"}})),
            ("user", "tokenFile", file()),
            ("user", "client-certificate", file()),
            ("user", "client-key", file()),
            ("cluster", "certificate-authority", file()),
        ] {
            let mut parts = json!({
                "user": {"token": "a"}, "cluster": {"server": "https://east:6443"},
            });
            parts[part][field] = value;
            let said = refused(parts["user"].take(), parts["cluster"].take()).await.unwrap();
            let expected = format!("the kubeconfig of Secret peer-east has {field}: ");
            assert!(said.starts_with(&expected), "{said}");
        }
    }
}
