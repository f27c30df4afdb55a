//! The connection to the API server: credentials, timeouts, renewal, and the server's addresses.

use std::{
    collections::BTreeSet,
    fmt, io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{
        self,
        connect::{
            HttpConnector,
            dns::{GaiResolver, Name},
        },
    },
    rt::{TokioExecutor, TokioTimer},
};
use jiff::{SignedDuration, Timestamp};
use kube::{
    Client, Config,
    client::{Body, ConfigExt as _},
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use thiserror::Error;
use tokio::sync::watch;
use tower::{Service, ServiceBuilder, service_fn, timeout::TimeoutLayer};

use crate::exec_plugin::{self, PluginError};

/// The time limit for the headers of an answer, connecting included. The body of a list or a watch may
/// take longer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often the client pings an idle connection. All watches share it, and all may be silent for long.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The time limit for the answer to a ping.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long before credentials expire the exec plugin is asked for new ones.
const RENEWAL_MARGIN: SignedDuration = SignedDuration::from_mins(1);

/// A kubeconfig and one of its contexts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KubeconfigFile {
    /// The file.
    pub path: PathBuf,
    /// `None` is the file's `current-context`.
    pub context: Option<String>,
}

impl fmt::Display for KubeconfigFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)?;
        self.context.iter().try_for_each(|context| write!(f, " (context {context})"))
    }
}

