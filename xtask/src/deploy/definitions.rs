//! The definitions of the project's own types, from the types that read them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

/// The annotation with the version of the chart that a definition is of. `mcs up` compares it.
const VERSION: &str = "clusterset.mcs-agent.io/version";

/// The files with the types of the controller's chart, and their content.
pub(super) fn files(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let folder = root.join("deploy/helm/mcs-controller/crds");
    let file = |derived| {
        let (about, definition) = definition(json!(derived));
        let plural = definition["spec"]["names"]["plural"].as_str().context("no plural")?;
        let yaml = serde_saphyr::to_string(&definition)?;
        let text = format!("---\n# {about}\n# `cargo xtask deploy` writes this file.\n{yaml}");
        Ok((folder.join(format!("{plural}.yaml")), text))
    };
    mcs_kube::objects::definitions().into_iter().map(file).collect()
}

/// Fails unless the chart has these files.
pub(super) fn check(root: &Path) -> Result<()> {
    for (file, text) in files(root)? {
        if fs::read_to_string(&file).ok() != Some(text) {
            bail!("{} is not what the types say: run `cargo xtask deploy`", file.display());
        }
    }
    Ok(())
}

/// What a type is for, and its definition.
fn definition(mut definition: Value) -> (String, Value) {
    definition["metadata"]["annotations"] = json!({VERSION: env!("CARGO_PKG_VERSION")});
    let names = &mut definition["spec"]["names"];
    names["listKind"] = json!(format!("{}List", names["kind"].as_str().unwrap_or_default()));
    let root = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    for (field, kind) in [("apiVersion", "string"), ("kind", "string"), ("metadata", "object")] {
        root["properties"][field] = json!({"type": kind});
    }
    let spec_is_required = root["properties"]["spec"].get("required").is_some();
    tidy(root);
    let mut about = Value::Null;
    if let Some(root) = root.as_object_mut() {
        about = root.remove("description").unwrap_or_default();
        root.retain(|field, _| field != "title" && (spec_is_required || field != "required"));
    }
    (about.as_str().unwrap_or_default().to_owned(), definition)
}

/// Takes away what says nothing to an API server: that a field can be null, the formats of Rust's numbers without sign, the
/// defaults of lists and maps, which the programs know, and the ends of lines in comments.
fn tidy(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    let is_unsigned =
        fields.get("format").and_then(Value::as_str).is_some_and(|one| one.starts_with("uint"));
    fields.retain(|field, value| match &**field {
        "nullable" => false,
        "format" => !is_unsigned,
        "minimum" => !is_unsigned || value.as_f64() != Some(0.0),
        "default" => value.is_string(),
        _ => true,
    });
    for limit in ["minimum", "maximum"] {
        if let Some(value) = fields.get_mut(limit)
            && let Some(number) = value.as_f64()
            && let Ok(whole) = format!("{number:.0}").parse::<i64>()
        {
            *value = json!(whole);
        }
    }
    if let Some(Value::String(text)) = fields.get_mut("description") {
        *text = text.replace('\n', " ");
    }
    for part in ["items", "additionalProperties"] {
        fields.get_mut(part).into_iter().for_each(tidy);
    }
    let properties = fields.get_mut("properties").and_then(Value::as_object_mut);
    properties.into_iter().flatten().for_each(|(_, schema)| tidy(schema));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

    #[test]
    fn the_chart_has_the_types_that_programs_read() {
        check(&Workspace::discover().unwrap().root).unwrap();
    }
}
