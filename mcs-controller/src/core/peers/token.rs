//! Tokens of peers: a reader renews its own bound token at a third of its life, and stores the new one.
//!
//! Two thirds of its life remain for outages. The thief of a token can renew it too, until its ServiceAccount is deleted.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::{
        authentication::v1::{TokenRequest, TokenRequestSpec},
        core::v1::{Secret, ServiceAccount},
    },
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use mcs_kube::{ApiAccess, KubeconfigContent};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{sync::watch, time::timeout};

use crate::core::objects::{FIELD_MANAGER, SecretReference};

/// The time limit of a renewal.
const LIMIT: Duration = Duration::from_mins(1);
/// The pause before a token is renewed again.
const RETRY: Duration = Duration::from_secs(30);
/// The shortest life that an API server gives a token, in seconds.
const SHORTEST: i64 = 600;

/// The claims of a token of a ServiceAccount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenClaims {
    /// The namespace of the ServiceAccount.
    pub namespace: String,
    /// The name of the ServiceAccount.
    pub account: String,
    /// When it was issued.
    pub issued: Timestamp,
    /// When it expires.
    pub expires: Timestamp,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    iat: i64,
    exp: i64,
}

impl TokenClaims {
    /// The claims of the token in a kubeconfig. `None`: it has no bound token of a ServiceAccount.
    pub fn of(kubeconfig: &str) -> Option<Self> {
        let config: Value = serde_saphyr::from_str(kubeconfig).ok()?;
        Self::of_token(user(&config)?["token"].as_str()?)
    }

    /// The claims of the token in a Secret that `link` has created.
    pub fn of_secret(secret: &Value) -> Option<Self> {
        let bytes: ByteString =
            serde_json::from_value(secret["data"]["kubeconfig"].clone()).ok()?;
        Self::of(&String::from_utf8(bytes.0).ok()?)
    }

    /// The claims of a token.
    pub fn of_token(token: &str) -> Option<Self> {
        let payload = token.split('.').nth(1)?;
        // A JWT has the alphabet of URLs and no padding.
        let mut base64 = payload.replace('-', "+").replace('_', "/");
        base64.extend(std::iter::repeat_n('=', (4 - base64.len() % 4) % 4));
        let bytes: ByteString = serde_json::from_value(json!(base64)).ok()?;
        let claims: Claims = serde_json::from_slice(&bytes.0).ok()?;
        let mut account = claims.sub.strip_prefix("system:serviceaccount:")?.split(':');
        Some(Self {
            namespace: account.next()?.to_owned(),
            account: account.next()?.to_owned(),
            issued: Timestamp::from_second(claims.iat).ok()?,
            expires: Timestamp::from_second(claims.exp).ok()?,
        })
    }

    /// Its life in seconds.
    pub fn seconds(&self) -> i64 {
        self.expires.as_second() - self.issued.as_second()
    }

    /// When a third of its life is over.
    pub fn due(&self) -> Timestamp {
        // A third of a valid life cannot overflow.
        Timestamp::from_second(self.issued.as_second() + self.seconds() / 3).unwrap_or(self.expires)
    }

    /// Whether a third of its life is over.
    pub fn is_due(&self, now: Timestamp) -> bool {
        now >= self.due()
    }
}

/// When the token in each Secret is renewed.
#[derive(Debug, Default)]
pub struct Renewals {
    /// The earliest time of the next renewal.
    next: HashMap<SecretReference, Instant>,
}

impl Renewals {
    /// Whether to renew this token now. After a failure it is renewed again 30 s later.
    pub fn is_due(
        &mut self,
        secret: &SecretReference,
        token: &TokenClaims,
        clock: Timestamp,
        now: Instant,
    ) -> bool {
        let is_due = token.is_due(clock) && self.next.get(secret).is_none_or(|next| *next <= now);
        if is_due {
            self.next.insert(secret.clone(), now + RETRY);
        }
        is_due
    }

    /// Forgets unused Secrets.
    pub fn retain(&mut self, is_used: impl Fn(&SecretReference) -> bool) {
        self.next.retain(|secret, _| is_used(secret));
    }
}

/// The user of the current context.
fn user(config: &Value) -> Option<&Value> {
    let name = user_name(config)?;
    let users = config["users"].as_array()?;
    users.iter().find(|user| user["name"] == *name).map(|user| &user["user"])
}

fn user_name(config: &Value) -> Option<&Value> {
    let contexts = config["contexts"].as_array()?;
    let current = contexts.iter().find(|context| context["name"] == config["current-context"])?;
    Some(&current["context"]["user"])
}

/// The kubeconfig with another token.
fn with_token(kubeconfig: &str, token: &str) -> anyhow::Result<String> {
    let mut config: Value = serde_saphyr::from_str(kubeconfig)?;
    let name = user_name(&config).context("the kubeconfig has no current user")?.clone();
    let users = config["users"].as_array_mut().context("the kubeconfig has no users")?;
    let user = users.iter_mut().find(|user| user["name"] == name);
    user.context("the kubeconfig lacks the current user")?["user"]["token"] = json!(token);
    Ok(config.to_string())
}

/// The patch of a Secret of this version. The API server refuses it for another version.
fn patch(key: &str, version: &str, content: String) -> Value {
    json!({
        "metadata": {"resourceVersion": version},
        "data": {key: ByteString(content.into_bytes())},
    })
}

