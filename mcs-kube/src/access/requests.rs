//! Sends requests to an API server: by one connection if it speaks HTTP/2. Watches with many events have their own.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use hyper::{
    Request, Response, Uri,
    body::Incoming,
    http::uri::Scheme,
    rt::{Read, Write},
};
use hyper_rustls::{
    DefaultServerNameResolver, FixedServerNameResolver, HttpsConnector, ResolveServerName,
};
use hyper_util::{
    client::legacy::{
        self, Client,
        connect::{Connection, capture_connection},
    },
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Config,
    client::{Body, ConfigExt as _},
};
use tower::{BoxError, Service, ServiceExt as _, service_fn};

use super::{AccessError, KEEP_ALIVE, KEEP_ALIVE_TIMEOUT, proxy::Connector};

/// Marks the request for a watch that has most of an API server's events.
///
/// It has a connection of its own, by HTTP/1.1. With HTTP/2, an event passes through three goroutines of an API server
/// (`net/http/h2_bundle.go`: handler, connection and frame writer). With HTTP/1.1 the handler writes it, which takes a
/// third less CPU time (`deploy/scale.md`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ManyEvents;

/// Sends requests by HTTP/2 if the server offers it and the request is not for [`ManyEvents`].
///
/// Until hyper knows what the server offers, it opens a connection for each request. All watches of an agent ask at once
/// when their API server is back, and a connection costs the server milliseconds of CPU. So a client for HTTP/2 alone asks
/// first: its requests wait for one connection. For a server without HTTP/2 the other client sends them.
pub(super) fn sender<C, S>(
    config: &Config,
    [tls, only_http1]: [C; 2],
) -> impl Service<Request<Body>, Response = Response<Incoming>, Error = legacy::Error, Future: Send>
+ Clone
+ use<C, S>
where
    C: Service<Uri, Response = S, Error = BoxError, Future: Send + Unpin>
        + Clone
        + Send
        + Sync
        + 'static,
    S: Read + Write + Connection + Unpin + Send + 'static,
{
    let is_tls = config.cluster_url.scheme() == Some(&Scheme::HTTPS);
    let by_http2 = Arc::new(AtomicBool::new(is_tls));
    let known = Arc::clone(&by_http2);
    let connector = tls.clone();
    let only_http2 = service_fn(move |uri: Uri| {
        let (connector, by_http2) = (connector.clone(), Arc::clone(&known));
        Box::pin(async move {
            // Another request may just have found out that the server does not.
            if by_http2.load(Ordering::Relaxed) {
                let stream = connector.oneshot(uri).await?;
                if stream.connected().is_negotiated_h2() {
                    return Ok::<_, BoxError>(stream);
                }
                by_http2.store(false, Ordering::Relaxed);
            }
            Err("the API server does not speak HTTP/2".into())
        })
    });
    let any = builder().build(tls);
    let http2 = builder().http2_only(true).build(only_http2);
    let http1 = builder().build(only_http1);
    service_fn(move |mut request: Request<Body>| {
        let (any, http2, by_http2) = (any.clone(), http2.clone(), Arc::clone(&by_http2));
        let http1 = http1.clone();
        async move {
            if request.extensions().get::<ManyEvents>().is_some() {
                let connection = capture_connection(&mut request);
                let answer = http1.request(request).await?;
                // A terminating API server closes the connection right after the watch, even while the next request is
                // under way. A request that it did not process is sent again.
                if answer.status().is_success()
                    && let Some(connection) = &*connection.connection_metadata()
                {
                    connection.poison();
                }
                return Ok(answer);
            }
            if !by_http2.load(Ordering::Relaxed) {
                return any.request(request).await;
            }
            let (parts, body) = request.into_parts();
            let again = body.try_clone().map(|body| Request::from_parts(parts.clone(), body));
            match (http2.request(Request::from_parts(parts, body)).await, again) {
                (Err(error), Some(again))
                    if error.is_connect() && !by_http2.load(Ordering::Relaxed) =>
                {
                    any.request(again).await
                }
                (answer, _) => answer,
            }
        }
    })
}

fn builder() -> legacy::Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(KEEP_ALIVE)
        .http2_keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
    builder
}

/// Two connectors like kube's own: one with HTTP/2 if the server offers it, and one without.
pub(super) fn tls(
    config: &Config,
    tcp: &Connector,
) -> Result<[HttpsConnector<Connector>; 2], AccessError> {
    let [http2, http1] = [b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut any = config.rustls_client_config().map_err(AccessError::Credentials)?;
    let mut only_http1 = any.clone();
    any.alpn_protocols = vec![http2, http1.clone()];
    only_http1.alpn_protocols = vec![http1];
    let name: Arc<dyn ResolveServerName + Send + Sync> = match &config.tls_server_name {
        Some(name) => {
            let server = name.clone().try_into();
            let server = server.map_err(|_| AccessError::ServerName(name.clone()))?;
            Arc::new(FixedServerNameResolver::new(server))
        }
        None => Arc::new(DefaultServerNameResolver::default()),
    };
    Ok([
        HttpsConnector::new(tcp.clone(), any, false, Arc::clone(&name)),
        HttpsConnector::new(tcp.clone(), only_http1, false, name),
    ])
}
