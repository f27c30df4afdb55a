//! Credentials of peers: Secrets that somebody replaces, and tokens that the reader renews.

use std::{
    collections::BTreeSet,
    thread::sleep,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, bail, ensure};
use mcs_tests::{
    api_server::{ISSUER, documents},
    suite::{Suite, tell},
    wait,
};
use serde_json::{Value, json};

use crate::{
    clients::meanwhile,
    cluster::{Cluster, conditions},
    controller::{self, MAILBOX, NAMESPACE},
    objects::namespaced,
    peering,
    silence::{follows_again, imported_service, stays},
    world::{POD_RANGES, World},
};

/// How soon the controller notices that an account is gone: its API server forgets the account's token after 10 s, and the watch
/// of the Lease starts again after 30 s at the latest.
const NOTICED: Duration = Duration::from_secs(45);
/// How much longer the tokens are valid that a controller finds: it has to get others.
const REST: i64 = 10;
/// The shortest life of a token that an API server makes.
const LIFE: i64 = 600;

const DAYS_90: u64 = 90 * 24 * 3600;
/// An example, for the audience of most clusters.
const TOKENS: &str = include_str!("../../../../deploy/examples/mailbox-tokens.yaml");
const AUDIENCE: &str = "https://kubernetes.default.svc.cluster.local";

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("tokens of a mailbox are for its API server and 90 days", bounded_tokens);
    suite.case("a token of a mailbox reads it, and nothing else", reads_its_mailbox_alone);
    suite.case("a token that expires soon", meanwhile(renewed));
    suite.case("a new cluster is linked, and the links of the others stay", newcomer);
    suite.full("an account that is deleted", meanwhile(deleted));
}

fn bounded_tokens(world: &mut World) -> anyhow::Result<()> {
    let api = world.first().api();
    let mut account = namespaced("v1", "ServiceAccount", MAILBOX, "bounded");
    api.apply(&account)?;
    let token = |account: &Value, seconds: u64, audience: &[&str]| {
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": { "expirationSeconds": seconds, "audiences": audience },
        });
        api.create_below(account, "token", &request)
    };
    token(&account, 2 * DAYS_90, &["vault"])?;
    let policy = documents(&TOKENS.replace(AUDIENCE, ISSUER))?;
    api.apply_all(&policy)?;
    for (seconds, audience, reason) in [
        (DAYS_90 + 1, &[][..], "live for 90 days at most"),
        (3600, &["vault"], "for its API server alone"),
        (3600, &[ISSUER, "vault"], "for its API server alone"),
    ] {
        wait::until("a refusal by the policy", || match token(&account, seconds, audience) {
            Err(error) if format!("{error:#}").contains(reason) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => bail!("{seconds} s for {audience:?}"),
        })?;
    }
    token(&account, DAYS_90, &[])?;
    token(&account, 3600, &[ISSUER])?;
    api.delete(&account)?;
    account["metadata"]["namespace"] = json!(NAMESPACE);
    api.apply(&account)?;
    token(&account, 3600, &["vault"])?;
    api.delete(&account)?;
    policy.iter().try_for_each(|object| api.delete(object))
}

/// Whoever has stolen the token that another cluster reads with.
fn reads_its_mailbox_alone(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    let (first, second) = (world.first(), world.second());
    let thief = first.account(MAILBOX, second.id)?;
    let own = "/apis/clusterset.mcs-agent.io/v1alpha1";
    let exported = format!("{own}/namespaces/{MAILBOX}/exportedservices");
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{MAILBOX}/endpointslices");
    for path in [&exported, &slices] {
        let found = thief.get(path)?;
        ensure!(found["items"].as_array().is_some_and(|items| !items.is_empty()), "{found}");
    }
    let refused = |path: &str, answer: anyhow::Result<()>| {
        let answer = answer.err().with_context(|| format!("it may: {path}"))?;
        ensure!(format!("{answer:#}").contains("forbidden"), "{path}: {answer:#}");
        Ok(())
    };
    for path in [
        "/api/v1/nodes".to_owned(),
        format!("/api/v1/namespaces/{MAILBOX}/secrets"),
        format!("/api/v1/namespaces/{NAMESPACE}/secrets"),
        format!("{own}/clusterpeers"),
        format!("/api/v1/namespaces/{namespace}/services"),
        format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"),
        "/apis/discovery.k8s.io/v1/endpointslices".to_owned(),
    ] {
        refused(&path, thief.get(&path).map(drop))?;
    }
    for (path, version, kind) in [
        (&exported, "clusterset.mcs-agent.io/v1alpha1", "ExportedService"),
        (&slices, "discovery.k8s.io/v1", "EndpointSlice"),
    ] {
        let mut object = first.api().get(path)?["items"][0].take();
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        refused("a change", thief.replace(&object))?;
        refused("a deletion", thief.delete(&object))?;
    }
    follows_again(world, &namespace, &before)
}

