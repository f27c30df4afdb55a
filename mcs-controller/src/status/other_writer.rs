//! Finds out who else writes the conditions of a ServiceExport.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use mcs_kube::ApiAccess;

use crate::{
    apply::ApplyError,
    clusterset::ServiceName,
    objects::{FIELD_MANAGER, MCS_GROUP},
};

/// Asks the API server who else has written the conditions of an export.
pub async fn other_writer(
    access: &ApiAccess,
    version: &str,
    name: &ServiceName,
) -> Result<Option<String>, ApplyError> {
    let kind = GroupVersionKind::gvk(MCS_GROUP, version, "ServiceExport");
    let resource = ApiResource::from_gvk_with_plural(&kind, "serviceexports");
    let client = access.connection().await?.client;
    let exports: Api<DynamicObject> = Api::namespaced_with(client, name.namespace(), &resource);
    let found = exports.get_metadata(name.name()).await?;
    Ok(writer(&found.metadata.managed_fields.unwrap_or_default()))
}

/// The latest manager of conditions that is not this controller.
fn writer(managers: &[ManagedFieldsEntry]) -> Option<String> {
    let writes = |entry: &&ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0["f:status"]["f:conditions"]);
        entry.manager.as_deref() != Some(FIELD_MANAGER) && fields.is_some_and(|one| !one.is_null())
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
    fn the_latest_other_manager_of_conditions_is_the_other_writer() {
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
        assert_eq!(writer(&managers).as_deref(), Some("cilium-operator"));
        assert_eq!(writer(&managers[..1]), None);
    }
}
