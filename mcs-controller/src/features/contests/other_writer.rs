//! Finds out who else writes an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::{
    Api,
    api::{ApiResource, DynamicObject},
};
use mcs_kube::{ApiAccess, ObjectKey};

use crate::core::{apply::ApplyError, objects::FIELD_MANAGER};

/// Asks the API server who else has written an object. `field`: the path of the field that counts; empty: any.
pub(super) async fn other_writer(
    access: &ApiAccess,
    resource: &ApiResource,
    key: &ObjectKey,
    field: &[&str],
) -> Result<Option<String>, ApplyError> {
    let client = access.connection().await?.client;
    let objects: Api<DynamicObject> = Api::namespaced_with(client, &key.namespace, resource);
    let found = objects.get_metadata(&key.name).await?;
    Ok(writer(&found.metadata.managed_fields.unwrap_or_default(), field))
}

/// The latest manager of a field that is not this controller.
fn writer(managers: &[ManagedFieldsEntry], field: &[&str]) -> Option<String> {
    let writes = |entry: &&ManagedFieldsEntry| {
        let found = entry.fields_v1.as_ref().map(|fields| {
            field.iter().fold(&fields.0, |fields, name| &fields[format!("f:{name}")])
        });
        entry.manager.as_deref() != Some(FIELD_MANAGER) && found.is_some_and(|one| !one.is_null())
    };
    let latest = managers
        .iter()
        .filter(writes)
        .max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?;
    latest.manager.clone()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_latest_other_manager_of_a_field_is_the_other_writer() {
        let entry = |manager: &str, time: &str, fields| {
            let entry = json!({"manager": manager, "time": time, "fieldsV1": fields});
            serde_json::from_value(entry).unwrap()
        };
        let conditions = json!({"f:status": {"f:conditions": {"k:{\"type\":\"Ready\"}": {}}}});
        let managers = [
            entry(FIELD_MANAGER, "2026-01-03T00:00:00Z", conditions.clone()),
            entry("old", "2026-01-01T00:00:00Z", conditions.clone()),
            entry("cilium-operator", "2026-01-02T00:00:00Z", conditions),
            entry("kubectl", "2026-01-04T00:00:00Z", json!({"f:metadata": {"f:labels": {}}})),
        ];
        let field = ["status", "conditions"];
        assert_eq!(writer(&managers, &field).as_deref(), Some("cilium-operator"));
        assert_eq!(writer(&managers[..1], &field), None);
        assert_eq!(writer(&managers, &[]).as_deref(), Some("kubectl"));
    }
}
