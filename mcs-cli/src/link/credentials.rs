//! Accounts in mailboxes, and the Secrets with their tokens.

use clap::Args;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::{Mailbox, former, joined};
use crate::cluster::{ACCOUNTS, BINDINGS, Cluster, ROLES, SECRETS};
use mcs_controller::core::{
    clusterset::{ClusterId, well_known},
    peers::token::{TokenClaims, token_for},
};

/// How long a token lives: 90 days.
const TOKEN_SECONDS: i64 = 7_776_000;

/// The life of tokens.
#[derive(Debug, Args)]
pub(super) struct TokenArgs {
    /// How long a token lives, in seconds; 90 days by default. The controllers renew tokens at a third of that time, so a
    /// cluster can be away for the other two thirds
    #[arg(long, value_name = "SECONDS", default_value_t = TOKEN_SECONDS,
        value_parser = clap::value_parser!(i64).range(600..))]
    pub(super) token_seconds: i64,
}

impl Default for TokenArgs {
    fn default() -> Self {
        Self { token_seconds: TOKEN_SECONDS }
    }
}

/// The terms of an account.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
    /// The URL by which others reach the API server with the mailbox. `None`: the URL of its kubeconfig.
    pub(super) server: Option<&'a str>,
    /// How long its token lives.
    pub(super) seconds: i64,
    /// Whether to end earlier tokens of the account.
    pub(super) is_anew: bool,
}

/// A kubeconfig with a token of an account of a mailbox.
pub(super) struct Credentials {
    pub(super) kubeconfig: Value,
    /// `NAMESPACE/NAME` of the account.
    pub(super) account: String,
    /// The cluster with the mailbox, or the hub.
    host: ClusterId,
    /// Whether the URL was given.
    is_server_given: bool,
    /// Whether earlier tokens of the account have ended.
    is_anew: bool,
    pub(super) warning: Option<String>,
}

impl Credentials {
    /// Creates an account in a mailbox, with a Role of the mailbox, and gets a token.
    pub(super) async fn make(
        mailbox: &Mailbox<'_>,
        account: &str,
        role: &str,
        terms: Terms<'_>,
    ) -> anyhow::Result<Self> {
        let Mailbox { host, namespace } = mailbox;
        if terms.is_anew {
            // A token is bound to the uid of its account.
            host.delete(ACCOUNTS, Some(namespace), account).await?;
        }
        give_rights(mailbox, account, role).await?;
        let token = match &host.draft {
            Some(_) => String::new(),
            None => token_for(host.client().await?, namespace, account, terms.seconds).await?,
        };
        let server = terms.server.unwrap_or(&host.server);
        let (authority, server_name) = (host.authority.as_deref(), host.server_name.as_deref());
        let claims = TokenClaims::of_token(&token);
        let shorter = claims.and_then(|claims| shorter_life(terms.seconds, claims.seconds()));
        Ok(Self {
            kubeconfig: kubeconfig(server, authority, server_name, &token),
            account: format!("{namespace}/{account}"),
            host: host.id.clone(),
            is_server_given: terms.server.is_some(),
            is_anew: terms.is_anew,
            warning: shorter.map(|shorter| {
                format!(
                    "the token of ServiceAccount {namespace}/{account} of cluster {} {shorter}",
                    host.id
                )
            }),
        })
    }

    /// The credentials in an invitation of the cluster `host`.
    pub(super) fn of_invitation(kubeconfig: Value, account: String, host: ClusterId) -> Self {
        Self { kubeconfig, account, host, is_server_given: true, is_anew: false, warning: None }
    }

    fn claims(&self) -> Option<TokenClaims> {
        TokenClaims::of(&self.kubeconfig.to_string())
    }

    /// When the token expires.
    pub(super) fn expires(&self) -> Option<String> {
        self.claims().map(|claims| claims.expires.to_string())
    }

