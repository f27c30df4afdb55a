//! A client of an API server.

use std::{pin::pin, sync::Arc};

use futures_util::{AsyncReadExt as _, StreamExt as _, TryStreamExt as _, io, stream};
use http::{Method, Request, Uri};
use kube::{Client, Config, core::WatchEvent};
use tokio::runtime::{self, Runtime};

use crate::prelude::*;

/// Requests at a time when there are many.
const AT_A_TIME: usize = 32;

/// An API server, for somebody with a token, from within a network namespace.
pub struct Api {
    netns: Arc<Namespace>,
    runtime: Runtime,
    client: Client,
}

impl Api {
    /// Asks nothing yet.
    pub fn new(netns: Arc<Namespace>, url: &str, token: &str) -> Result<Self> {
        Self::impersonating(netns, url, token, None)
    }

    /// The same, and asks as another user, if one is given.
    pub fn impersonating(
        netns: Arc<Namespace>,
        url: &str,
        token: &str,
        user: Option<&str>,
    ) -> Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let mut config = Config::new(url.parse::<Uri>()?);
        config.accept_invalid_certs = true;
        config.auth_info.token = Some(token.to_owned().into());
        config.auth_info.impersonate = user.map(str::to_owned);
        let client = {
            let _runtime = runtime.enter();
            Client::try_from(config)?
        };
        Ok(Self { netns, runtime, client })
    }

    /// An error if it does not answer, or is not ready.
    pub fn is_ready(&self) -> Result {
        let request = Request::get("/readyz").body(Vec::new())?;
        self.run(self.client.request_text(request))?;
        Ok(())
    }

    /// An object as it is.
    pub fn read(&self, object: &Value) -> Result<Value> {
        self.get(&path_of(object)?)
    }

    /// The path of an object.
    pub fn path(object: &Value) -> Result<String> {
        path_of(object)
    }

    /// What it knows under that path.
    pub fn get(&self, path: &str) -> Result<Value> {
        self.ask(&Method::GET, path, None)
    }

    /// The text that it has under that path, such as its metrics.
    pub fn text(&self, path: &str) -> Result<String> {
        self.run(self.client.request_text(Request::get(path).body(Vec::new())?))
    }

    /// The bytes of an answer in that form, until it ends.
    pub fn bytes(&self, path: &str, form: &str) -> Result<Vec<u8>> {
        let request = Request::get(path).header("accept", form).body(Vec::new())?;
        let mut bytes = Vec::new();
        self.run(async {
            let mut answer = pin!(self.client.request_stream(request).await?);
            answer.read_to_end(&mut bytes).await.map_err(kube::Error::ReadEvents)
        })?;
        Ok(bytes)
    }

    /// The number of bytes of such an answer.
    pub fn length(&self, path: &str, form: &str) -> Result<u64> {
        let request = Request::get(path).header("accept", form).body(Vec::new())?;
        self.run(async {
            let answer = self.client.request_stream(request).await?;
            io::copy(answer, &mut io::sink()).await.map_err(kube::Error::ReadEvents)
        })
    }

    /// Creates an object, or makes it what is given.
    pub fn apply(&self, object: &Value) -> Result {
        self.ask(&Method::PATCH, &applied(object)?, Some(object)).map(drop)
    }

    /// Makes the status of an existing object what is given.
    pub fn apply_status(&self, object: &Value) -> Result {
        let path = format!("{}/status?fieldManager=suite&force=true", path_of(object)?);
        self.ask(&Method::PATCH, &path, Some(object)).map(drop)
    }

    /// Applies each of them.
    pub fn apply_all<'a>(&self, objects: impl IntoIterator<Item = &'a Value>) -> Result {
        objects.into_iter().try_for_each(|object| self.apply(object))
    }

    /// The same for each document of a YAML file.
    pub fn apply_yaml(&self, text: &str) -> Result {
        self.apply_all(&documents(text)?)
    }

    /// The same for many at a time.
    pub fn apply_many(&self, objects: &[Value]) -> Result {
        let apply = |object| request(&Method::PATCH, &applied(object)?, Some(object));
        self.send(objects.iter().map(apply).collect::<Result<_>>()?)
    }

    /// Asks whether it would take an object, with nothing in it that it does not know.
    pub fn would_apply(&self, object: &Value) -> Result {
        let strict = "fieldManager=suite&force=true&dryRun=All&fieldValidation=Strict";
        self.ask(&Method::PATCH, &format!("{}?{strict}", path_of(object)?), Some(object)).map(drop)
    }

    /// Replaces an existing object, whatever its version.
    pub fn replace(&self, object: &Value) -> Result {
        self.ask(&Method::PUT, &path_of(object)?, Some(object)).map(drop)
    }

    /// The same for its status.
    pub fn replace_status(&self, object: &Value) -> Result {
        self.replace_below(object, "status")
    }

    /// Replaces a part of an existing object.
    pub fn replace_below(&self, object: &Value, what: &str) -> Result {
        self.ask(&Method::PUT, &format!("{}/{what}", path_of(object)?), Some(object)).map(drop)
    }

    /// Creates many objects. None of them may exist.
    pub fn create_many(&self, objects: &[Value]) -> Result {
        let create = |object| request(&Method::POST, &collection(object)?, Some(object));
        self.send(objects.iter().map(create).collect::<Result<_>>()?)
    }

    /// Replaces many existing objects, whatever their versions.
    pub fn replace_many(&self, objects: &[Value]) -> Result {
        let replace = |object| request(&Method::PUT, &path_of(object)?, Some(object));
        self.send(objects.iter().map(replace).collect::<Result<_>>()?)
    }

    /// Deletes many objects. All of them exist, and nothing holds them.
    pub fn delete_many(&self, objects: &[Value]) -> Result {
        let delete = |object| request(&Method::DELETE, &path_of(object)?, None);
        self.send(objects.iter().map(delete).collect::<Result<_>>()?)
    }

    fn send(&self, requests: Vec<Request<Vec<u8>>>) -> Result {
        self.run(async {
            let answers = stream::iter(requests).map(|request| self.client.request_text(request));
            answers.buffer_unordered(AT_A_TIME).try_for_each(async |_| Ok(())).await
        })
    }

    /// Watches an object until `tell`, which is given it as it is and becomes, returns false.
    pub fn watch(&self, object: &Value, tell: impl FnMut(&Value) -> bool + Send) -> Result {
        let name = object["metadata"]["name"].as_str().context("an object without a name")?;
        self.follow(object, &format!("&fieldSelector=metadata.name%3D{name}"), tell)
    }

    /// The same for all objects of the kind and namespace of an example.
    pub fn watch_all(&self, example: &Value, tell: impl FnMut(&Value) -> bool + Send) -> Result {
        self.follow(example, "", tell)
    }

    fn follow(
        &self,
        example: &Value,
        selector: &str,
        mut tell: impl FnMut(&Value) -> bool + Send,
    ) -> Result {
        let path = format!("{}?watch=1&resourceVersion=0{selector}", collection(example)?);
        loop {
            let request = request(&Method::GET, &path, None)?;
            // Ends by itself from time to time.
            let goes_on = self.run(async {
                let mut events = pin!(self.client.request_events::<Value>(request).await?);
                while let Some(event) = events.try_next().await? {
                    let (WatchEvent::Added(object) | WatchEvent::Modified(object)) = event else {
                        continue;
                    };
                    if !tell(&object) {
                        return Ok(false);
                    }
                }
                Ok(true)
            })?;
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// The network namespace that it asks from.
    pub(super) fn netns(&self) -> Arc<Namespace> {
        Arc::clone(&self.netns)
    }

    /// Sends what is no object to that path.
    pub(super) fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.ask(&Method::POST, path, Some(body))
    }

    /// Creates something that belongs to an object, and returns what becomes of it.
    pub fn create_below(&self, object: &Value, what: &str, body: &Value) -> Result<Value> {
        self.ask(&Method::POST, &format!("{}/{what}", path_of(object)?), Some(body))
    }

    /// Deletes an object once the garbage collector has deleted what belongs to it (foreground deletion).
    pub fn delete_in_foreground(&self, object: &Value) -> Result {
        let path = format!("{}?propagationPolicy=Foreground", path_of(object)?);
        self.ask(&Method::DELETE, &path, None).map(drop)
    }

    /// Deletes an object, which is gone when this returns. Somebody else may have made another one by then.
    pub fn delete(&self, object: &Value) -> Result {
        let path = path_of(object)?;
        let uid = self.get(&path).map(|found| found["metadata"]["uid"].clone()).unwrap_or_default();
        self.ask(&Method::DELETE, &path, None)?;
        wait::until(&format!("{path} to be gone"), || match self.get(&path) {
            Err(error) if code(&error) == Some(404) => Ok(()),
            Err(error) => Err(error),
            Ok(found) if found["metadata"]["uid"] != uid => Ok(()),
            Ok(_) => bail!("it is still there"),
        })
    }

    /// Waits until objects of that kind can be listed.
    pub fn wait_for_kind(&self, example: &Value) -> Result {
        let collection = collection(example)?;
        wait::until(&format!("{collection} to be served"), || self.get(&collection).map(drop))
    }

    /// An answer. A request that is lost since the server has gone meanwhile is made again.
    fn ask(&self, method: &Method, path: &str, body: Option<&Value>) -> Result<Value> {
        wait::until(&format!("an answer to {method} {path}"), || {
            let request = request(method, path, body)?;
            let asked = self.run(self.client.request::<Value>(request));
            match asked {
                Err(error) if code(&error).is_none() => Err(error),
                answer => Ok(answer.with_context(|| format!("{method} {path}"))),
            }
        })?
    }

    fn run<T: Send>(&self, work: impl Future<Output = kube::Result<T>> + Send) -> Result<T> {
        Ok(self.netns.run(|| self.runtime.block_on(work))??)
    }
}

