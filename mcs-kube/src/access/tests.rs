//! What leads to an API server, and when it is made anew.

use serde_json::{Value, json};

use super::*;
use crate::testing::{ScriptedAnswer, ScriptedServer, kubeconfig};

#[tokio::test]
async fn addresses_that_the_servers_name_resolves_to_are_remembered() {
    let mut script = ScriptedServer::play([ScriptedAnswer::list("1", [])]).await;
    let port = script.address.port();
    let file = kubeconfig(&format!("http://localhost:{port}"));
    let (access, url) = ApiAccess::new(Some(file.0)).await.unwrap();
    assert_eq!(url, format!("http://localhost:{port}"));
    assert!(access.servers().borrow().is_empty());
    let request = http::Request::get("/version").body(Vec::new()).unwrap();
    access.connection().await.unwrap().client.request::<Value>(request).await.unwrap();
    assert_eq!(script.asked().await, "/version compressed");
    assert!(access.servers().borrow().contains(&script.address.ip()));
}

#[tokio::test]
async fn a_kubeconfig_that_cannot_be_used_is_explained() {
    let refused = async |file: KubeconfigFile| {
        let error = ApiAccess::new(Some(file)).await.err().unwrap();
        format!("{:#}", anyhow::Error::new(error))
    };
    let absent = KubeconfigFile::new("/nope".into(), None);
    assert_eq!(
        refused(absent).await,
        "cannot use the kubeconfig /nope: No such file or directory (os error 2)"
    );
    let (file, _directory) = kubeconfig("https://10.0.0.1:6443");
    let wrong = KubeconfigFile { context: Some("nope".to_owned()), ..file.clone() };
    let said = refused(wrong).await;
    assert!(said.contains("(context nope): it has no context nope (it has: "), "{said}");
    let text = std::fs::read_to_string(&file.paths[0]).unwrap();
    std::fs::write(&file.paths[0], text.replace("current-context", "other")).unwrap();
    let said = refused(file).await;
    assert!(said.contains("set one, or give --context (it has: "), "{said}");
}

#[test]
fn an_answer_to_a_list_may_take_long() {
    let limit = |method: Method, target: &str| {
        let request = Request::builder().method(method).uri(target);
        headers_limit(&request.body(Body::empty()).unwrap())
    };
    assert_eq!(limit(Method::GET, "/api/v1/nodes?resourceVersion=0"), LIST_TIMEOUT);
    assert_eq!(limit(Method::GET, "/api/v1/nodes?&watch=true"), RESPONSE_TIMEOUT);
    assert_eq!(limit(Method::PATCH, "/api/v1/nodes/a"), RESPONSE_TIMEOUT);
}

#[tokio::test]
async fn another_content_leads_to_another_connection() {
    let text = |server: &str, user: Value| -> Arc<str> {
        let content = json!({
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": user}],
        });
        content.to_string().into()
    };
    let (sender, content) = watch::channel(text("https://10.0.0.1:6443", json!({"token": "a"})));
    let content = KubeconfigContent { name: "Secret a/b".to_owned(), content };
    let (access, _) = ApiAccess::from_content(content).await.unwrap();
    let first = access.connection().await.unwrap();
    assert_eq!(access.connection().await.unwrap().number, first.number);
    sender.send(text("https://10.0.0.2:6443", json!({"token": "b"}))).unwrap();
    // All watches of the connection follow, also those that look after one of them has made another.
    let replaced =
        || tokio::time::timeout(Duration::from_secs(1), access.replaced(first.content.as_ref()));
    replaced().await.unwrap();
    let second = access.connection().await.unwrap();
    assert_eq!(second.number, 1);
    replaced().await.unwrap();
    let expected: BTreeSet<IpAddr> = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap()).into();
    assert_eq!(*access.servers().borrow(), expected);
    for (user, field) in [
        (json!({"exec": {"command": "sh"}}), "exec"),
        (json!({"tokenFile": "/etc/shadow"}), "tokenFile"),
    ] {
        sender.send(text("https://10.0.0.2:6443", user)).unwrap();
        // The former connection goes on.
        assert_eq!(access.connection().await.unwrap().number, 1);
        assert!(
            tokio::time::timeout(Duration::ZERO, access.replaced(second.content.as_ref()))
                .await
                .is_err()
        );
        let error = access.renew(&access.connection().await.unwrap()).await.unwrap_err();
        assert!(error.to_string().contains(field), "{error}");
    }
}

