//! The writes of a dry run to a cluster, as YAML documents.

use std::sync::{Mutex, PoisonError};

use serde_json::Value;

/// The documents so far, in the order in which they are applied.
#[derive(Default)]
pub(crate) struct Draft(Mutex<String>);

impl Draft {
    /// Adds an object without `resourceVersion`, which will have changed when a copy in git is applied.
    ///
    /// # Errors
    /// It cannot be written as YAML.
    pub(crate) fn object(&self, mut object: Value) -> anyhow::Result<()> {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        self.add(&format!("---\n{}", serde_saphyr::to_string(&object)?));
        Ok(())
    }

    /// Adds the documents that a tool has printed.
    pub(crate) fn text_of(&self, output: &[u8]) {
        let text = String::from_utf8_lossy(output);
        let text = text.trim();
        if !text.is_empty() {
            let begin = if text.starts_with("---") { "" } else { "---\n" };
            self.add(&format!("{begin}{text}"));
        }
    }

    /// Adds a comment.
    pub(crate) fn comment(&self, text: &str) {
        self.add(&format!("# {text}"));
    }

    /// All documents.
    pub(crate) fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, text: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push_str(text.trim_end());
        all.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_are_yaml_in_their_order() {
        let draft = Draft::default();
        draft.text_of(b"kind: A\n---\nkind: B\n\n");
        draft.text_of(b"");
        draft.comment("restart it");
        let metadata = json!({"name": "coredns", "resourceVersion": "7"});
        let corefile = ".:53 {\n    errors\n}\n";
        draft
            .object(json!({"kind": "C", "metadata": metadata, "data": {"Corefile": corefile}}))
            .unwrap();
        let text = draft.text();
        assert!(text.starts_with("---\nkind: A\n---\nkind: B\n# restart it\n---\n"), "{text}");
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        let kinds: Vec<_> = documents.iter().filter_map(|one| one["kind"].as_str()).collect();
        assert_eq!(kinds, ["A", "B", "C"]);
        assert_eq!(documents[2]["data"]["Corefile"], corefile);
        assert_eq!(documents[2]["metadata"], json!({"name": "coredns"}));
    }
}
