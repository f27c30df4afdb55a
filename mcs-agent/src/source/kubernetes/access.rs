//! The connection to the API server: credentials, timeouts, renewal, and the server's addresses.

use std::{
    collections::BTreeSet,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Mutex, PoisonError},
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
use kube::{
    Client, Config,
    client::{Body, ConfigExt as _},
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use thiserror::Error;
use tokio::sync::watch;
use tower::{Service, ServiceBuilder, service_fn, timeout::TimeoutLayer};

use super::KubeconfigFile;

/// The time limit for the headers of an answer, connecting included. The body of a list or a watch may
/// take longer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often the client pings an idle connection. All watches share it, and all may be silent for long.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The time limit for the answer to a ping.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// An error that leaves the agent without a client for the API server.
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
    /// `tls-server-name` of the kubeconfig is no server name.
    #[error("tls-server-name in the kubeconfig is {0:?}, which is no server name")]
    ServerName(String),
}

/// The client of the API server, and what it takes to make a new one.
pub(super) struct ApiAccess {
    /// Absent in a pod.
    kubeconfig: Option<KubeconfigFile>,
    connection: Mutex<ApiConnection>,
    /// Every address that the server's name ever resolved to.
    servers: watch::Sender<BTreeSet<IpAddr>>,
}

/// A client that all watches share, and with it one connection.
#[derive(Clone)]
pub(super) struct ApiConnection {
    pub(super) client: Client,
    /// Counts the clients of this process, from 0.
    number: u64,
}

impl ApiAccess {
    /// Reads the configuration and makes a client, without a request. Also returns the API server's URL.
    pub(super) async fn new(
        kubeconfig: Option<KubeconfigFile>,
    ) -> Result<(Self, String), AccessError> {
        let servers = watch::Sender::default();
        let config = config(kubeconfig.as_ref()).await?;
        let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let connection = ApiConnection { client: client(&config, &servers)?, number: 0 };
        Ok((Self { kubeconfig, connection: Mutex::new(connection), servers }, url))
    }

    /// The current connection.
    pub(super) fn connection(&self) -> ApiConnection {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces a connection that failed, unless another watch has done so. It reads the configuration
    /// again, because certificates are renewed and API servers move.
    pub(super) async fn renew(&self, failed: &ApiConnection) -> Result<(), AccessError> {
        if self.connection().number != failed.number {
            return Ok(());
        }
        let config = config(self.kubeconfig.as_ref()).await?;
        let client = client(&config, &self.servers)?;
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if connection.number == failed.number {
            *connection = ApiConnection { client, number: failed.number + 1 };
        }
        Ok(())
    }

    /// The addresses of the API server.
    pub(super) fn servers(&self) -> watch::Receiver<BTreeSet<IpAddr>> {
        self.servers.subscribe()
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
    use serde_json::Value;

    use super::*;
    use crate::source::kubernetes::scripted_server::{ScriptedAnswer, ScriptedServer, kubeconfig};

    #[tokio::test]
    async fn addresses_that_the_servers_name_resolves_to_are_remembered() {
        let mut script = ScriptedServer::play([ScriptedAnswer::list("1", [])]).await;
        let port = script.address.port();
        let file = kubeconfig(&format!("http://localhost:{port}"));
        let (access, url) = ApiAccess::new(Some(file.0)).await.unwrap();
        assert_eq!(url, format!("http://localhost:{port}"));
        assert!(access.servers().borrow().is_empty());
        let request = http::Request::get("/version").body(Vec::new()).unwrap();
        access.connection().client.request::<Value>(request).await.unwrap();
        assert_eq!(script.asked().await, "/version");
        assert!(access.servers().borrow().contains(&script.address.ip()));
    }

    #[tokio::test]
    async fn a_connection_is_renewed_once() {
        let file = kubeconfig("https://10.0.0.1:6443");
        let (access, _) = ApiAccess::new(Some(file.0)).await.unwrap();
        assert!(access.servers().borrow().contains(&"10.0.0.1".parse().unwrap()));
        let first = access.connection();
        access.renew(&first).await.unwrap();
        access.renew(&first).await.unwrap();
        assert_eq!(access.connection().number, 1);

        std::fs::remove_file(file.1.path()).unwrap();
        let error = access.renew(&access.connection()).await.unwrap_err();
        assert!(error.to_string().starts_with("cannot use the kubeconfig "), "{error}");
        assert_eq!(access.connection().number, 1);
    }
}
