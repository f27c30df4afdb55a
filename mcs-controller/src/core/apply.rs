//! Writes to API servers: server-side apply with one field manager, replacement of slices, and deletions.

mod bucket;
mod pace;
mod request;
mod sent;

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, header::ACCEPT};
use kube::{
    Api,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
        Preconditions,
    },
};
use mcs_kube::{AccessError, ApiAccess, one_line};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::timeout;

pub use self::{
    bucket::{TokenBucket, tokens},
    pace::ImportPace,
    request::{mailbox_request, misnamed_request, own_request, property_request},
    sent::{Sent, send_plan},
};
use crate::core::{
    clusterset::EndpointRules,
    objects::{FIELD_MANAGER, restrict},
};

/// The time limit of a write.
const LIMIT: Duration = Duration::from_secs(30);

/// The answer to a write has no endpoints.
const METADATA: HeaderValue = HeaderValue::from_static(
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json",
);

/// One request that writes an object.
#[derive(Clone, Debug)]
pub struct Request {
    /// The group, version, kind and plural.
    pub resource: ApiResource,
    /// `None` for an object of the whole cluster.
    pub namespace: Option<String>,
    /// The name of the object.
    pub name: String,
    /// What to do.
    pub action: Action,
}

/// What to do with an object.
#[derive(Clone, Debug)]
pub enum Action {
    /// Creates it, or changes the fields that this controller applies. `force` takes over fields of others.
    Apply {
        /// The fields.
        object: Value,
        /// Whether to take over fields that others have applied.
        force: bool,
    },
    /// Creates it, unless there is one.
    Create(Value),
    /// Creates or replaces the whole object, whoever wrote it. Server-side apply fails for a field that the type does not
    /// declare, and takes three times as long for a slice with 100 endpoints; a replacement drops the field.
    Replace {
        /// The object.
        object: Value,
        /// Whether the object seems to exist. A wrong guess costs another request.
        is_there: bool,
    },
    /// Replaces the object of the `resourceVersion` that it names, or creates it if it names none.
    Update(Value),
    /// Removes the endpoints that these rules reject from a slice, if the slice exists.
    Restrict(Arc<EndpointRules>),
    /// Changes `status`.
    ApplyStatus(Value),
    /// Changes one condition of an object whose status another controller writes. What this controller had applied to
    /// `status` before stays.
    ApplyCondition(Value),
    /// Changes the given fields of `status`, and removes each field that is null. The API server drops fields that the type
    /// does not declare.
    MergeStatus(Value),
    /// Deletes the object, if it has this uid.
    Delete {
        /// `metadata.uid`; `None`: any.
        uid: Option<String>,
    },
}

/// A write that failed.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// There is no connection.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The API server refuses the request.
    #[error("{}", reason(.0))]
    Refused(#[from] kube::Error),
    /// No answer.
    #[error("the API server does not answer")]
    Silent,
}

impl Request {
    /// A request for a resource with the usual plural.
    pub fn new(
        api: (&str, &str, &str, &str),
        namespace: Option<&str>,
        name: &str,
        action: Action,
    ) -> Self {
        let (group, version, kind, plural) = api;
        let kind = GroupVersionKind::gvk(group, version, kind);
        Self {
            resource: ApiResource::from_gvk_with_plural(&kind, plural),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            action,
        }
    }

