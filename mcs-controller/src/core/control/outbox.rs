//! The API server with this cluster's own mailbox: its own, or a hub.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use mcs_kube::{ApiAccess, KubeconfigContent, KubeconfigFile, told};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{Settings, connection};
use crate::core::{
    objects::SecretReference,
    peers::token::TokenClaims,
    status::{Failures, Turn},
};

/// The pause before the start retries a read.
const RETRY: Duration = Duration::from_secs(2);
/// The time limit of a read.
const LIMIT: Duration = Duration::from_secs(10);

/// The API server with this cluster's own mailbox.
pub(super) struct Outbox {
    pub(super) access: Arc<ApiAccess>,
    /// Whether that is this cluster's API server.
    is_at_home: bool,
    /// The kubeconfig, if it comes from a Secret, and that Secret.
    secret: Option<(SecretReference, watch::Sender<Arc<str>>)>,
    /// The claims of the token in that kubeconfig.
    token: Option<TokenClaims>,
}

impl Outbox {
    /// Waits until there is a kubeconfig that can be used. `own` leads to this cluster.
    pub(super) async fn open(settings: &Settings, own: &Arc<ApiAccess>) -> anyhow::Result<Self> {
        if let Some(file) = &settings.mailbox_kubeconfig {
            let file = KubeconfigFile::new(file.clone(), None);
            let (access, url) = ApiAccess::new(Some(file)).await?;
            tracing::info!("publishing in namespace {} of {url}", settings.mailbox);
            return Ok(Self {
                access: Arc::new(access),
                is_at_home: false,
                secret: None,
                token: None,
            });
        }
        let Some(secret) = settings.mailbox_secret.clone().map(SecretReference::named) else {
            return Ok(Self {
                access: Arc::clone(own),
                is_at_home: true,
                secret: None,
                token: None,
            });
        };
        let open = || open_secret(own, &settings.namespace, &secret);
        let (access, url, content) = until_it_works("publish", open).await;
        tracing::info!("publishing in namespace {} of {url}", settings.mailbox);
        let token = TokenClaims::of(&content.borrow());
        let secret = Some((secret, content));
        Ok(Self { access: Arc::new(access), is_at_home: false, secret, token })
    }

    /// Whether the mailbox is in this cluster.
    pub(super) const fn is_at_home(&self) -> bool {
        self.is_at_home
    }

    /// The Secret with its kubeconfig.
    pub(super) fn secret(&self) -> Option<&SecretReference> {
        self.secret.as_ref().map(|(secret, _)| secret)
    }

    /// The Secret, and the claims of its token.
    pub(super) fn token(&self) -> Option<(&SecretReference, &TokenClaims)> {
        Some((self.secret()?, self.token.as_ref()?))
    }

    /// Uses this kubeconfig from now on.
    pub(super) fn replace(&mut self, kubeconfig: &Arc<str>) {
        let Some((secret, content)) = &self.secret else { return };
        if connection::replace(content, kubeconfig) {
            self.token = TokenClaims::of(kubeconfig);
            tracing::info!("the mailbox has other credentials, of Secret {}", secret.name);
        }
    }
}

/// Retries until the attempt succeeds. Logs each new error.
pub(super) async fn until_it_works<T>(
    what: &str,
    attempt: impl AsyncFn() -> anyhow::Result<T>,
) -> T {
    let mut failures = Failures::default();
    loop {
        let error = match attempt().await {
            Ok(value) => return value,
            Err(error) => told(&error),
        };
        if failures.note((), Some(&error)) == Turn::Fails {
            tracing::warn!("cannot {what}: {error}; trying again");
        }
        sleep(RETRY).await;
    }
}

async fn open_secret(
    own: &ApiAccess,
    namespace: &str,
    secret: &SecretReference,
) -> anyhow::Result<(ApiAccess, String, watch::Sender<Arc<str>>)> {
    let SecretReference { name, key } = secret;
    let secrets: Api<Secret> = Api::namespaced(own.connection().await?.client, namespace);
    let object = timeout(LIMIT, secrets.get(name))
        .await
        .context("the API server does not answer")?
        .with_context(|| format!("Secret {namespace}/{name}"))?;
    let data = object.data.unwrap_or_default().remove(key);
    let bytes = data.with_context(|| format!("Secret {namespace}/{name} has no key {key}"))?;
    let text = String::from_utf8(bytes.0)
        .with_context(|| format!("key {key} of Secret {namespace}/{name}"))?;
    let (sender, content) = watch::channel(Arc::from(text));
    let content = KubeconfigContent { name: format!("Secret {name}"), content };
    let (access, url) = ApiAccess::from_content(content).await?;
    Ok((access, url, sender))
}
