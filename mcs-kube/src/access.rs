//! The connections to the API server: credentials, timeouts, renewal, and the server's addresses.

mod foreign;
mod proxy;
pub(crate) mod requests;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    env, fmt, io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http_body_util::Limited;
use hyper::{
    Method, Request,
    header::{ACCEPT_ENCODING, HeaderValue},
};
use hyper_util::client::legacy::connect::{
    HttpConnector,
    dns::{GaiResolver, Name},
};
use jiff::{SignedDuration, Timestamp};
use kube::{
    Client, Config,
    client::{Body, ConfigExt as _},
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use thiserror::Error;
use tokio::{sync::watch, time::timeout};
use tower::{BoxError, Service, ServiceBuilder, service_fn, timeout::error::Elapsed};
use tower_http::decompression::Decompression;

pub use self::foreign::is_unverified;
use self::{
    foreign::{has_proxy, of_this_machine, unverified},
    proxy::Proxy,
};
use crate::exec_plugin::{self, PluginError};

/// The time limit for the headers of an answer, connecting included, except for lists. The body of a watch may take longer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit for a list, and for each pause in a streamed one. It is longer than the API server's
/// own limit for a request (60 s). A server that is overloaded sends the headers late too.
pub(crate) const LIST_TIMEOUT: Duration = Duration::from_secs(70);
/// The most bytes of an answer, except for lists and watches, which are read as they arrive.
const MOST_BYTES: usize = 8 << 20;
/// The idle time before a connection is probed, by an HTTP/2 ping and by TCP. All watches may be silent for long.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The time limit for the answer to a probe.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The TCP probes within that time.
const PROBES: u32 = 2;
/// How long before credentials expire the exec plugin is asked for new ones.
const RENEWAL_MARGIN: SignedDuration = SignedDuration::from_mins(1);

/// A kubeconfig and one of its contexts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KubeconfigFile {
    /// Its files, merged as kubectl does: the first file with a name counts.
    pub paths: Vec<PathBuf>,
    /// `None` is `current-context`.
    pub context: Option<String>,
}

impl KubeconfigFile {
    /// The kubeconfig of one file.
    pub fn new(path: PathBuf, context: Option<String>) -> Self {
        Self { paths: vec![path], context }
    }

    /// Reads the files. A relative path in one is relative to where that file is.
    pub fn read(&self) -> Result<Kubeconfig, KubeconfigError> {
        let files = self.paths.iter().map(Kubeconfig::read_from);
        files.into_iter().try_fold(Kubeconfig::default(), |merged, file| merged.merge(file?))
    }
}

impl fmt::Display for KubeconfigFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<_> = self.paths.iter().map(|path| path.display().to_string()).collect();
        f.write_str(&paths.join(", "))?;
        self.context.iter().try_for_each(|context| write!(f, " (context {context})"))
    }
}