/// An error that leaves the program without a client for the API server.
#[derive(Debug, Error)]
pub enum AccessError {
    /// The kubeconfig cannot be read or is invalid.
    #[error("cannot use the kubeconfig {file}")]
    Kubeconfig {
        /// The file and context.
        file: KubeconfigFile,
        /// The error of kube.
        #[source]
        source: KubeconfigError,
    },
    /// The service account of a pod is not mounted.
    #[error("cannot use this pod's service account (outside of a pod, give --kubeconfig)")]
    InCluster(#[source] InClusterError),
    /// The kubeconfig has `proxy-url`, which is not supported.
    #[error("a proxy to the API server (proxy-url in the kubeconfig) is not supported: remove it")]
    Proxy,
    /// Certificates or credentials are invalid.
    #[error("cannot use the credentials for the API server")]
    Credentials(#[source] kube::Error),
    /// The exec plugin of the kubeconfig gives no credentials.
    #[error(transparent)]
    Plugin(#[from] PluginError),
    /// `tls-server-name` of the kubeconfig is no server name.
    #[error("tls-server-name in the kubeconfig is {0:?}, which is no server name")]
    ServerName(String),
}

/// The client of the API server, and what it takes to make a new one.
pub struct ApiAccess {
    /// Absent in a pod.
    kubeconfig: Option<KubeconfigFile>,
    /// `None` until the exec plugin of the kubeconfig has given credentials once.
    connection: Mutex<Option<ApiConnection>>,
    /// Held while a connection is made, so that at most one exec plugin runs.
    renewal: tokio::sync::Mutex<()>,
    /// Every address that the server's name ever resolved to.
    servers: watch::Sender<BTreeSet<IpAddr>>,
    /// Notified of each connection that replaces another.
    renewals: watch::Sender<()>,
}

/// A client that all watches share, and with it one connection.
#[derive(Clone)]
pub struct ApiConnection {
    /// The client.
    pub client: Client,
    /// Counts the clients of this process, from 0.
    number: u64,
    /// When the credentials of the exec plugin expire.
    expires: Option<Timestamp>,
}

impl ApiConnection {
    /// Whether the next request needs newer credentials.
    pub fn expires_soon(&self) -> bool {
        self.expires.is_some_and(|time| Timestamp::now() + RENEWAL_MARGIN >= time)
    }
}

impl ApiAccess {
    /// Reads the configuration, without a request. Also returns the API server's URL.
    ///
    /// It makes a client too, unless that takes an exec plugin: a plugin can fail or hang while the
    /// API server is away, and then the program starts all the same.
    pub async fn new(kubeconfig: Option<KubeconfigFile>) -> Result<(Self, String), AccessError> {
        let servers = watch::Sender::default();
        let mut config = config(kubeconfig.as_ref()).await?;
        let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let needs_plugin = exec_plugin::take(&mut config.auth_info).is_some();
        let client = client(&config, &servers)?;
        let connection =
            (!needs_plugin).then_some(ApiConnection { client, number: 0, expires: None });
        let access = Self {
            kubeconfig,
            connection: Mutex::new(connection),
            renewal: tokio::sync::Mutex::default(),
            servers,
            renewals: watch::Sender::default(),
        };
        Ok((access, url))
    }

    /// The current connection, or a new one if its credentials expire soon.
    pub async fn connection(&self) -> Result<ApiConnection, AccessError> {
        let current = self.current();
        if let Some(connection) = current.as_ref().filter(|connection| !connection.expires_soon()) {
            return Ok(connection.clone());
        }
        match (self.make(current.as_ref()).await, current) {
            (Err(error), Some(current)) => {
                let error = anyhow::Error::new(error);
                tracing::warn!("cannot renew the credentials that expire soon: {error:#}");
                Ok(current)
            }
            (made, _) => made,
        }
    }

    /// Replaces a connection that failed, unless another watch has done so. It reads the configuration
    /// again, because certificates are renewed and API servers move.
    pub async fn renew(&self, failed: &ApiConnection) -> Result<(), AccessError> {
        self.make(Some(failed)).await.map(drop)
    }

    /// Makes a connection in the place of `former`, unless another watch has done so.
    async fn make(&self, former: Option<&ApiConnection>) -> Result<ApiConnection, AccessError> {
        let _turn = self.renewal.lock().await;
        let former = former.map(|former| former.number);
        if let Some(current) = self.current().filter(|current| Some(current.number) != former) {
            return Ok(current);
        }
        let mut config = config(self.kubeconfig.as_ref()).await?;
        let mut expires = None;
        if let Some(plugin) = exec_plugin::take(&mut config.auth_info) {
            let credentials = exec_plugin::run(&plugin).await?;
            expires = credentials.expires();
            credentials.store_in(&mut config.auth_info);
        }
        let client = client(&config, &self.servers)?;
        let number = former.map_or(0, |number| number + 1);
        let made = ApiConnection { client, number, expires };
        *self.lock() = Some(made.clone());
        self.renewals.send_replace(());
        Ok(made)
    }

    fn current(&self) -> Option<ApiConnection> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<ApiConnection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The addresses of the API server.
    pub fn servers(&self) -> watch::Receiver<BTreeSet<IpAddr>> {
        self.servers.subscribe()
    }

    /// Changes with each connection that replaces another.
    pub fn renewals(&self) -> watch::Receiver<()> {
        self.renewals.subscribe()
    }
}

async fn config(kubeconfig: Option<&KubeconfigFile>) -> Result<Config, AccessError> {
    let Some(file) = kubeconfig else {
        return Config::incluster().map_err(AccessError::InCluster);
    };
    let error = |source| AccessError::Kubeconfig { file: file.clone(), source };
    let content = Kubeconfig::read_from(&file.path).map_err(error)?;
    let options =
        KubeConfigOptions { context: file.context.clone(), ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(content, &options).await.map_err(error)
}

fn client(
    config: &Config,
    servers: &watch::Sender<BTreeSet<IpAddr>>,
) -> Result<Client, AccessError> {
    if config.proxy_url.is_some() {
        return Err(AccessError::Proxy);
    }
    let host = config.cluster_url.host().unwrap_or_default();
    if let Ok(ip) = host.trim_start_matches('[').trim_end_matches(']').parse() {
        remember(servers, [ip]);
    }
    let mut tcp = HttpConnector::new_with_resolver(resolver(servers.clone()));
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let http = legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(KEEP_ALIVE)
        .http2_keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .build::<_, Body>(tls(config, tcp)?);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(AccessError::Credentials)?)
        .layer(config.extra_headers_layer().map_err(AccessError::Credentials)?)
        .layer(TimeoutLayer::new(RESPONSE_TIMEOUT))
        .service(http);
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// Like kube's own connector, but with HTTP/2 if the server offers it.
fn tls<R>(
    config: &Config,
    tcp: HttpConnector<R>,
) -> Result<HttpsConnector<HttpConnector<R>>, AccessError> {
    let tls = config.rustls_client_config().map_err(AccessError::Credentials)?;
    let mut builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let server = name.clone().try_into().map_err(|_| AccessError::ServerName(name.clone()))?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(server));
    }
    Ok(builder.enable_all_versions().wrap_connector(tcp))
}

/// Resolves names like the default resolver and remembers the addresses.
fn resolver(
    servers: watch::Sender<BTreeSet<IpAddr>>,
) -> impl Service<
    Name,
    Response = std::vec::IntoIter<SocketAddr>,
    Error = io::Error,
    Future = impl Future<Output = io::Result<std::vec::IntoIter<SocketAddr>>> + Send,
> + Clone
+ Send {
    service_fn(move |name: Name| {
        let servers = servers.clone();
        async move {
            let found: Vec<_> = GaiResolver::new().call(name).await?.collect();
            remember(&servers, found.iter().map(SocketAddr::ip));
            Ok(found.into_iter())
        }
    })
}

fn remember(servers: &watch::Sender<BTreeSet<IpAddr>>, found: impl IntoIterator<Item = IpAddr>) {
    servers.send_if_modified(|known| {
        let before = known.len();
        known.extend(found);
        known.len() > before
    });
}

#[cfg(test)]
mod tests {
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
        assert_eq!(script.asked().await, "/version");
        assert!(access.servers().borrow().contains(&script.address.ip()));
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
        (KubeconfigFile { path, context: None }, directory)
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
}
