//! The output of commands for programs, against the schemas in deploy/schema: users depend on every field.

use crate::prelude::*;

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("JSON of every command has the fields of its schema, and no others", schemas);
}

fn schemas(world: &mut World) -> Result {
    for (name, words) in [
        ("status", &["status"][..]),
        ("services", &["services"]),
        ("backends", &["backends", "default/web"]),
        ("flows", &["flows"]),
        ("sockets", &["sockets"]),
        ("explain", &["explain", "default/web"]),
    ] {
        let file = deploy(&format!("schema/{name}.schema.json"));
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let schema: Value = serde_json::from_str(&text)?;
        let output = world.site.agent.command(&[words, &["--output", "json"]].concat())?;
        let value =
            serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))?;
        let mut problems = Vec::new();
        compare(&schema, &value, name, &mut problems);
        ensure!(problems.is_empty(), "{}: {}", file.display(), problems.join("; "));
        // A schema that knows no field would allow everything.
        ensure!(text.contains("\"additionalProperties\": false"), "{name} is open");
    }
    Ok(())
}

/// The part of JSON Schema that these files use.
fn compare(schema: &Value, value: &Value, path: &str, problems: &mut Vec<String>) {
    let types = match &schema["type"] {
        Value::String(name) => vec![name.as_str()],
        names => names.as_array().into_iter().flatten().filter_map(Value::as_str).collect(),
    };
    if !types.is_empty() && !types.iter().any(|name| is(name, value)) {
        problems.push(format!("{path} is {value} instead of {types:?}"));
    }
    if let Some(allowed) = schema["enum"].as_array().filter(|allowed| !allowed.contains(value)) {
        problems.push(format!("{path} is {value} instead of {allowed:?}"));
    }
    for item in value.as_array().into_iter().flatten() {
        compare(&schema["items"], item, &format!("{path}[]"), problems);
    }
    let Some(fields) = value.as_object() else { return };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            problems.push(format!("{path}.{name} is gone"));
        }
    }
    for (name, field) in fields {
        let path = format!("{path}.{name}");
        let others = &schema["additionalProperties"];
        if let Some(schema) = schema["properties"].get(name) {
            compare(schema, field, &path, problems);
        } else if *others == Value::Bool(false) {
            problems.push(format!("{path} is new: add it to the schema"));
        } else {
            compare(others, field, &path, problems);
        }
    }
}

fn is(name: &str, value: &Value) -> bool {
    match name {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => value.is_null(),
    }
}