    /// Stores the kubeconfig in a Secret of a cluster. Returns a note if the Secret keeps its URL, or its newer token.
    pub(super) async fn store(
        &self,
        reader: &Cluster,
        mut secret: Value,
        former: Option<&Value>,
    ) -> anyhow::Result<Option<String>> {
        let (id, host) = (&reader.id, &self.host);
        let name = secret["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if let Some(draft) = &reader.draft {
            let namespace = secret["metadata"]["namespace"].as_str().unwrap_or_default();
            draft.comment(&format!(
                "Not here, since it holds a token: Secret {namespace}/{name}, a kubeconfig of ServiceAccount {} in cluster {host}. `mcs invite {id}` \
                 there prints it, and `mcs join` stores it here",
                self.account
            ));
            return Ok(None);
        }
        let claims = self.claims();
        let had = former.and_then(TokenClaims::of_secret);
        if let (Some(had), Some(now)) = (had, &claims)
            && (&had.namespace, &had.account) == (&now.namespace, &now.account)
            && had.issued > now.issued
            && !self.is_anew
        {
            return Ok(Some(format!(
                "the Secret {name} of cluster {id} keeps its token, which is newer"
            )));
        }
        let mut kubeconfig = self.kubeconfig.clone();
        let namespace = claims.map(|claims| claims.namespace).unwrap_or_default();
        let kept = former.filter(|_| !self.is_server_given);
        let kept = kept.and_then(|former| former::server(former, &kubeconfig, &namespace));
        if let Some(url) = &kept {
            kubeconfig["clusters"][0]["cluster"]["server"] = json!(url);
        }
        secret["data"]["kubeconfig"] = json!(ByteString(kubeconfig.to_string().into_bytes()));
        reader.apply(SECRETS, secret).await?;
        let kept = kept.map(|url| {
            format!("the Secret {name} of cluster {id} keeps the URL {url}: to change it, give --server {host}=URL")
        });
        Ok(joined(kept, self.warning.clone()))
    }
}

/// A Secret of a controller, without its kubeconfig.
pub(super) fn kubeconfig_secret(namespace: &str, name: &str) -> Value {
    let labels = json!({well_known::MANAGED_BY: well_known::CONTROLLER});
    json!({
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "type": "Opaque",
        "data": {},
    })
}

/// The warning about a token with a shorter life than requested. The API server rounds a little.
fn shorter_life(asked: i64, seconds: i64) -> Option<String> {
    (seconds + 60 < asked).then(|| {
        format!(
            "lives for {seconds} s and not for {asked} s, as its API server gives none that lives longer \
             (--service-account-max-token-expiration): after an outage of {} s, `link` has to run again",
            seconds - seconds / 3
        )
    })
}

/// The Role with which an account renews its own token.
fn renewal_role(account: &str) -> String {
    format!("mcs-renew-token-{account}")
}

/// Creates a ServiceAccount with a Role in a mailbox. The account may also get its own tokens.
async fn give_rights(mailbox: &Mailbox<'_>, account: &str, role: &str) -> anyhow::Result<()> {
    let Mailbox { host, namespace } = mailbox;
    let labels = json!({well_known::MANAGED_BY: well_known::CONTROLLER});
    let metadata = |name: &str| json!({"namespace": namespace, "name": name, "labels": labels});
    host.apply(ACCOUNTS, json!({"metadata": metadata(account)})).await?;
    let renewal = renewal_role(account);
    let renews = json!({
        "apiGroups": [""], "resources": ["serviceaccounts/token"],
        "resourceNames": [account], "verbs": ["create"],
    });
    host.apply(ROLES, json!({"metadata": metadata(&renewal), "rules": [renews]})).await?;
    for (name, role) in [(account, role), (&*renewal, &*renewal)] {
        let binding = json!({
            "metadata": metadata(name),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        });
        host.apply(BINDINGS, binding).await?;
    }
    Ok(())
}

pub(super) fn kubeconfig(
    server: &str,
    authority: Option<&str>,
    server_name: Option<&str>,
    token: &str,
) -> Value {
    let mut cluster = json!({"server": server});
    for (field, value) in
        [("certificate-authority-data", authority), ("tls-server-name", server_name)]
    {
        if let Some(value) = value {
            cluster[field] = json!(value);
        }
    }
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "peer",
        "contexts": [{"name": "peer", "context": {"cluster": "peer", "user": "reader"}}],
        "clusters": [{"name": "peer", "cluster": cluster}],
        "users": [{"name": "reader", "user": {"token": token}}],
    })
}

/// Deletes a ServiceAccount and its rights.
pub(super) async fn take_rights(mailbox: &Mailbox<'_>, account: &str) -> anyhow::Result<()> {
    let Mailbox { host, namespace } = mailbox;
    let renewal = renewal_role(account);
    for name in [account, &renewal] {
        host.delete(BINDINGS, Some(namespace), name).await?;
    }
    host.delete(ROLES, Some(namespace), &renewal).await?;
    host.delete(ACCOUNTS, Some(namespace), account).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_in_the_certificate_is_kept() {
        let cluster = |server_name| {
            kubeconfig("https://10.0.0.1:6443", None, server_name, "token")["clusters"][0]["cluster"].clone()
        };
        assert_eq!(cluster(None), json!({"server": "https://10.0.0.1:6443"}));
        assert_eq!(cluster(Some("east.example"))["tls-server-name"], "east.example");
    }

    #[test]
    fn an_api_server_that_gives_shorter_tokens_is_told() {
        assert_eq!(shorter_life(7_776_000, 7_775_999), None);
        let told = shorter_life(7_776_000, 86_400).unwrap();
        assert!(told.contains("an outage of 57600 s"), "{told}");
    }
}