#[tokio::test]
async fn a_connection_is_renewed_once() {
    let file = kubeconfig("https://10.0.0.1:6443");
    let (access, _) = ApiAccess::new(Some(file.0)).await.unwrap();
    assert!(access.servers().borrow().contains(&"10.0.0.1".parse().unwrap()));
    let first = access.connection().await.unwrap();
    access.renew(&first).await.unwrap();
    access.renew(&first).await.unwrap();
    assert_eq!(access.connection().await.unwrap().number, 1);

    std::fs::remove_file(file.1.path()).unwrap();
    let current = access.connection().await.unwrap();
    let error = access.renew(&current).await.unwrap_err();
    assert!(error.to_string().starts_with("cannot use the kubeconfig "), "{error}");
    assert_eq!(access.connection().await.unwrap().number, 1);
}

/// A kubeconfig whose plugin counts its runs in a file, then does the rest, and the file.
fn plugin(rest: &str) -> (KubeconfigFile, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let runs = directory.path().join("runs");
    let script = format!("echo run >> {}; {rest}", runs.display());
    let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh",
        "args": ["-c", script]});
    let content = json!({
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://10.0.0.1:6443"}}],
        "users": [{"name": "u", "user": {"exec": exec}}],
    });
    let path = directory.path().join("kubeconfig");
    std::fs::write(&path, content.to_string()).unwrap();
    (KubeconfigFile::new(path, None), directory)
}

fn runs(directory: &tempfile::TempDir) -> usize {
    let runs = std::fs::read_to_string(directory.path().join("runs"));
    runs.map_or(0, |runs| runs.lines().count())
}

fn token(expires: &str) -> String {
    let status = json!({"token": "t", "expirationTimestamp": expires});
    format!("echo '{}'", json!({"status": status}))
}

#[tokio::test]
async fn an_exec_plugin_runs_once_for_each_connection() {
    let (file, directory) = plugin(&token("2100-01-01T00:00:00Z"));
    let (access, _) = ApiAccess::new(Some(file)).await.unwrap();
    assert_eq!(runs(&directory), 0, "the start does not wait for it");
    let connections = tokio::join!(access.connection(), access.connection());
    let [first, second] = <[_; 2]>::from(connections).map(Result::unwrap);
    assert_eq!((first.number, second.number, runs(&directory)), (0, 0, 1));
    let renewals = tokio::join!(access.renew(&first), access.renew(&second));
    assert!(renewals.0.is_ok() && renewals.1.is_ok());
    assert_eq!((access.connection().await.unwrap().number, runs(&directory)), (1, 2));
}

#[tokio::test]
async fn credentials_that_expire_soon_are_renewed() {
    let (file, directory) = plugin(&token("2001-01-01T00:00:00Z"));
    let (access, _) = ApiAccess::new(Some(file)).await.unwrap();
    assert_eq!(access.connection().await.unwrap().number, 0);
    assert_eq!(access.connection().await.unwrap().number, 1);
    std::fs::remove_file(directory.path().join("kubeconfig")).unwrap();
    assert_eq!(access.connection().await.unwrap().number, 1, "the former may still do");
    assert_eq!(runs(&directory), 2);
}

#[tokio::test]
async fn a_plugin_that_hangs_stops_nothing_else() {
    let (file, directory) = plugin("sleep 600");
    let (access, _) = ApiAccess::new(Some(file)).await.unwrap();
    let others = async {
        // Connections wait for the plugin. This thread does not.
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        _ = access.connection() => panic!("the plugin ended"),
        _ = access.connection() => panic!("the plugin ended"),
        () = others => {}
    }
    assert!(runs(&directory) <= 1, "one at a time");
}

#[tokio::test]
async fn an_error_of_the_plugin_is_told() {
    let (file, _directory) = plugin("echo no network >&2; exit 1");
    let (access, _) = ApiAccess::new(Some(file)).await.unwrap();
    let error = format!("{:#}", anyhow::Error::new(access.connection().await.err().unwrap()));
    let expected =
        "the exec plugin \"/bin/sh\" of the kubeconfig failed (exit status: 1): no network";
    assert_eq!(error, expected);
}

#[tokio::test]
async fn a_plugin_is_told_of_no_proxy_that_nobody_has_set() {
    for (given, expected) in
        [(None, Value::Null), (Some("http://proxy:1"), json!("http://proxy:1"))]
    {
        let info = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh",
            "provideClusterInfo": true});
        let cluster = json!({"server": "https://10.0.0.1:6443", "proxy-url": given});
        let content = json!({
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": cluster}],
            "users": [{"name": "u", "user": {"exec": info}}],
        });
        let mut content = kube::config::Kubeconfig::from_yaml(&content.to_string()).unwrap();
        proxy::leave_to_us(&mut content);
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(content, &options).await.unwrap();
        proxy::hide_from_plugin(&mut config);
        let cluster = config.auth_info.exec.unwrap().cluster.unwrap();
        let told = serde_json::to_value(&cluster).unwrap();
        assert_eq!(told["server"], "https://10.0.0.1:6443");
        assert_eq!(told.get("proxy-url").cloned().unwrap_or_default(), expected);
    }
}
