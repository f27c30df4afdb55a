//! The ExportRules of this cluster, and the Services that they select.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use kube::core::SelectorExt as _;

use super::{
    Selection,
    object::{ExportRule, ExportRuleDecoder},
};
use crate::core::{clock, feed::Change};

/// The grace time: exports of a rule outlive the rule. When the type is deleted, the API server deletes all rules first.
const GRACE: Duration = Duration::from_secs(10);

/// The ExportRules.
#[derive(Default, Debug)]
pub(super) struct ExportRules {
    /// By namespace and name. `None`: an unusable rule.
    by_namespace: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Option<ExportRule>>>,
    /// The last usable version of each rule, with recently deleted rules: their exports stay and keep their annotations.
    usable: BTreeMap<Arc<str>, BTreeMap<Arc<str>, ExportRule>>,
    /// The namespaces with a deleted rule, and since when.
    removed: BTreeMap<Arc<str>, Instant>,
}

impl ExportRules {
    /// Applies a change. Returns the affected namespaces.
    pub(super) fn change(&mut self, change: Change<ExportRuleDecoder>) -> BTreeSet<Arc<str>> {
        let now = clock::now();
        match change {
            Change::Clear => {
                let namespaces = std::mem::take(&mut self.by_namespace).into_keys();
                let namespaces: BTreeSet<_> = namespaces.collect();
                self.removed.extend(namespaces.iter().map(|name| (Arc::clone(name), now)));
                namespaces
            }
            Change::Remove(object) => {
                let key = object.key();
                if let Some(rules) = self.by_namespace.get_mut(&key.namespace) {
                    rules.remove(&key.name);
                    if rules.is_empty() {
                        self.by_namespace.remove(&key.namespace);
                    }
                }
                self.removed.insert(Arc::clone(&key.namespace), now);
                [key.namespace].into()
            }
            Change::Set(object) => {
                let key = object.key();
                let rule = object.decoded.inspect_err(|error| {
                    tracing::warn!("ExportRule {key} cannot be used: {error}. Its exports stay");
                });
                let rule = rule.ok();
                if let Some(rule) = &rule {
                    let usable = self.usable.entry(Arc::clone(&key.namespace)).or_default();
                    usable.insert(Arc::clone(&key.name), rule.clone());
                }
                let rules = self.by_namespace.entry(Arc::clone(&key.namespace)).or_default();
                rules.insert(key.name, rule);
                [key.namespace].into()
            }
        }
    }

