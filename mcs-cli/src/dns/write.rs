//! Writes changed texts to ConfigMaps, field by field, and restarts what does not read them again.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::sources::Source;
use crate::{
    cluster::{CONFIG_MAPS, Cluster, Kind},
    corefile::{self, Corefile},
};

/// The label of a ConfigMap that `mcs` has made.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// A text that changes.
pub(super) struct CorefileChange {
    pub(super) source: Source,
    pub(super) text: String,
    /// Whether it takes out what `mcs` has written.
    is_removal: bool,
}

impl CorefileChange {
    /// # Errors
    /// The API server would refuse it.
    pub(super) fn new(source: &Source, text: String) -> anyhow::Result<Self> {
        ensure!(
            source.config["immutable"] != true,
            "{source} is immutable: let what has made it change the text (deploy/dns)"
        );
        Ok(Self { source: source.clone(), text, is_removal: false })
    }

    /// As [`Self::new`], to take out what `mcs` has written.
    pub(super) fn removal(source: &Source, text: String) -> anyhow::Result<Self> {
        Ok(Self { is_removal: true, ..Self::new(source, text)? })
    }

    /// The annotation of the ConfigMap with the text before the first edit.
    fn annotation(&self) -> String {
        format!("clusterset.mcs-agent.io/{}-before", self.source.key.to_lowercase())
    }

    /// What the annotation has.
    fn original(&self) -> Option<&str> {
        self.source.config["metadata"]["annotations"][self.annotation()].as_str()
    }

    fn has_own(text: &str) -> bool {
        Corefile::parse(text).is_ok_and(|corefile| corefile::is_edited(&corefile))
    }

    /// The new values of the key and of the annotation. `null` takes one away.
    fn values(&self) -> (Value, Value) {
        let former = self.source.text();
        let original = match former {
            // An earlier edit has stored the original.
            Some(text) if Self::has_own(text) => self.original(),
            former => former,
        };
        if Self::has_own(&self.text) {
            return (json!(self.text), json!(original));
        }
        // Nothing of `mcs` is left.
        let is_empty = original.is_none() && self.text.trim().is_empty();
        let is_original = original == Some(self.text.as_str());
        let text = if is_empty { Value::Null } else { json!(self.text) };
        (text, if is_original { Value::Null } else { json!(original) })
    }

    /// What was done, for the operator.
    fn told(&self) -> String {
        let Self { source, .. } = self;
        let annotation = self.annotation();
        match self.values() {
            (Value::Null, _) => format!("took the block out of {source}"),
            _ if self.is_removal && Self::has_own(&self.text) => {
                format!("took a part of the block out of {source}: others have changed the rest")
            }
            (_, Value::Null) if Self::has_own(&self.text) => {
                format!("added the block for clusterset.local to {source}")
            }
            (_, Value::Null) => format!("{source} has its former text again"),
            (..) if Self::has_own(&self.text) => {
                format!(
                    "added the block for clusterset.local to {source}; its annotation {annotation} has the former text"
                )
            }
            (..) => format!(
                "took the block out of {source}; others have changed it since, and its annotation {annotation} has the text before the block"
            ),
        }
    }
}

/// Writes the changes, each ConfigMap at once. A concurrent write of one makes its request fail. Returns what was done.
pub(super) async fn write(
    cluster: &Cluster,
    changes: &[CorefileChange],
) -> anyhow::Result<Vec<String>> {
    let mut maps: BTreeMap<_, Vec<&CorefileChange>> = BTreeMap::new();
    for change in changes {
        maps.entry((&change.source.namespace, &change.source.name)).or_default().push(change);
    }
    for of_map in maps.values() {
        write_map(cluster, of_map).await?;
    }
    let told = changes.iter().map(|change| {
        let manager = change.source.applied_by().map(|manager| {
            format!("; {manager} applies that key too, and may write it again: change it there")
        });
        format!("{}{}", change.told(), manager.unwrap_or_default())
    });
    Ok(told.collect())
}