/// An error that leaves the program without a client for the API server.
#[derive(Debug, Error)]
pub enum AccessError {
    /// The kubeconfig cannot be read or is invalid.
    #[error("cannot use the kubeconfig {file}: {problem}")]
    Kubeconfig {
        /// The file and context.
        file: KubeconfigFile,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// The service account of a pod is not mounted.
    #[error("cannot use this pod's service account (outside of a pod, give --kubeconfig)")]
    InCluster(#[source] InClusterError),
    /// What names a proxy does not name one.
    #[error("{origin} names no proxy that can be used: give it an http, https or socks5 URL")]
    Proxy {
        /// The variable or field.
        origin: &'static str,
    },
    /// Certificates or credentials are invalid.
    #[error("cannot use the credentials for the API server")]
    Credentials(#[source] kube::Error),
    /// The exec plugin of the kubeconfig gives no credentials.
    #[error(transparent)]
    Plugin(#[from] PluginError),
    /// The content is not a kubeconfig.
    #[error("cannot use the kubeconfig of {name}")]
    Content {
        /// Its origin.
        name: String,
        /// The error of kube.
        #[source]
        source: KubeconfigError,
    },
    /// A kubeconfig from elsewhere leads through a proxy.
    #[error("the kubeconfig of {0} has proxy-url, which is not followed there: remove it")]
    ForeignProxy(String),
    /// A kubeconfig from elsewhere names files or programs of this machine.
    #[error("the kubeconfig of {name} has {field}: write the certificate or token into it")]
    NotSelfContained {
        /// Its origin.
        name: String,
        /// The field.
        field: &'static str,
    },
    /// A kubeconfig from elsewhere does not authenticate the server.
    #[error(
        "the kubeconfig of {name} has {what}: let it have an https URL, and the certificate of the authority"
    )]
    NotVerified {
        /// Its origin.
        name: String,
        /// The unsafe setting.
        what: String,
    },
    /// `tls-server-name` of the kubeconfig is not a server name.
    #[error("tls-server-name in the kubeconfig is {0:?}, which is no server name")]
    ServerName(String),
}

/// A kubeconfig that is not a file, such as the content of a Secret. It can change at any time.
#[derive(Clone, Debug)]
pub struct KubeconfigContent {
    /// Its origin, for messages.
    pub name: String,
    /// The text. It names no file and no program.
    pub content: watch::Receiver<Arc<str>>,
}

/// The source of the configuration.
enum ApiSource {
    ServiceAccount,
    File(KubeconfigFile),
    Content(KubeconfigContent),
}

/// The client of the API server, and the configuration to make a new one.
pub struct ApiAccess {
    source: ApiSource,
    /// The text of the kubeconfig that was last used or found invalid, if it can be replaced.
    tried: Mutex<Option<Arc<str>>>,
    /// `None` until the exec plugin of the kubeconfig has given credentials once.
    connection: Mutex<Option<ApiConnection>>,
    /// Held while a connection is made, so that at most one exec plugin runs.
    renewal: tokio::sync::Mutex<()>,
    /// Every address to which the server's name has resolved.
    servers: watch::Sender<BTreeSet<IpAddr>>,
    /// Notified of each connection that replaces another.
    renewals: watch::Sender<()>,
}

/// A client that all watches share, with one connection. Watches with [many events](crate::WatchTarget::has_many_events)
/// have their own connections.
#[derive(Clone)]
pub struct ApiConnection {
    /// The client.
    pub client: Client,
    /// The server of the client.
    pub(crate) server: Arc<Server>,
    /// The text of the kubeconfig, if it can be replaced.
    pub(crate) content: Option<Arc<str>>,
    /// Counts the clients of this process, from 0.
    number: u64,
    /// When the credentials of the exec plugin expire.
    expires: Option<Timestamp>,
}

/// An API server, as a kubeconfig names it.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Server {
    url: String,
    /// The certificates of its authority.
    authority: Option<Vec<Vec<u8>>>,
}

impl Server {
    fn of(config: &Config) -> Arc<Self> {
        let (url, authority) = (config.cluster_url.to_string(), config.root_cert.clone());
        Arc::new(Self { url, authority })
    }
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
    /// It makes a client too, unless that takes an exec plugin: a plugin can fail or hang while the API server is away, and
    /// the program starts nevertheless.
    pub async fn new(kubeconfig: Option<KubeconfigFile>) -> Result<(Self, String), AccessError> {
        Self::from(kubeconfig.map_or(ApiSource::ServiceAccount, ApiSource::File)).await
    }

    /// As [`ApiAccess::new`], for a kubeconfig that is not a file. Watches follow a change of the content at once.
    pub async fn from_content(content: KubeconfigContent) -> Result<(Self, String), AccessError> {
        Self::from(ApiSource::Content(content)).await
    }

