//! The proxy that leads to an API server: `proxy-url` of a kubeconfig, or `HTTPS_PROXY` unless `NO_PROXY` names the server, as
//! kubectl reads them.

mod no_proxy;

use hyper::{Uri, http::uri::Scheme};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::{
    client::{
        legacy::connect::{
            HttpConnector,
            proxy::{SocksV5, Tunnel},
        },
        proxy::matcher::{Intercept, Matcher},
    },
    rt::TokioIo,
};
use kube::{Config, client::ConfigExt as _, config::Kubeconfig};
use thiserror::Error;
use tokio::net::TcpStream;
use tower::{BoxError, Service, ServiceExt as _, util::BoxCloneSyncService};

use super::AccessError;

/// The port of a SOCKS proxy whose URL has none, as in Go.
const SOCKS_PORT: u16 = 1080;
/// `proxy-url` of a cluster that has none.
const UNSET: &str = "http://unset.invalid";

/// Connects to an API server.
pub(super) type Connector =
    BoxCloneSyncService<Uri, MaybeHttpsStream<TokioIo<TcpStream>>, BoxError>;

/// A proxy, and who asks for it.
pub(super) struct Proxy {
    address: Intercept,
    origin: &'static str,
}

/// The proxy gives no connection.
#[derive(Debug, Error)]
#[error("no connection through the proxy {url} ({origin})")]
struct ProxyError {
    url: Uri,
    origin: &'static str,
    source: BoxError,
}

/// kube itself reads the variables for a cluster without proxy, and compares `NO_PROXY` with the proxy instead of the server.
pub(super) fn leave_to_us(kubeconfig: &mut Kubeconfig) {
    let clusters = kubeconfig.clusters.iter_mut().filter_map(|one| one.cluster.as_mut());
    for cluster in clusters {
        let given = cluster.proxy_url.take().filter(|url| !url.is_empty());
        cluster.proxy_url = Some(given.unwrap_or_else(|| UNSET.to_owned()));
    }
}

/// Takes what [`leave_to_us`] has set out of what an exec plugin is told of its cluster (`provideClusterInfo`).
pub(super) fn hide_from_plugin(config: &mut Config) {
    let cluster = config.auth_info.exec.as_mut().and_then(|plugin| plugin.cluster.as_mut());
    if let Some(cluster) = cluster.filter(|cluster| cluster.proxy_url.as_deref() == Some(UNSET)) {
        cluster.proxy_url = None;
    }
}

impl Proxy {
    /// The proxy for this API server. `variable`: the value of a variable of the environment.
    pub(super) fn of(
        config: &Config,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, AccessError> {
        let given = config.proxy_url.as_ref().map(Uri::to_string);
        if let Some(given) = given.filter(|url| url.trim_end_matches('/') != UNSET) {
            return Self::new("proxy-url in the kubeconfig", &given).map(Some);
        }
        let first = |names: [&'static str; 2]| {
            let found = names.into_iter().filter_map(|name| Some((name, variable(name)?)));
            found.into_iter().find(|(_, value)| !value.is_empty())
        };
        let is_tls = config.cluster_url.scheme() == Some(&Scheme::HTTPS);
        let found = first(["HTTPS_PROXY", "https_proxy"]).filter(|_| is_tls);
        let Some((origin, value)) = found else { return Ok(None) };
        let exempt = first(["NO_PROXY", "no_proxy"]).map_or_else(String::new, |(_, value)| value);
        if no_proxy::names(&exempt, &config.cluster_url) {
            return Ok(None);
        }
        Self::new(origin, &value).map(Some)
    }

    fn new(origin: &'static str, value: &str) -> Result<Self, AccessError> {
        let any = Matcher::builder().https(value).build();
        let address = any.intercept(&Uri::from_static("https://any"));
        let usable = address.filter(|one| {
            ["http", "https", "socks5", "socks5h"].contains(&one.uri().scheme_str().unwrap_or(""))
        });
        usable.map(|address| Self { address, origin }).ok_or(AccessError::Proxy { origin })
    }

    fn error(&self) -> impl Fn(BoxError) -> BoxError + Clone + Send + Sync + 'static + use<> {
        let (url, origin) = (self.address.uri().clone(), self.origin);
        move |source| Box::new(ProxyError { url: url.clone(), origin, source })
    }
}

/// Connects by TCP, through the proxy if there is one.
pub(super) fn connector<T>(
    config: &Config,
    proxy: Option<&Proxy>,
    tcp: HttpConnector<T>,
) -> Result<Connector, AccessError>
where
    HttpConnector<T>:
        Service<Uri, Response = TokioIo<TcpStream>, Error: Into<BoxError>, Future: Send>,
    T: Clone + Send + Sync + 'static,
{
    let Some(proxy) = proxy else {
        let direct = tcp.map_response(MaybeHttpsStream::Http).map_err(Into::into);
        return Ok(BoxCloneSyncService::new(direct));
    };
    // As with kubectl, the authority of the cluster vouches for a proxy that is reached by TLS.
    let tls = config.rustls_client_config().map_err(AccessError::Credentials)?;
    let to_proxy = HttpsConnector::from((tcp, tls));
    let uri = proxy.address.uri().clone();
    if uri.scheme_str().is_some_and(|scheme| scheme.starts_with("socks")) {
        let port = uri.port_u16().unwrap_or(SOCKS_PORT);
        let place = format!("http://{}:{port}", uri.host().unwrap_or_default()).parse();
        let place = place.map_err(|_| AccessError::Proxy { origin: proxy.origin })?;
        let mut socks = SocksV5::new(place, to_proxy);
        if let Some((user, password)) = proxy.address.raw_auth() {
            socks = socks.with_auth(user.to_owned(), password.to_owned());
        }
        return Ok(told_apart(socks, proxy));
    }
    let tunnel = Tunnel::new(uri, to_proxy);
    Ok(match proxy.address.basic_auth() {
        Some(header) => told_apart(tunnel.with_auth(header.clone()), proxy),
        None => told_apart(tunnel, proxy),
    })
}

/// A connector whose errors name the proxy.
fn told_apart<C>(connector: C, proxy: &Proxy) -> Connector
where
    C: Service<Uri, Response = MaybeHttpsStream<TokioIo<TcpStream>>, Error: Into<BoxError>>
        + Clone
        + Send
        + Sync
        + 'static,
    C::Future: Send,
{
    let error = proxy.error();
    BoxCloneSyncService::new(connector.map_err(move |source| error(source.into())))
}