    /// The namespaces that have rules.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_namespace.keys()
    }

    /// Whether a rule selects a Service of that namespace with these labels.
    pub(super) fn selection(
        &self,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> Selection {
        let rules = self.by_namespace.get(namespace);
        let mut rules = rules.into_iter().flat_map(BTreeMap::values);
        let mut is_certain = !self.removed.contains_key(namespace);
        let is_selected = rules.any(|rule| {
            is_certain &= rule.is_some();
            rule.as_ref().is_some_and(|rule| rule.selector.matches(labels))
        });
        match (is_selected, is_certain) {
            (true, _) => Selection::Selected,
            (false, true) => Selection::NotSelected,
            (false, false) => Selection::Unknown,
        }
    }

    /// The exported annotations that rules give a Service with these labels. The rule whose name sorts first decides.
    pub(super) fn annotations(
        &self,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> BTreeMap<Arc<str>, Arc<str>> {
        let rules = self.usable.get(namespace).into_iter().flat_map(BTreeMap::values);
        let selecting = rules.filter(|rule| rule.selector.matches(labels));
        let pairs = selecting.flat_map(|rule| &rule.annotations).rev();
        pairs.map(|(key, value)| (Arc::clone(key), Arc::clone(value))).collect()
    }

    /// Forgets deleted rules after their grace time. Returns their namespaces.
    pub(super) fn forget(&mut self, now: Instant) -> BTreeSet<Arc<str>> {
        let is_over =
            |_: &Arc<str>, since: &mut Instant| now.saturating_duration_since(*since) >= GRACE;
        let over: BTreeSet<_> =
            self.removed.extract_if(.., is_over).map(|(name, _)| name).collect();
        for namespace in &over {
            let rules = self.by_namespace.get(namespace);
            if let Some(usable) = self.usable.get_mut(namespace) {
                usable.retain(|name, _| rules.is_some_and(|rules| rules.contains_key(name)));
            }
        }
        self.usable.retain(|_, rules| !rules.is_empty());
        over
    }
}

#[cfg(test)]
mod tests {
    use mcs_kube::WatchedObject;
    use serde_json::{Value, from_value, json};

    use super::*;

    fn rule(selector: &Value) -> WatchedObject<ExportRuleDecoder> {
        let metadata = json!({"namespace": "shop", "name": "web"});
        from_value(json!({"metadata": metadata, "spec": {"serviceSelector": selector}})).unwrap()
    }

    #[test]
    fn services_are_selected_by_their_labels() {
        let mut rules = ExportRules::default();
        let said = |rules: &ExportRules, namespace: &str, app: &str| {
            rules.selection(namespace, &[("app".to_owned(), app.to_owned())].into())
        };
        let all = from_value(json!({"metadata": {"namespace": "shop", "name": "web"}})).unwrap();
        rules.change(Change::Set(all));
        assert_eq!(said(&rules, "shop", "cart"), Selection::Selected, "the whole namespace");
        assert_eq!(said(&rules, "bank", "cart"), Selection::NotSelected);
        let namespaces = rules.change(Change::Set(rule(&json!({"matchLabels": {"app": "web"}}))));
        assert_eq!(namespaces, ["shop".into()].into());
        assert_eq!(said(&rules, "shop", "web"), Selection::Selected);
        assert_eq!(said(&rules, "shop", "cart"), Selection::NotSelected);
        let broken = json!({"matchExpressions": [{"key": "app", "operator": "Is"}]});
        rules.change(Change::Set(rule(&broken)));
        assert_eq!(said(&rules, "shop", "web"), Selection::Unknown, "it may select it again");
    }

    #[test]
    fn rules_give_annotations_to_what_they_select() {
        let mut rules = ExportRules::default();
        let mut rule = |name: &str, selector: Value, annotations: Value| {
            let metadata = json!({"namespace": "shop", "name": name});
            let spec = json!({"serviceSelector": selector, "exportedAnnotations": annotations});
            let rule = from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
            rules.change(Change::Set(rule));
        };
        rule("a", json!({"matchLabels": {"app": "web"}}), json!({"one": "a"}));
        rule("b", json!({}), json!({"one": "b", "two": "b"}));
        let of = |app: &str| -> Vec<String> {
            let labels = [("app".to_owned(), app.to_owned())].into();
            let given = rules.annotations("shop", &labels);
            given.iter().map(|(key, value)| format!("{key}={value}")).collect()
        };
        assert_eq!(of("web"), ["one=a", "two=b"]);
        assert_eq!(of("cart"), ["one=b", "two=b"]);
        assert!(rules.annotations("bank", &BTreeMap::new()).is_empty());
    }

    #[test]
    fn rules_that_go_may_come_back() {
        let mut rules = ExportRules::default();
        let said = |rules: &ExportRules| rules.selection("shop", &BTreeMap::new());
        rules.change(Change::Set(rule(&json!({}))));
        rules.change(Change::Clear);
        assert_eq!(said(&rules), Selection::Unknown, "their type may be about to go");
        assert!(rules.forget(Instant::now()).is_empty());
        assert_eq!(rules.forget(Instant::now() + GRACE), ["shop".into()].into());
        assert_eq!(said(&rules), Selection::NotSelected);
        rules.change(Change::Set(rule(&json!({}))));
        rules.change(Change::Remove(rule(&json!({}))));
        assert_eq!(said(&rules), Selection::Unknown);
        assert_eq!(rules.namespaces().count(), 0);
    }
}
