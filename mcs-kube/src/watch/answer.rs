//! Requests a list or a watch, and detects the form of the answer.

use std::io;

use futures_util::{AsyncBufRead, TryStreamExt as _};
use http_body_util::BodyExt as _;
use hyper::{
    Request, Response,
    header::{ACCEPT, CONTENT_TYPE, HeaderValue},
};
use kube::{Client, client::Body, core::Status};
use prost::bytes::Bytes;

use crate::envelope;

/// The form that kube-proxy and kubelet request too. Types without it arrive as JSON.
const MESSAGES: HeaderValue =
    HeaderValue::from_static("application/vnd.kubernetes.protobuf,application/json;q=0.9");
const PROTOBUF: &[u8] = b"application/vnd.kubernetes.protobuf";

/// A successful answer.
pub(super) struct WatchAnswer<R> {
    /// Whether it is in protobuf. Everything else is read as JSON.
    pub(super) is_protobuf: bool,
    pub(super) reader: R,
}

/// Sends a request, for protobuf if possible or for JSON only.
pub(super) async fn ask(
    client: &Client,
    mut request: Request<Vec<u8>>,
    for_protobuf: bool,
) -> kube::Result<WatchAnswer<impl AsyncBufRead + Unpin + use<>>> {
    if for_protobuf {
        request.headers_mut().insert(ACCEPT, MESSAGES);
    }
    let answer = client.send(request.map(Body::from)).await?;
    let form = answer.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_protobuf = form.is_some_and(|form| form.starts_with(PROTOBUF));
    if answer.status().is_client_error() || answer.status().is_server_error() {
        return Err(error(answer, is_protobuf).await);
    }
    let body = answer.into_body().into_data_stream().map_err(io::Error::other);
    Ok(WatchAnswer { is_protobuf, reader: body.into_async_read() })
}

/// Reads an answer as an error. It may come from a proxy, whose errors are pages.
async fn error(answer: Response<Body>, is_protobuf: bool) -> kube::Error {
    let code = answer.status().as_u16();
    let bytes = match answer.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return error,
    };
    let status = if is_protobuf { of_message(&bytes) } else { serde_json::from_slice(&bytes).ok() };
    let of_page = || {
        let text = String::from_utf8_lossy(&bytes);
        Status::failure(text.trim(), "no status of Kubernetes").with_code(code)
    };
    kube::Error::Api(status.unwrap_or_else(of_page).boxed())
}

fn of_message(bytes: &Bytes) -> Option<Status> {
    envelope::Status::read(&envelope::Unknown::open(bytes.clone())?.raw)
}
