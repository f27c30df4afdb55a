//! The last refusal that anybody has told of an object.

use mcs_kube::{
    ObjectKey,
    reasons::{Coded as _, Reason, Severity},
};
use serde_json::Value;

use super::facts::View;
use crate::status::text;

/// Conditions of a ClusterPeer that keep nothing from being imported.
const HARMLESS: [&str; 3] = ["PodsReachable", "CIDRsDisjoint", "Compatible"];

/// What the first condition of an object says that is not as it should be.
pub(super) fn refusal(object: &Value) -> Option<String> {
    conditions(object).find(|one| is_refusal(one)).map(said)
}

/// What keeps a cluster from importing from a peer.
pub(super) fn of_peer(view: &View<'_>, source: &str) -> Option<String> {
    let peer = view.peers.as_ref().ok()?.get(source)?;
    let mut all = conditions(peer).filter(|one| !HARMLESS.contains(&&*text(&one["type"])));
    let one = all.find(|one| is_refusal(one))?;
    Some(format!(
        "{} is {}: {} (ClusterPeer of {source} in {})",
        text(&one["type"]),
        text(&one["status"]),
        said(one),
        view.id
    ))
}

/// What was told of an import: by itself, by an Event, or by the ClusterPeer.
pub(super) fn of_import(
    view: &View<'_>,
    key: &ObjectKey,
    import: Option<&Value>,
    source: &str,
) -> Option<String> {
    let own = import.and_then(refusal);
    own.or_else(|| view.event(key)).or_else(|| of_peer(view, source))
}

fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object["status"]["conditions"].as_array().into_iter().flatten()
}

fn is_refusal(condition: &Value) -> bool {
    // Conflicts have several, with commas between.
    let reason = text(&condition["reason"]).split(',').next().unwrap_or_default().to_owned();
    match Reason::ALL.iter().find(|one| reason == **one) {
        Some(reason) => reason.severity() != Severity::Note,
        None => condition["status"] == "False",
    }
}

fn said(condition: &Value) -> String {
    format!("{}: {}", text(&condition["reason"]), text(&condition["message"]))
}