/// The documents of a YAML file.
pub fn documents(text: &str) -> Result<Vec<Value>> {
    let documents = text.split("\n---\n").map(|document| Ok(serde_saphyr::from_str(document)?));
    documents.collect()
}

/// A namespace.
pub fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}

/// An object of a namespace.
pub fn namespaced(version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": version, "kind": kind,
        "metadata": { "namespace": namespace, "name": name },
    })
}

fn request(method: &Method, path: &str, body: Option<&Value>) -> Result<Request<Vec<u8>>> {
    let content = match *method {
        Method::PATCH => "application/apply-patch+yaml",
        _ => "application/json",
    };
    let body = body.map(Value::to_string).unwrap_or_default().into_bytes();
    let request = Request::builder().method(method).uri(path).header("content-type", content);
    Ok(request.body(body)?)
}

/// What the server answered, if it did.
fn code(error: &anyhow::Error) -> Option<u16> {
    match error.downcast_ref()? {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// The path of an object.
fn path_of(object: &Value) -> Result<String> {
    let name = object["metadata"]["name"].as_str().context("an object without a name")?;
    Ok(format!("{}/{name}", collection(object)?))
}

/// Where an object is applied.
fn applied(object: &Value) -> Result<String> {
    Ok(format!("{}?fieldManager=suite&force=true", path_of(object)?))
}

/// The path of the objects of its kind, in its namespace.
fn collection(object: &Value) -> Result<String> {
    let text = |value: &Value| value.as_str().map(str::to_owned).context("no Kubernetes object");
    let (version, kind) = (text(&object["apiVersion"])?, text(&object["kind"])?.to_lowercase());
    let prefix = if version.contains('/') { "/apis" } else { "/api" };
    let namespace = object["metadata"]["namespace"].as_str();
    let namespace = namespace.map(|name| format!("/namespaces/{name}")).unwrap_or_default();
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if kind.ends_with('s') => kind,
        None => format!("{kind}s"),
    };
    Ok(format!("{prefix}/{version}{namespace}/{plural}"))
}