    async fn from(source: ApiSource) -> Result<(Self, String), AccessError> {
        let servers = watch::Sender::default();
        let content = source.content();
        let (mut config, proxy) = source.config(content.as_deref()).await?;
        let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let needs_plugin = exec_plugin::take(&mut config.auth_info).is_some();
        let client = client(&config, proxy.as_ref(), &servers)?;
        let connection = (!needs_plugin).then(|| ApiConnection {
            client,
            server: Server::of(&config),
            content: content.clone(),
            number: 0,
            expires: None,
        });
        let access = Self {
            source,
            tried: Mutex::new(content),
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
        if let Some(connection) = current.as_ref().filter(|connection| !connection.expires_soon())
            && !self.has_other_content()
        {
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

    /// Replaces a failed connection, unless another watch has done so. It reads the configuration again: certificates are
    /// renewed, and API servers move.
    pub async fn renew(&self, failed: &ApiConnection) -> Result<(), AccessError> {
        self.make(Some(failed)).await.map(drop)
    }

    /// Replaces the connection `former`, unless another watch has done so.
    async fn make(&self, former: Option<&ApiConnection>) -> Result<ApiConnection, AccessError> {
        let _turn = self.renewal.lock().await;
        let former = former.map(|former| former.number);
        if let Some(current) = self.current().filter(|current| Some(current.number) != former) {
            return Ok(current);
        }
        let content = self.source.content();
        self.tried().clone_from(&content);
        let (mut config, proxy) = self.source.config(content.as_deref()).await?;
        let mut expires = None;
        if let Some(plugin) = exec_plugin::take(&mut config.auth_info) {
            let credentials = exec_plugin::run(&plugin).await?;
            expires = credentials.expires();
            credentials.store_in(&mut config.auth_info);
        }
        let client = client(&config, proxy.as_ref(), &self.servers)?;
        let number = former.map_or(0, |number| number + 1);
        let server = Server::of(&config);
        let made = ApiConnection { client, server, content, number, expires };
        *self.lock() = Some(made.clone());
        self.renewals.send_replace(());
        Ok(made)
    }

    /// Returns when a kubeconfig other than `used` is to be tried, or is in use. Never for a file.
    ///
    /// The watches of a mailbox share a connection. The first that makes a new one must not keep the change from the others.
    pub async fn replaced(&self, used: Option<&Arc<str>>) {
        let ApiSource::Content(KubeconfigContent { content, .. }) = &self.source else {
            return std::future::pending().await;
        };
        let (mut content, mut renewals) = (content.clone(), self.renewals());
        loop {
            let new = Some(Arc::clone(&content.borrow_and_update()));
            let is_in_use = || self.current().is_some_and(|current| current.content == new);
            if new.as_ref() != used && (*self.tried() != new || is_in_use()) {
                return;
            }
            let changed = tokio::select! {
                biased;
                changed = content.changed() => changed,
                changed = renewals.changed() => changed,
            };
            if changed.is_err() {
                return std::future::pending().await;
            }
        }
    }

    fn has_other_content(&self) -> bool {
        self.source.content().is_some_and(|content| self.tried().as_ref() != Some(&content))
    }

    fn tried(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.tried.lock().unwrap_or_else(PoisonError::into_inner)
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

impl ApiSource {
    /// The text of the kubeconfig, if it can be replaced.
    fn content(&self) -> Option<Arc<str>> {
        match self {
            Self::Content(content) => Some(Arc::clone(&content.content.borrow())),
            Self::ServiceAccount | Self::File(_) => None,
        }
    }

    /// The configuration, and the proxy. Variables name a proxy for the kubeconfig of a file alone: one for the internet
    /// must not get in the way to the own cluster, nor to its peers.
    async fn config(&self, content: Option<&str>) -> Result<(Config, Option<Proxy>), AccessError> {
        match self {
            Self::ServiceAccount => {
                Config::incluster().map(|config| (config, None)).map_err(AccessError::InCluster)
            }
            Self::File(file) => {
                let error = |source: KubeconfigError, contexts: &[String]| {
                    let problem = problem(&source, contexts);
                    AccessError::Kubeconfig { file: file.clone(), problem }
                };
                let mut content = file.read().map_err(|source| error(source, &[]))?;
                proxy::leave_to_us(&mut content);
                let contexts: Vec<_> =
                    content.contexts.iter().map(|context| context.name.clone()).collect();
                let options = KubeConfigOptions {
                    context: file.context.clone(),
                    ..KubeConfigOptions::default()
                };
                let config = Config::from_custom_kubeconfig(content, &options).await;
                let mut config = config.map_err(|source| error(source, &contexts))?;
                proxy::hide_from_plugin(&mut config);
                let proxy = Proxy::of(&config, |name| env::var(name).ok())?;
                Ok((config, proxy))
            }
            Self::Content(KubeconfigContent { name, .. }) => {
                let error = |source| AccessError::Content { name: name.clone(), source };
                let mut content =
                    Kubeconfig::from_yaml(content.unwrap_or_default()).map_err(error)?;
                if let Some(field) = of_this_machine(&content) {
                    return Err(AccessError::NotSelfContained { name: name.clone(), field });
                }
                if let Some(what) = unverified(&content) {
                    return Err(AccessError::NotVerified { name: name.clone(), what });
                }
                if has_proxy(&content) {
                    return Err(AccessError::ForeignProxy(name.clone()));
                }
                proxy::leave_to_us(&mut content);
                let options = KubeConfigOptions::default();
                let config = Config::from_custom_kubeconfig(content, &options).await;
                config.map(|config| (config, None)).map_err(error)
            }
        }
    }
}

/// What is wrong with a kubeconfig, and what to do.
fn problem(error: &KubeconfigError, contexts: &[String]) -> String {
    let known = contexts.join(", ");
    match error {
        KubeconfigError::ReadConfig(error, _) => error.to_string(),
        KubeconfigError::CurrentContextNotSet | KubeconfigError::LoadContext(_)
            if contexts.is_empty() =>
        {
            "it has no contexts: write one, with a cluster and a user".to_owned()
        }
        KubeconfigError::CurrentContextNotSet => {
            format!("it has no current-context: set one, or give --context (it has: {known})")
        }
        KubeconfigError::LoadContext(name) => {
            format!("it has no context {name} (it has: {known})")
        }
        KubeconfigError::ParseProxyUrl(error) => format!("proxy-url is no URL: {error}"),
        error => error.to_string(),
    }
}

fn client(
    config: &Config,
    proxy: Option<&Proxy>,
    servers: &watch::Sender<BTreeSet<IpAddr>>,
) -> Result<Client, AccessError> {
    #[cfg(any(test, feature = "testing"))]
    if let Some(client) = crate::testing::in_memory::client(config, headers_limit) {
        return Ok(client);
    }
    let host = config.cluster_url.host().unwrap_or_default();
    if let Ok(ip) = host.trim_start_matches('[').trim_end_matches(']').parse() {
        remember(servers, [ip]);
    }
    let mut tcp = HttpConnector::new_with_resolver(resolver(servers.clone()));
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEP_ALIVE));
    tcp.set_keepalive_interval(Some(KEEP_ALIVE_TIMEOUT / PROBES));
    tcp.set_keepalive_retries(Some(PROBES));
    let sender = Decompression::new(requests::sender(
        config,
        requests::tls(config, &proxy::connector(config, proxy, tcp)?)?,
    ));
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(AccessError::Credentials)?)
        .layer(config.extra_headers_layer().map_err(AccessError::Credentials)?)
        .service(service_fn(move |mut request: Request<Body>| {
            let limit = headers_limit(&request);
            if is_watch(&request) {
                // No API server compresses a watch. A proxy would, and could delay events.
                request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            }
            let is_get = request.method() == Method::GET;
            let answer = sender.clone().call(request);
            async move {
                let answer = timeout(limit, answer).await.map_err(|_| Elapsed::new())?;
                let answer = answer.map_err(BoxError::from)?;
                let is_whole = !is_get || !answer.status().is_success();
                let most = if is_whole { MOST_BYTES } else { usize::MAX };
                Ok::<_, BoxError>(answer.map(|body| Limited::new(body, most)))
            }
        }));
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// The time limit for the headers of the answer. A list has to be complete before its headers go out.
fn headers_limit(request: &Request<Body>) -> Duration {
    let is_list = request.method() == Method::GET && !is_watch(request);
    if is_list { LIST_TIMEOUT } else { RESPONSE_TIMEOUT }
}

fn is_watch(request: &Request<Body>) -> bool {
    request.uri().query().is_some_and(|query| query.contains("watch=true"))
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
