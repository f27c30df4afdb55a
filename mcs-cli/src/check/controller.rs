//! Whether the controller runs: by the Lease of its mailbox, or by what is known here of a mailbox on a hub.

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use mcs_controller::core::{clusterset::well_known, peers::token::TokenClaims};
use mcs_kube::reasons::{Coded as _, Reason};
use serde_json::Value;

use super::CheckCommand;
use crate::{
    cluster::{Cluster, DEPLOYMENTS, EXPORTS, LEASES, SECRETS, containers},
    status,
};

/// The greatest age of a publisher's Lease, in seconds, with a margin for clocks.
const OLDEST_LEASE: i64 = 60;

/// The flag of a controller whose mailbox is on a hub.
const MAILBOX_SECRET: &str = "--mailbox-secret";

/// No controller writes any more.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(super) struct Silent {
    what: String,
    /// When one did.
    pub(super) since: String,
}

/// The namespace in which a cluster publishes; none if its mailbox is on a hub.
pub(super) async fn mailbox<'a>(cluster: &Cluster, command: &'a CheckCommand) -> Option<&'a str> {
    let namespace = Some(&*command.probe.namespace);
    let deployment = cluster.get(DEPLOYMENTS, namespace, well_known::CONTROLLER).await;
    let is_on_hub = deployment.ok().flatten().is_some_and(|known| has_hub(&known));
    (!is_on_hub && command.mailbox_secret.is_none()).then_some(&command.mailbox)
}

/// Whether the controller runs: by the Lease of the mailbox, or by the leader's Lease if the mailbox is on a hub.
pub(super) async fn check(cluster: &Cluster, command: &CheckCommand) -> anyhow::Result<String> {
    let namespace = &command.probe.namespace;
    let deployment = cluster.get(DEPLOYMENTS, Some(namespace), well_known::CONTROLLER).await;
    let known = deployment.as_ref().ok().and_then(Option::as_ref);
    if command.mailbox_secret.is_some() || known.is_some_and(has_hub) {
        let lease = lease(cluster, namespace, well_known::CONTROLLER).await?;
        ensure_led(&lease)?;
        ensure_renewed(&lease, Timestamp::now())?;
        let named = known.and_then(|known| argument(known, MAILBOX_SECRET));
        return on_hub(cluster, command, named.unwrap_or("mailbox")).await;
    }
    let mailbox = &command.mailbox;
    let lease = match (lease(cluster, mailbox, well_known::PUBLISHER_LEASE).await, deployment) {
        // The mailbox may be on a hub, for all that the caller may read.
        (Err(_), Err(unread)) => return Err(unread),
        (lease, _) => lease?,
    };
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    anyhow::ensure!(
        holder == cluster.id.as_str(),
        "the mailbox {mailbox} is that of cluster {holder:?}: give the clusters different mailboxes"
    );
    ensure_renewed(&lease, Timestamp::now())?;
    let services = &lease["metadata"]["annotations"][well_known::PUBLISHED];
    Ok(format!("it runs; services that it publishes: {}", services.as_str().unwrap_or("0")))
}

/// Checks the mailbox on a hub from within the cluster: by the times of the token, and the conditions of the exports. `named`: the
/// Secret of the Deployment.
async fn on_hub(cluster: &Cluster, command: &CheckCommand, named: &str) -> anyhow::Result<String> {
    let silent = cluster.list(EXPORTS).await?;
    let silent = silent.iter().find_map(|export| {
        status::condition(export, "Ready")
            .filter(|ready| ready["reason"] == Reason::NotRenewed.name())
    });
    if let Some(silent) = silent {
        let message = silent["message"].as_str().unwrap_or_default();
        bail!("it runs, and cannot renew the Lease of its mailbox on the hub: {message}");
    }
    let name = command.mailbox_secret.as_deref().unwrap_or(named);
    // A caller without the right to read Secrets gets the other results.
    let secret = cluster.get(SECRETS, Some(&command.probe.namespace), name).await.ok().flatten();
    match secret.as_ref().and_then(TokenClaims::of_secret) {
        Some(token) => mailbox_token(&token, name, Timestamp::now()),
        None => Ok("it runs; its mailbox is on a hub".to_owned()),
    }
}

fn mailbox_token(token: &TokenClaims, secret: &str, now: Timestamp) -> anyhow::Result<String> {
    let TokenClaims { namespace, expires, .. } = token;
    anyhow::ensure!(
        *expires > now,
        "the token in Secret {secret}, with which it publishes on a hub, expired at {expires}: run `mcs \
         link --hub` again"
    );
    Ok(format!(
        "it runs; its mailbox is namespace {namespace} of a hub, and its token expires at {expires} unless it is renewed"
    ))
}

/// Whether the mailbox is on a hub, by the Deployment.
fn has_hub(deployment: &Value) -> bool {
    arguments(deployment).any(|argument| {
        argument.starts_with(MAILBOX_SECRET) || argument.starts_with("--mailbox-kubeconfig")
    })
}

/// The value of a flag, if a Deployment gives it.
fn argument<'a>(deployment: &'a Value, flag: &str) -> Option<&'a str> {
    arguments(deployment).find_map(|argument| argument.strip_prefix(flag)?.strip_prefix('='))
}