/// `link NEW --with OTHERS` makes credentials for the new cluster and of it, and the others keep theirs.
fn newcomer(world: &mut World) -> anyhow::Result<()> {
    world.add_third()?;
    let [first, second, third] = [0, 1, 2].map(|place| &world.clusters[place]);
    let of = |reader: &Cluster, peer: &str| -> anyhow::Result<[Value; 2]> {
        let secret = format!("/api/v1/namespaces/{NAMESPACE}/secrets/peer-{peer}");
        let peer = format!("/apis/clusterset.mcs-agent.io/v1alpha1/clusterpeers/{peer}");
        let [mut secret, mut peer] = [reader.api().get(&secret)?, reader.api().get(&peer)?];
        Ok([secret["data"].take(), peer["spec"].take()])
    };
    let [old, new] = [of(first, "c2")?, of(first, "c3")?];
    let mut link = controller::command_line(world.control.netns())?;
    link.arg("link").arg(third.administrator()?).arg("--with");
    link.args([first.administrator()?, second.administrator()?]);
    link.arg(format!("--pod-cidr=c3={}", POD_RANGES[2])).args(["-o", "json"]);
    let output = link.output()?;
    let done: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let pairs: BTreeSet<(&str, &str)> = done
        .as_array()
        .context("a list")?
        .iter()
        .filter_map(|one| Some((one["reader"].as_str()?, one["publisher"].as_str()?)))
        .collect();
    let expected = [("c1", "c3"), ("c2", "c3"), ("c3", "c1"), ("c3", "c2")];
    ensure!(output.status.success() && pairs == BTreeSet::from(expected), "{done}");
    ensure!(of(first, "c2")? == old, "the link of c1 with c2 was changed");
    ensure!(of(first, "c3")?[0] != new[0], "c1 has the former credentials for c3");
    // Nobody has said which pods c1 and c2 have: their peers know.
    let ranges = of(third, "c1")?[1]["podCIDRs"].take();
    ensure!(ranges == json!([POD_RANGES[0]]), "{ranges}");
    let (namespace, before) = imported_service(world)?;
    follows_again(world, &namespace, &before)
}

/// An API server checks an account when a watch starts, and remembers the answer for 10 s.
fn deleted(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    let (first, second) = (world.first(), world.second());
    let path = format!("/api/v1/namespaces/{MAILBOX}/serviceaccounts/{}", second.id);
    first.api().delete(&first.api().get(&path)?)?;
    let begin = Instant::now();
    unreadable(world)?;
    tell(format!("{} s from the deletion to the condition", begin.elapsed().as_secs()));
    stays(world, &namespace, &before)?;
    peering::store_credentials(second, "peer-c1", &first.credentials_for(second.id)?)?;
    follows_again(world, &namespace, &before)
}

/// Waits until the second cluster says that it cannot read the first one.
fn unreadable(world: &World) -> anyhow::Result<()> {
    wait::within(NOTICED, "a peer that cannot be read", || {
        let path = "/apis/clusterset.mcs-agent.io/v1alpha1/clusterpeers/c1";
        let found = conditions(&world.second().api().get(path)?);
        ensure!(found.iter().any(|one| one == "Connected=False/Unreadable"), "{found:?}");
        Ok(())
    })
}

/// The token in the Secret of the second cluster.
fn token(world: &World) -> anyhow::Result<String> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/peer-c1");
    let secret = world.second().api().get(&path)?;
    let data: k8s_openapi::ByteString =
        serde_json::from_value(secret["data"]["kubeconfig"].clone())?;
    let kubeconfig: Value = serde_json::from_slice(&data.0)?;
    let token = kubeconfig["users"][0]["user"]["token"].as_str().context("no token")?;
    Ok(token.to_owned())
}

fn renewed(world: &mut World) -> anyhow::Result<()> {
    let (namespace, before) = imported_service(world)?;
    let (first, second) = (world.first(), world.second());
    let account = first.api().get(&format!("/api/v1/namespaces/{MAILBOX}/serviceaccounts/c2"))?;
    let expired = Instant::now() + Duration::from_secs(REST.unsigned_abs());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    let now = i64::try_from(now)?;
    let old = first.server.token(&account, now + REST - LIFE, now + REST)?;
    peering::store_credentials(second, "peer-c1", &first.kubeconfig(&old)?)?;
    wait::until("another token", || {
        ensure!(token(world)? != old, "it is the old one");
        Ok(())
    })?;
    sleep(expired.saturating_duration_since(Instant::now()));
    stays(world, &namespace, &before)?;
    world.clusters[1].controller.restart()?;
    stays(world, &namespace, &before)?;
    follows_again(world, &namespace, &before)?;
    // Later cases need one for longer.
    let good = world.first().credentials_for(world.second().id)?;
    peering::store_credentials(world.second(), "peer-c1", &good)
}