    /// Sends the request. An object that does not exist counts as deleted. Returns the `resourceVersion` after an update.
    pub async fn send(&self, access: &ApiAccess) -> Result<Option<String>, ApplyError> {
        let connection = access.connection().await?;
        let client = connection.client.clone();
        let api: Api<DynamicObject> = match &self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &self.resource),
            None => Api::all_with(client, &self.resource),
        };
        let sent = timeout(LIMIT, self.send_to(&api)).await.map_err(|_| ApplyError::Silent)?;
        if matches!(&sent, Err(kube::Error::Api(status)) if status.code == 401) {
            // The next attempt has new credentials, if there are any.
            access.renew(&connection).await?;
        }
        Ok(sent?)
    }

    async fn send_to(&self, api: &Api<DynamicObject>) -> kube::Result<Option<String>> {
        let params = |force| PatchParams {
            force,
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        match &self.action {
            Action::Apply { object, force } => {
                api.patch_metadata(&self.name, &params(*force), &Patch::Apply(object)).await?;
            }
            Action::Create(object) => {
                let object =
                    serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
                let params = PostParams {
                    field_manager: Some(FIELD_MANAGER.to_owned()),
                    ..PostParams::default()
                };
                match api.create(&params, &object).await {
                    Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
                    other => drop(other?),
                }
            }
            Action::Replace { object, is_there } => {
                match self.put_or_post(api, object, *is_there).await {
                    Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {
                        self.replace_as_it_is(api, object).await?;
                    }
                    other => drop(other?),
                }
            }
            Action::Update(object) => {
                let is_there = object["metadata"]["resourceVersion"].is_string();
                let answer = self.put_or_post(api, object, is_there).await?;
                let answer: Value =
                    serde_json::from_str(&answer).map_err(kube::Error::SerdeError)?;
                return Ok(answer["metadata"]["resourceVersion"].as_str().map(str::to_owned));
            }
            Action::Restrict(rules) => {
                let Some(current) = api.get_opt(&self.name).await? else { return Ok(None) };
                let mut slice = serde_json::to_value(current).map_err(kube::Error::SerdeError)?;
                if restrict(&mut slice, rules) {
                    self.put_or_post(api, &slice, true).await?;
                }
            }
            Action::ApplyStatus(object) => {
                api.patch_status(&self.name, &params(true), &Patch::Apply(object)).await?;
            }
            Action::ApplyCondition(object) => {
                let manager = Some(format!("{FIELD_MANAGER}-condition"));
                let params = PatchParams { field_manager: manager, ..params(true) };
                api.patch_status(&self.name, &params, &Patch::Apply(object)).await?;
            }
            Action::MergeStatus(status) => {
                let object = json!({ "status": status });
                api.patch_status(&self.name, &params(false), &Patch::Merge(object)).await?;
            }
            Action::Delete { uid } => {
                let preconditions =
                    uid.clone().map(|uid| Preconditions { uid: Some(uid), resource_version: None });
                let params = DeleteParams { preconditions, ..DeleteParams::default() };
                match api.delete(&self.name, &params).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    other => drop(other?),
                }
            }
        }
        Ok(None)
    }

    /// The object was absent, or had another version: the watch can be late.
    async fn replace_as_it_is(&self, api: &Api<DynamicObject>, object: &Value) -> kube::Result<()> {
        let current = api.get_metadata_opt(&self.name).await?;
        let mut object = object.clone();
        // API servers replace built-in types without a version, and their own types only with one.
        if let Some(version) = object["metadata"].get_mut("resourceVersion") {
            *version =
                json!(current.as_ref().and_then(|one| one.metadata.resource_version.clone()));
        }
        self.put_or_post(api, &object, current.is_some()).await.map(drop)
    }

    /// Replaces or creates the object. The replacement clears `managedFields`
    /// (<https://kubernetes.io/docs/reference/using-api/server-side-apply/#clearing-managedfields>), a seventh of the bytes
    /// that each node gets with a change of 100 endpoints.
    async fn put_or_post(
        &self,
        api: &Api<DynamicObject>,
        object: &Value,
        is_there: bool,
    ) -> kube::Result<String> {
        let params =
            PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let requests = kube::core::Request::new(api.resource_url());
        let request = if is_there {
            let mut object = object.clone();
            object["metadata"]["managedFields"] = json!([{}]);
            requests.replace(&self.name, &params, object.to_string().into_bytes())
        } else {
            requests.create(&params, object.to_string().into_bytes())
        };
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        request.headers_mut().insert(ACCEPT, METADATA);
        api.clone().into_client().request_text(request).await
    }
}

/// What API servers say with status 500 of an object that they never take: its type lacks a field or has a key twice, or
/// etcd finds it too large.
const REFUSALS_AS_TROUBLE: [&str; 4] = [
    "failed to create typed patch object",
    "not declared in schema",
    "request is too large",
    "message larger than max",
];

impl ApplyError {
    /// Whether the API server refuses the object itself: it is invalid or too large, or a quota or a webhook forbids it.
    /// Errors of credentials and conflicts of writers do not count, and neither does an API server that is in trouble itself.
    pub fn is_refusal(&self) -> bool {
        let Self::Refused(kube::Error::Api(status)) = self else { return false };
        match status.code {
            401 | 404 | 408 | 409 | 429 => false,
            500.. => REFUSALS_AS_TROUBLE.iter().any(|words| status.message.contains(words)),
            _ => true,
        }
    }

    /// Whether the API server has no time for the request, and asks for another attempt.
    pub fn is_overload(&self) -> bool {
        matches!(self, Self::Refused(kube::Error::Api(status)) if status.code == 429)
    }

    /// Whether another writer has changed the object meanwhile.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused(kube::Error::Api(status)) if status.code == 409)
    }

    /// Whether the controller lacks a right.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Refused(kube::Error::Api(status)) if status.code == 403)
    }

    /// Whether a quota has no room for another object.
    pub fn is_of_quota(&self) -> bool {
        let Self::Refused(kube::Error::Api(status)) = self else { return false };
        status.code == 403 && status.message.contains("exceeded quota")
    }

    /// Whether the API server's definition of the type lacks a field.
    pub fn is_unknown_field(&self, field: &str) -> bool {
        let Self::Refused(kube::Error::Api(status)) = self else { return false };
        status.message.contains(field) && status.message.contains("not declared in schema")
    }
}

/// The API server's own words.
fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => one_line(&status.message),
        other => one_line(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn an_api_server_in_trouble_refuses_nothing() {
        for (code, message, is_refusal) in [
            (422, "spec.ports: Invalid value", true),
            (403, "exceeded quota: pods, requested: 1, used: 3, limited: 3", true),
            (403, "admission webhook \"a.example\" denied the request: no", true),
            (413, "limit is 3145728", true),
            (
                500,
                "failed to create typed patch object (a/b; v1): .spec.x: field not declared in schema",
                true,
            ),
            (500, ".status.conditions: field not declared in schema", true),
            (500, "etcdserver: request is too large", true),
            (
                500,
                "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2 vs. 1)",
                true,
            ),
            (500, "etcdserver: leader changed", false),
            (
                500,
                "Internal error occurred: failed calling webhook \"a.example\": context deadline exceeded",
                false,
            ),
            (502, "bad gateway", false),
            (503, "the server is currently unable to handle the request", false),
            (504, "etcdserver: request timed out", false),
            (429, "too many requests", false),
            (409, "the object has been modified", false),
        ] {
            let status = Status { code, message: message.to_owned(), ..Status::default() };
            let error = ApplyError::Refused(kube::Error::Api(Box::new(status)));
            assert_eq!(error.is_refusal(), is_refusal, "{code} {message}");
        }
    }
}
