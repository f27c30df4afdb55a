//! Accounts in mailboxes, and the Secrets with their tokens.

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::{LinkCommand, Mailbox, joined, kept};
use crate::cluster::{ACCOUNTS, BINDINGS, Cluster, ROLES, SECRETS};
use mcs_controller::{
    clusterset::well_known,
    peers::token::{TokenClaims, token_for},
};

/// A Secret of a controller, without its kubeconfig.
pub(super) fn kubeconfig_secret(command: &LinkCommand, name: &str) -> Value {
    let labels = json!({well_known::MANAGED_BY: well_known::CONTROLLER});
    json!({
        "metadata": {"namespace": command.link.namespace, "name": name, "labels": labels},
        "type": "Opaque",
        "data": {},
    })
}

/// Stores a kubeconfig with a token of an account of a mailbox as a Secret of a cluster. Returns a note if the Secret keeps
/// the URL of the former one.
pub(super) async fn store_kubeconfig(
    command: &LinkCommand,
    cluster: &Cluster,
    mailbox: &Mailbox<'_>,
    account: &str,
    (mut secret, former): (Value, Option<&Value>),
) -> anyhow::Result<Option<String>> {
    let Mailbox { host, namespace } = mailbox;
    if let Some(draft) = &cluster.draft {
        let name = secret["metadata"]["name"].as_str().unwrap_or_default();
        draft.comment(&format!(
            "Not here, since it holds a token: Secret {}/{name}, with a kubeconfig of ServiceAccount {namespace}/{account} in cluster \
             {}. `mcs link` makes it",
            command.link.namespace, host.id
        ));
        return Ok(None);
    }
    let token = token_for(host.client().await?, namespace, account, command.token_seconds).await?;
    let given = command.server_of(host);
    let kept = former.filter(|_| given.is_none()).and_then(|former| kept::server(former, mailbox));
    let server = given.or(kept.as_ref()).unwrap_or(&host.server);
    let (authority, server_name) = (host.authority.as_deref(), host.server_name.as_deref());
    let kubeconfig = kubeconfig(server, authority, server_name, &token);
    secret["data"]["kubeconfig"] = json!(ByteString(kubeconfig.to_string().into_bytes()));
    let name = secret["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    cluster.apply(SECRETS, secret).await?;
    let (id, host) = (&cluster.id, &host.id);
    let kept = kept.map(|url| {
        format!("the Secret {name} of cluster {id} keeps the URL {url}: to change it, give --server {host}=URL")
    });
    let claims = TokenClaims::of_token(&token);
    let shorter = claims.and_then(|claims| shorter_life(command.token_seconds, claims.seconds()));
    let shorter =
        shorter.map(|shorter| format!("the token in Secret {name} of cluster {id} {shorter}"));
    Ok(joined(kept, shorter))
}

/// What to say of a token that lives shorter than was asked for. The API server rounds a little.
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

/// Makes a ServiceAccount with a Role in a mailbox. It may also get tokens of its own.
pub(super) async fn give_rights(
    mailbox: &Mailbox<'_>,
    account: &str,
    role: &str,
) -> anyhow::Result<()> {
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

/// Takes a ServiceAccount and its rights away.
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
