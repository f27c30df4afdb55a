//! What kube-proxy asks an API server for: all Services and EndpointSlices, as protobuf. Nobody decodes the answers, so the
//! CPU time of these followers means nothing; that of their API server does.

use std::{net::Ipv4Addr, path::Path};

use anyhow::Context as _;
use futures_util::{AsyncRead, AsyncReadExt as _};
use http::Request;
use kube::Client;
use mcs_kube::{ApiAccess, KubeconfigFile};
use tokio::join;

use crate::followers::{MARKED_PREFIX, Shared, mark_at, report};

/// `k8s.io/kubernetes/cmd/kube-proxy/app/server.go` leaves out headless Services and those of other proxies.
const SELECTOR: &str =
    "labelSelector=!service.kubernetes.io%2Fheadless,!service.kubernetes.io%2Fservice-proxy-name";
const LIST_END: &[u8] = b"k8s.io/initial-events-end";
const CHUNK: usize = 64 * 1024;
/// Longer than what is looked for, which can be split between two chunks.
const OVERLAP: usize = 64;

/// Watches until the connection ends.
pub(crate) async fn follow(kubeconfig: &Path, shared: &Shared) -> anyhow::Result<()> {
    // By HTTP/2 as kube-proxy itself: it costs an API server more than HTTP/1.1.
    let kubeconfig = KubeconfigFile::new(kubeconfig.to_owned(), None);
    let client = ApiAccess::new(Some(kubeconfig)).await?.0.connection().await?.client;
    let slices = watch(&client, "/apis/discovery.k8s.io/v1/endpointslices", |chunk| {
        look(chunk, shared);
    });
    let services = watch(&client, "/api/v1/services", |_| {});
    let (slices, services) = join!(slices, services);
    slices.and(services)
}

async fn watch(client: &Client, path: &str, mut take: impl FnMut(&[u8])) -> anyhow::Result<()> {
    let uri = format!(
        "{path}?{SELECTOR}&watch=true&allowWatchBookmarks=true&sendInitialEvents=true\
         &resourceVersionMatch=NotOlderThan&timeoutSeconds=600"
    );
    let request = Request::get(uri)
        .header("Accept", "application/vnd.kubernetes.protobuf;stream=watch")
        .body(Vec::new())?;
    let mut answer = Box::pin(client.request_stream(request).await?);
    read(&mut answer, &mut take).await.with_context(|| format!("{path} cannot be watched"))
}

async fn read(
    answer: &mut (impl AsyncRead + Unpin),
    take: &mut impl FnMut(&[u8]),
) -> anyhow::Result<()> {
    let mut bytes = vec![0; OVERLAP + CHUNK];
    loop {
        let count = answer.read(&mut bytes[OVERLAP..]).await?;
        if count == 0 {
            return Ok(());
        }
        take(&bytes[..OVERLAP + count]);
        bytes.copy_within(count..count + OVERLAP, 0);
    }
}

/// Looks for the end of the first list and for changes of the marked slice.
fn look(chunk: &[u8], shared: &Shared) {
    let is_listed = find(chunk, LIST_END).next().is_some_and(|at| at + LIST_END.len() > OVERLAP);
    let marks = find(chunk, MARKED_PREFIX.as_bytes()).filter_map(|at| {
        let digits = |byte: &&u8| byte.is_ascii_digit() || **byte == b'.';
        let end = at + chunk[at..].iter().take_while(digits).count();
        // What ends with the chunk may go on in the next one.
        let is_new = (OVERLAP..chunk.len()).contains(&end);
        let address: Ipv4Addr = str::from_utf8(&chunk[at..end]).ok()?.parse().ok()?;
        is_new.then(|| mark_at(address))
    });
    let marks: Vec<_> = marks.collect();
    if is_listed || !marks.is_empty() {
        report(shared, |progress| {
            progress.synced += usize::from(is_listed);
            for mark in marks {
                progress.seen(mark);
            }
        });
    }
}

fn find<'a>(bytes: &'a [u8], what: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    (0..(bytes.len() + 1).saturating_sub(what.len()))
        .filter(move |at| bytes[*at..].starts_with(what))
}