/// The arguments of a Deployment's containers.
pub(crate) fn arguments(deployment: &Value) -> impl Iterator<Item = &str> {
    let arguments = containers(deployment).filter_map(|one| one["args"].as_array());
    arguments.flatten().filter_map(Value::as_str)
}

async fn lease(cluster: &Cluster, namespace: &str, name: &str) -> anyhow::Result<Value> {
    cluster.get(LEASES, Some(namespace), name).await?.with_context(|| {
        format!("there is no Lease {namespace}/{name}: is the controller installed and running?")
    })
}

fn ensure_led(lease: &Value) -> anyhow::Result<()> {
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    anyhow::ensure!(
        !holder.is_empty(),
        Silent {
            what: "no replica of the controller writes: see its log".to_owned(),
            since: lease["spec"]["renewTime"].as_str().unwrap_or("some time").to_owned(),
        }
    );
    Ok(())
}

pub(super) fn ensure_renewed(lease: &Value, now: Timestamp) -> anyhow::Result<()> {
    let renewed = lease["spec"]["renewTime"].as_str().and_then(|text| text.parse().ok());
    let renewed: Timestamp = renewed.context("the Lease of the controller has no time")?;
    let age = now.as_second() - renewed.as_second();
    anyhow::ensure!(
        age <= OLDEST_LEASE,
        Silent {
            what: format!("the controller has not renewed its Lease for {age} s: see its log"),
            since: renewed.to_string(),
        }
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Args as _;
    use mcs_kube::{testing::ScriptedAnswer, told};
    use serde_json::json;

    use super::*;
    use crate::cluster::tests::{object, scripted};

    #[test]
    fn a_deployment_says_whether_the_mailbox_is_on_a_hub() {
        let deployment = |argument: &str| {
            let containers = json!([{"name": "sidecar"}, {"args": ["run", argument]}]);
            json!({"spec": {"template": {"spec": {"containers": containers}}}})
        };
        assert!(has_hub(&deployment("--mailbox-secret=mailbox")));
        assert!(has_hub(&deployment("--mailbox-kubeconfig=/hub.conf")));
        let named = deployment("--mailbox-secret=mine");
        assert_eq!(argument(&named, MAILBOX_SECRET), Some("mine"));
        assert!(!has_hub(&deployment("--mailbox=mcs-mailbox")));
        assert!(!has_hub(&json!({})));
    }

    #[test]
    fn the_token_of_a_mailbox_on_a_hub_is_looked_at() {
        let expires: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let token = TokenClaims {
            namespace: "mcs-east".to_owned(),
            account: "publisher".to_owned(),
            issued: Timestamp::UNIX_EPOCH,
            expires,
        };
        let at = |seconds| {
            mailbox_token(&token, "mailbox", expires + jiff::SignedDuration::from_secs(seconds))
        };
        assert!(at(-1).unwrap().contains("namespace mcs-east of a hub"));
        assert!(at(0).unwrap_err().to_string().contains("link --hub"));
    }

    #[test]
    fn a_lease_that_nobody_renews_says_for_how_long() {
        let lease = json!({"spec": {"renewTime": "2026-01-02T03:04:05.000000Z"}});
        let after = |seconds| {
            let renewed: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
            ensure_renewed(&lease, renewed + jiff::SignedDuration::from_secs(seconds))
        };
        assert!(after(OLDEST_LEASE).is_ok());
        assert!(after(86_400).unwrap_err().to_string().contains("86400 s"));
        let since = |error: &anyhow::Error| error.downcast_ref::<Silent>().unwrap().since.clone();
        assert_eq!(since(&after(86_400).unwrap_err()), "2026-01-02T03:04:05Z");
        let left = json!({"spec": {"renewTime": "2026-01-02T03:04:05Z", "holderIdentity": ""}});
        assert_eq!(since(&ensure_led(&left).unwrap_err()), "2026-01-02T03:04:05Z");
    }

    #[tokio::test]
    async fn who_may_not_see_the_controller_does_not_learn_that_there_is_none() {
        let command = CheckCommand::augment_args(clap::Command::new("check"));
        let command = command.try_get_matches_from(["check"]).unwrap();
        let command = <CheckCommand as clap::FromArgMatches>::from_arg_matches(&command).unwrap();
        let of = async |answers: Vec<ScriptedAnswer>| {
            let (cluster, _server, _file) = scripted("east", answers).await;
            check(&cluster, &command).await.map_err(|error| told(&error))
        };
        let absent = || ScriptedAnswer::error(404);
        let error = of(vec![absent(), absent()]).await.unwrap_err();
        assert!(error.contains("is the controller installed"), "{error}");
        let error = of(vec![ScriptedAnswer::error(403), absent()]).await.unwrap_err();
        assert!(error.contains("Deployment mcs-controller"), "{error}");
        let now = Timestamp::now().to_string();
        let lease = json!({"spec": {"holderIdentity": "east", "renewTime": now}});
        let runs = of(vec![ScriptedAnswer::error(403), object(lease)]).await.unwrap();
        assert!(runs.starts_with("it runs"), "{runs}");
    }
}
