//! A test double of an API server, which gives scripted answers.
#![expect(clippy::unwrap_used, reason = "it is used by tests alone")]

pub mod in_memory;
pub mod messages;

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::access::KubeconfigFile;

/// The answer to one request.
pub struct ScriptedAnswer {
    status: u16,
    lines: Vec<Value>,
    /// The answer in protobuf, instead of the lines.
    protobuf: Option<Vec<u8>>,
    is_compressed: bool,
    holds: bool,
    delay: Duration,
    pause: Duration,
    lasts: Duration,
}

impl ScriptedAnswer {
    /// A watch with these events, which then ends.
    pub fn watch(events: impl IntoIterator<Item = Value>) -> Self {
        Self {
            status: 200,
            lines: events.into_iter().collect(),
            protobuf: None,
            is_compressed: false,
            holds: false,
            delay: Duration::ZERO,
            pause: Duration::ZERO,
            lasts: Duration::ZERO,
        }
    }

    /// Any answer in protobuf.
    pub fn protobuf(status: u16, body: Vec<u8>) -> Self {
        Self { status, protobuf: Some(body), ..Self::watch([]) }
    }

    /// Compresses the answer.
    #[must_use]
    pub fn compressed(self) -> Self {
        Self { is_compressed: true, ..self }
    }

    /// Keeps the connection open after the answer.
    #[must_use]
    pub fn held(self) -> Self {
        Self { holds: true, ..self }
    }

    /// Waits before it answers.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// Sends the body byte by byte, with a pause after each, until the client is gone. Other requests wait.
    #[must_use]
    pub fn dripping(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }

    /// Keeps the connection open for that time. Other requests wait.
    #[must_use]
    pub fn lasting(self, lasts: Duration) -> Self {
        Self { lasts, ..self }
    }

    /// A list.
    pub fn list(version: &str, items: impl IntoIterator<Item = Value>) -> Self {
        let items: Vec<_> = items.into_iter().collect();
        Self::watch([json!({"metadata": {"resourceVersion": version}, "items": items})])
    }

    /// An error.
    pub fn error(status: u16) -> Self {
        Self { status, ..Self::watch([failure(status)]) }
    }

    /// An error whose body is no Status, as proxies answer.
    pub fn page(status: u16, text: &str) -> Self {
        Self { status, ..Self::watch([json!(text)]) }
    }

    /// The error of a server that has not reached the requested resource version.
    pub fn version_too_large() -> Self {
        let mut status = failure(504);
        let causes = [json!({"reason": "ResourceVersionTooLarge"})];
        status["details"] = json!({"causes": causes, "retryAfterSeconds": 1});
        Self { status: 504, ..Self::watch([status]) }
    }
}

fn failure(status: u16) -> Value {
    json!({"kind": "Status", "status": "Failure", "message": format!("no: {status}"), "code": status})
}

/// An event of a watch.
pub fn event(kind: &str, object: &Value) -> Value {
    json!({"type": kind, "object": object})
}

/// A bookmark.
pub fn bookmark(version: &str) -> Value {
    event(
        "BOOKMARK",
        &json!({"kind": "", "apiVersion": "", "metadata": {"resourceVersion": version}}),
    )
}

/// The bookmark that ends a streamed list.
pub fn list_end(version: &str) -> Value {
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    let metadata = json!({"resourceVersion": version, "annotations": annotations});
    event("BOOKMARK", &json!({"kind": "", "apiVersion": "", "metadata": metadata}))
}

/// An error within a watch.
pub fn error_event(status: u16) -> Value {
    event("ERROR", &failure(status))
}

/// A kubeconfig without credentials for the API server at this URL, and its file.
pub fn kubeconfig(server: &str) -> (KubeconfigFile, NamedTempFile) {
    let content = json!({
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
    });
    let file = NamedTempFile::new().unwrap();
    std::fs::write(&file, content.to_string()).unwrap();
    (KubeconfigFile::new(file.path().to_owned(), None), file)
}

/// Answers requests in the order of their arrival and reports what they asked for.
pub struct ScriptedServer {
    /// Where it listens.
    pub address: SocketAddr,
    requests: mpsc::UnboundedReceiver<String>,
    task: JoinHandle<io::Result<()>>,
}

impl ScriptedServer {
    /// Gives these answers, then none.
    pub async fn play(answers: impl IntoIterator<Item = ScriptedAnswer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = mpsc::unbounded_channel();
        let answers: Vec<_> = answers.into_iter().collect();
        let task = tokio::spawn(async move {
            let mut held = Vec::new();
            for answer in answers {
                let (stream, _) = listener.accept().await?;
                let mut stream = BufReader::new(stream);
                let _ = sender.send(target(&mut stream).await?);
                sleep(answer.delay).await;
                respond(&mut stream, &answer).await?;
                sleep(answer.lasts).await;
                if answer.holds {
                    held.push(stream);
                }
            }
            std::future::pending().await
        });
        Self { address, requests, task }
    }

    /// The path and query of the next request, and that protobuf or compression is asked for if it is.
    pub async fn asked(&mut self) -> String {
        self.requests.recv().await.unwrap()
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn target(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        if line.trim().is_empty() {
            break;
        }
        lines.push(line);
    }
    let is_for_protobuf = |line: &String| line.starts_with("accept: ") && line.contains("protobuf");
    let form = if lines.iter().any(is_for_protobuf) { " in protobuf" } else { "" };
    let is_for_gzip = |line: &String| line.starts_with("accept-encoding: gzip");
    let coding = if lines.iter().any(is_for_gzip) { " compressed" } else { "" };
    Ok(lines[0].split(' ').nth(1).unwrap().to_owned() + form + coding)
}

/// The body lasts until the connection is closed.
async fn respond(stream: &mut BufReader<TcpStream>, answer: &ScriptedAnswer) -> io::Result<()> {
    let form = match answer.protobuf {
        Some(_) => "Content-Type: application/vnd.kubernetes.protobuf\r\n",
        None => "",
    };
    let coding = if answer.is_compressed { "Content-Encoding: gzip\r\n" } else { "" };
    let status = answer.status;
    let head = format!("HTTP/1.1 {status} Scripted\r\nConnection: close\r\n{form}{coding}\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut body = answer.protobuf.clone().unwrap_or_default();
    for line in &answer.lines {
        body.extend(format!("{line}\n").as_bytes());
    }
    if answer.is_compressed {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&body)?;
        body = encoder.finish()?;
    }
    if answer.pause > Duration::ZERO {
        return drip(stream, &body, answer.pause).await;
    }
    stream.write_all(&body).await?;
    stream.flush().await
}

async fn drip(stream: &mut BufReader<TcpStream>, body: &[u8], pause: Duration) -> io::Result<()> {
    for byte in body {
        stream.write_all(&[*byte]).await?;
        stream.flush().await?;
        if timeout(pause, stream.read(&mut [0])).await.is_ok() {
            break;
        }
    }
    Ok(())
}
