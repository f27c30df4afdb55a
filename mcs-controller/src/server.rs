//! Health and metrics over HTTP, on a thread of its own: it answers whatever the control task does.

mod metrics;
mod published;

use std::{net::SocketAddr, sync::Arc, thread, time::Duration};

use anyhow::Context as _;
use http_body_util::Full;
use hyper::{Method, Response, StatusCode, Uri, body::Bytes, header};
use mcs_kube::program::http;
use tokio::{net::TcpListener, time::sleep};

pub use self::{
    metrics::{Metrics, PeerBounds},
    published::Published,
};

/// How long to wait for an address that is in use.
const RETRY: Duration = Duration::from_secs(5);
const TEXT: &str = "text/plain; charset=utf-8";

/// Serves health and metrics at these addresses, as long as the process runs.
pub fn start(
    health: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
    published: &Arc<Published>,
) -> anyhow::Result<()> {
    let mut addresses: Vec<_> = health.into_iter().chain(metrics).collect();
    addresses.dedup();
    if addresses.is_empty() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    let published = Arc::clone(published);
    let serve = move || {
        runtime.block_on(async {
            for address in addresses {
                tokio::spawn(serve(address, Arc::clone(&published)));
            }
            std::future::pending::<()>().await;
        });
    };
    thread::Builder::new().name("http".to_owned()).spawn(serve).context("cannot start a thread")?;
    Ok(())
}

async fn serve(address: SocketAddr, published: Arc<Published>) {
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => {
                tracing::info!("listening on {address}");
                let published = Arc::clone(&published);
                let answer = move |_: &Method, uri: &Uri| answer(uri.path(), &published);
                return http::serve(&listener, answer).await;
            }
            Err(error) => tracing::error!("cannot listen on {address}: {error}; trying again"),
        }
        sleep(RETRY).await;
    }
}

fn answer(path: &str, published: &Published) -> Response<Full<Bytes>> {
    let health = |problem: Option<String>| match problem {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(problem) => (StatusCode::SERVICE_UNAVAILABLE, problem + "\n"),
    };
    let (status, body) = match path {
        "/livez" => health(published.stuck()),
        "/readyz" => health(published.not_ready()),
        "/metrics" => match published.metrics.text() {
            Ok(text) => (StatusCode::OK, text),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        },
        _ => (StatusCode::NOT_FOUND, "there are /livez, /readyz and /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(TEXT));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_follow_the_state() {
        let published = Published::new().unwrap();
        let status = |path: &str| answer(path, &published).status().as_u16();
        published.beat();
        assert_eq!((status("/livez"), status("/readyz"), status("/")), (200, 503, 404));
        published.set_synced();
        assert_eq!(status("/readyz"), 200);
        published.stop();
        assert_eq!((status("/livez"), status("/readyz")), (200, 503));
        assert_eq!(status("/metrics"), 200);
    }
}