/// Gets a new token from the peer with the current one, and stores it in the Secret. `access` leads to this cluster. A
/// Secret of another version stays unchanged.
pub async fn renew(
    access: &ApiAccess,
    namespace: &str,
    secret: &SecretReference,
    version: &str,
    kubeconfig: Arc<str>,
) -> anyhow::Result<Timestamp> {
    let renewal = async {
        let claims = TokenClaims::of(&kubeconfig).context("it has no token of a ServiceAccount")?;
        let token = request(&kubeconfig, &claims, claims.seconds()).await?;
        let expires =
            TokenClaims::of_token(&token).context("the new token cannot be read")?.expires;
        let content = with_token(&kubeconfig, &token)?;
        let patch = patch(&secret.key, version, content);
        let secrets: Api<Secret> = Api::namespaced(access.connection().await?.client, namespace);
        let params =
            PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..Default::default() };
        secrets
            .patch(&secret.name, &params, &Patch::Merge(patch))
            .await
            .with_context(|| format!("cannot store it in Secret {namespace}/{}", secret.name))?;
        Ok(expires)
    };
    timeout(LIMIT, renewal).await.context("the API server does not answer")?
}

async fn request(kubeconfig: &Arc<str>, claims: &TokenClaims, life: i64) -> anyhow::Result<String> {
    let (_keep, content) = watch::channel(Arc::clone(kubeconfig));
    let content = KubeconfigContent { name: "the peer".to_owned(), content };
    let (peer, _) = ApiAccess::from_content(content).await?;
    let client = peer.connection().await?.client;
    token_for(client, &claims.namespace, &claims.account, life).await
}

/// A new token of a ServiceAccount with this life in seconds.
pub async fn token_for(
    client: kube::Client,
    namespace: &str,
    account: &str,
    life: i64,
) -> anyhow::Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client, namespace);
    let spec =
        TokenRequestSpec { expiration_seconds: Some(life.max(SHORTEST)), ..Default::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let answer = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await
        .with_context(|| format!("cannot get a token of ServiceAccount {namespace}/{account}"))?;
    let token = answer.status.and_then(|status| status.token).filter(|token| !token.is_empty());
    token.context("the API server gives an empty token")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `{"sub":"system:serviceaccount:mcs-mailbox:east","iat":1000,"exp":4600}`, in the alphabet of URLs.
    const TOKEN: &str = "e30.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6bWNzLW1haWxib3g6ZWFzdCIsImlhdCI6MTAwMCwiZXhwIjo0NjAwfQ.c2ln";

    fn kubeconfig(user: &Value) -> String {
        json!({
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "users": [{"name": "other", "user": {}}, {"name": "u", "user": user}],
        })
        .to_string()
    }

    #[test]
    fn a_token_is_due_at_a_third_of_its_life() {
        let claims = TokenClaims::of(&kubeconfig(&json!({"token": TOKEN}))).unwrap();
        assert_eq!((&*claims.namespace, &*claims.account), ("mcs-mailbox", "east"));
        assert_eq!(claims.seconds(), 3600);
        let at = |second| claims.is_due(Timestamp::from_second(second).unwrap());
        assert!(!at(2199) && at(2200) && at(9999));
        assert_eq!(claims.due().as_second(), 2200);
    }

    /// An API server that gives tokens of ten minutes, and is away for some minutes again and again.
    #[test]
    fn no_token_expires_within_an_hour() {
        let (secret, begin) = (SecretReference::named("peer-east".to_owned()), Instant::now());
        let mut renewals = Renewals::default();
        let issue = |second| TokenClaims {
            namespace: "mcs-mailbox".to_owned(),
            account: "east".to_owned(),
            issued: Timestamp::from_second(second).unwrap(),
            expires: Timestamp::from_second(second + SHORTEST).unwrap(),
        };
        let (mut token, mut requests, mut renewed) = (issue(0), 0, 0);
        for second in 0..3600 {
            let clock = Timestamp::from_second(second).unwrap();
            assert!(clock < token.expires, "it has expired after {second} s");
            let now = begin + Duration::from_secs(second.unsigned_abs());
            if renewals.is_due(&secret, &token, clock, now) {
                requests += 1;
                if second % 900 >= 240 {
                    token = issue(second);
                    renewed += 1;
                }
            }
        }
        assert!(renewed >= 9, "{renewed}");
        assert!(requests - renewed <= 4 * 8, "{requests} requests, every {RETRY:?} at most");
    }

    #[test]
    fn the_token_of_a_secret_is_renewed_once_for_all_who_use_it() {
        let claims = TokenClaims::of(&kubeconfig(&json!({"token": TOKEN}))).unwrap();
        let (clock, now) = (Timestamp::from_second(3000).unwrap(), Instant::now());
        let mut renewals = Renewals::default();
        let mut is_due = |name: &str| {
            renewals.is_due(&SecretReference::named(name.to_owned()), &claims, clock, now)
        };
        assert!(is_due("hub") && !is_due("hub") && is_due("another"));
    }

    #[test]
    fn other_credentials_are_left_as_they_are() {
        for user in [json!({}), json!({"token": "static"}), json!({"token": "a.b.c"})] {
            assert_eq!(TokenClaims::of(&kubeconfig(&user)), None, "{user}");
        }
        assert_eq!(TokenClaims::of("{"), None);
    }

    #[test]
    fn the_rest_of_a_kubeconfig_stays() {
        let text = kubeconfig(&json!({"token": "old", "as": "x"}));
        let new: Value = serde_json::from_str(&with_token(&text, "new").unwrap()).unwrap();
        assert_eq!(new["users"][1]["user"], json!({"token": "new", "as": "x"}));
        assert_eq!(new["users"][0]["user"], json!({}));
    }

    #[test]
    fn a_secret_that_was_replaced_stays() {
        let patch = patch("kubeconfig", "7", "new".to_owned());
        assert_eq!(patch["metadata"], json!({"resourceVersion": "7"}));
        assert_eq!(patch["data"], json!({"kubeconfig": "bmV3"}));
    }
}
