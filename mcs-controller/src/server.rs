//! Health and metrics over HTTP, on a thread of its own: it answers whatever the control task does.

mod metrics;
mod published;

use std::{convert::Infallible, net::SocketAddr, sync::Arc, thread, time::Duration};

use anyhow::Context as _;
use http_body_util::Full;
use hyper::{Response, StatusCode, body::Bytes, header, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};

pub use self::{metrics::Metrics, published::Published};

/// A client sends the header of its request within this.
const HEADER_DEADLINE: Duration = Duration::from_secs(1);
/// A connection serves one request, within this.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait for an address that is in use, or for a free descriptor.
const RETRY: Duration = Duration::from_secs(5);
/// How many connections an address has at most.
const CONNECTIONS: usize = 16;

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
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => {
                tracing::info!("listening on {address}");
                accept(&listener, &published, &room).await;
            }
            Err(error) => tracing::error!("cannot listen on {address}: {error}; trying again"),
        }
        sleep(RETRY).await;
    }
}

/// Returns when no connection can be accepted any more.
async fn accept(listener: &TcpListener, published: &Arc<Published>, room: &Arc<Semaphore>) {
    loop {
        let Ok(permit) = Arc::clone(room).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else { return };
        let published = Arc::clone(published);
        tokio::spawn(async move {
            // A client that is too slow, or gone.
            let _ = timeout(PATIENCE, converse(stream, &published)).await;
            drop(permit);
        });
    }
}

async fn converse(stream: TcpStream, published: &Published) -> hyper::Result<()> {
    let service = service_fn(|request: hyper::Request<_>| async move {
        Ok::<_, Infallible>(answer(request.uri().path(), published))
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_DEADLINE)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await
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
