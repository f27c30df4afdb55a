//! API servers in the memory of a thread: no request of this thread to the host of one reaches a socket.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::{
    StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::{Method, Request, Response, StatusCode, body::Frame, header::AUTHORIZATION};
use kube::{
    Client, Config,
    client::{Body, ConfigExt as _},
};
use prost::bytes::Bytes;
use tokio::time::timeout;
use tower::{BoxError, ServiceBuilder, service_fn};

/// A request.
#[derive(Debug)]
pub struct Asked {
    /// The method.
    pub method: Method,
    /// The path of the URL.
    pub path: String,
    /// Its query.
    pub query: BTreeMap<String, String>,
    /// The token of the kubeconfig.
    pub token: String,
    /// What is sent.
    pub body: Bytes,
}

/// The parts of the body of an answer, as they come.
pub type Parts = BoxStream<'static, Result<Bytes, BoxError>>;
/// The status of an answer, and its body. An error: there is no answer.
pub type Answer = Result<(u16, Parts), BoxError>;
/// What answers the requests to a host.
pub type Handler = Arc<dyn Fn(Asked) -> BoxFuture<'static, Answer> + Send + Sync>;

thread_local! {
    static SERVERS: RefCell<BTreeMap<String, Handler>> = const { RefCell::new(BTreeMap::new()) };
}

/// Answers the requests to a host of URLs until it is dropped.
#[derive(Debug)]
pub struct Served(String);

impl Served {
    /// Answers by `handler` from now on.
    pub fn at(host: &str, handler: Handler) -> Self {
        SERVERS.with_borrow_mut(|all| all.insert(host.to_owned(), handler));
        Self(host.to_owned())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        SERVERS.with_borrow_mut(|all| all.remove(&self.0));
    }
}

/// A body of one part.
pub fn whole(body: impl Into<Bytes>) -> Parts {
    let body = body.into();
    stream::once(async move { Ok(body) }).boxed()
}

/// A client of the server in memory that this configuration leads to, if there is one, with this time limit for
/// the headers of an answer.
pub(crate) fn client(
    config: &Config,
    headers_limit: fn(&Request<Body>) -> Duration,
) -> Option<Client> {
    let host = config.cluster_url.host()?;
    let handler = SERVERS.with_borrow(|all| all.get(host).cloned())?;
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().ok()?)
        .service(service_fn(move |request: Request<Body>| {
            let answer = timeout(headers_limit(&request), answer(Arc::clone(&handler), request));
            async move { answer.await.map_err(BoxError::from)? }
        }));
    Some(Client::new(service, config.default_namespace.clone()))
}

async fn answer(
    handler: Handler,
    request: Request<Body>,
) -> Result<Response<StreamBody<BoxStream<'static, Result<Frame<Bytes>, BoxError>>>>, BoxError> {
    let (parts, body) = request.into_parts();
    let query = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
    let token = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let asked = Asked {
        query: query.into_owned().collect(),
        path: parts.uri.path().to_owned(),
        method: parts.method,
        token: token.unwrap_or_default().trim_start_matches("Bearer ").to_owned(),
        body: body.collect().await?.to_bytes(),
    };
    let (code, parts) = handler(asked).await?;
    let body = StreamBody::new(parts.map(|part| part.map(Frame::data)).boxed());
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::from_u16(code)?;
    Ok(answer)
}