async fn write_map(cluster: &Cluster, changes: &[&CorefileChange]) -> anyhow::Result<()> {
    let Some(CorefileChange { source, .. }) = changes.first() else { return Ok(()) };
    let Source { namespace, name, config, .. } = source;
    let (mut data, mut annotations) = (Map::new(), Map::new());
    for change in changes {
        let (text, original) = change.values();
        data.insert(change.source.key.clone(), text);
        if !original.is_null() || change.original().is_some() {
            annotations.insert(change.annotation(), original);
        }
    }
    let mut metadata = json!({"namespace": namespace, "name": name});
    if config.is_null() {
        metadata["labels"] = json!({MANAGED_BY: "mcs"});
        return cluster.apply(CONFIG_MAPS, json!({"metadata": metadata, "data": data})).await;
    }
    let keys = config["data"].as_object().into_iter().flat_map(Map::keys);
    let is_emptied = keys.into_iter().all(|key| data.get(key) == Some(&Value::Null));
    if is_emptied && config["metadata"]["labels"][MANAGED_BY] == "mcs" {
        return cluster.delete(CONFIG_MAPS, Some(namespace), name).await;
    }
    metadata["annotations"] = json!(annotations);
    metadata["resourceVersion"] = config["metadata"]["resourceVersion"].clone();
    let written = cluster.merge(CONFIG_MAPS, json!({"metadata": metadata, "data": data})).await;
    written.with_context(|| format!("ConfigMap {namespace}/{name} is left alone"))
}

/// Restarts as `kubectl rollout restart` does.
pub(super) async fn restart(
    cluster: &Cluster,
    kind: Kind,
    namespace: &str,
    name: &str,
) -> anyhow::Result<()> {
    if let Some(draft) = &cluster.draft {
        let kind = kind.2.to_lowercase();
        draft.comment(&format!(
            "Not an object: kubectl rollout restart --namespace {namespace} {kind}/{name}"
        ));
        return Ok(());
    }
    let annotations = json!({"kubectl.kubernetes.io/restartedAt": Timestamp::now().to_string()});
    let template = json!({"metadata": {"annotations": annotations}});
    let metadata = json!({"namespace": namespace, "name": name});
    cluster.merge(kind, json!({"metadata": metadata, "spec": {"template": template}})).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMER: &str = ".:53 {\n    errors\n}\n";
    const EDITED: &str =
        "clusterset.local:53 {\n    # written by mcs: x\n    errors\n}\n.:53 {\n    errors\n}\n";

    fn change(former: Option<&str>, original: Option<&str>, text: &str) -> CorefileChange {
        let annotation = "clusterset.mcs-agent.io/corefile-before";
        let config = json!({
            "metadata": {"annotations": {annotation: original}}, "data": {"Corefile": former},
        });
        let [namespace, name, key] = ["kube-system", "coredns", "Corefile"].map(str::to_owned);
        let source = Source { namespace, name, key, config };
        CorefileChange { source, text: text.to_owned(), is_removal: false }
    }

    #[test]
    fn the_annotation_has_the_text_before_the_first_edit() {
        let twice = EDITED.replace("errors", "log");
        for (former, original, text, expected) in [
            // The first edit, with what an earlier one has left or without.
            (Some(FORMER), None, EDITED, (json!(EDITED), json!(FORMER))),
            (Some(FORMER), Some("older"), EDITED, (json!(EDITED), json!(FORMER))),
            // A second edit.
            (Some(EDITED), Some(FORMER), &*twice, (json!(twice), json!(FORMER))),
            // The last one, and one after others have changed the text.
            (Some(EDITED), Some(FORMER), FORMER, (json!(FORMER), Value::Null)),
            (Some(EDITED), Some("x"), FORMER, (json!(FORMER), json!("x"))),
            // A key that comes and goes.
            (None, None, EDITED, (json!(EDITED), Value::Null)),
            (Some(EDITED), None, "", (Value::Null, Value::Null)),
            (Some(EDITED), Some(""), "", (json!(""), Value::Null)),
        ] {
            let change = change(former, original, text);
            assert_eq!(change.values(), expected, "{former:?} {original:?} {text:?}");
        }
    }
    #[test]
    fn a_removal_adds_no_block() {
        let mut change = change(Some(EDITED), Some(FORMER), EDITED);
        assert!(change.told().starts_with("added the block"), "{}", change.told());
        change.is_removal = true;
        assert!(change.told().starts_with("took a part of the block"), "{}", change.told());
    }
}
