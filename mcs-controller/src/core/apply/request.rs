//! The requests that carry out planned writes.

use std::sync::Arc;

use mcs_kube::ObjectKey;
use mcs_kube::objects;
use serde_json::json;

use super::{Action, Request};
use crate::core::{
    clock,
    clusterset::{
        ClusterId, Condition, Owner, Stamp, derived_name, misnamed_conditions, well_known,
    },
    mailbox::{MailboxView, MailboxWrite},
    objects::{
        MCS_GROUP, OWN_VERSION, accepted, derived_service, export_status, exported_name,
        exported_service, import, import_status, imported_slice, made_export, made_namespace,
        mailbox_slice, mailbox_slice_name,
    },
    own_cluster::OwnCluster,
    plan::Write,
};

const SLICES: (&str, &str, &str, &str) =
    ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices");
const SERVICES: (&str, &str, &str, &str) = ("", "v1", "Service", "services");

/// The request for a write to this cluster. `adopts`: ServiceImports of others become this controller's.
pub fn own_request(write: &Write, own: &OwnCluster, adopts: bool) -> Request {
    let now = clock::time_of_day();
    let (exports, imports) = (own.export_version(), own.import_version());
    let imports_api = (MCS_GROUP, imports, "ServiceImport", "serviceimports");
    match write {
        Write::ApplySlice(slice) => {
            let is_there = own.has_slice(&slice.service, &slice.name);
            let action = Action::Replace { object: imported_slice(slice), is_there };
            Request::new(SLICES, Some(slice.service.namespace()), &slice.name, action)
        }
        Write::RestrictSlice(service, _, name, rules) => {
            let action = Action::Restrict(Arc::clone(rules));
            Request::new(SLICES, Some(service.namespace()), name, action)
        }
        Write::ApplyImport(wanted) => {
            let current = own.import_object(&wanted.name);
            let is_ours = current.is_some_and(|object| object.actual.owner == Owner::Us);
            // Another controller may just have created it.
            let action =
                Action::Apply { object: import(imports, wanted), force: is_ours || adopts };
            Request::new(imports_api, Some(wanted.name.namespace()), wanted.name.name(), action)
        }
        Write::SetImportStatus(name, status) => {
            let former = own.import_object(name).map_or(&[][..], |object| &object.conditions);
            let status = import_status(imports, name, status, former, now);
            let action = Action::ApplyStatus(status);
            Request::new(imports_api, Some(name.namespace()), name.name(), action)
        }
        Write::SetAccepted(name, condition) => {
            let former = own.import_object(name).map_or(&[][..], |object| &object.conditions);
            let action = Action::ApplyCondition(accepted(imports, name, condition, former, now));
            Request::new(imports_api, Some(name.namespace()), name.name(), action)
        }
        Write::SetExportConditions(name, conditions) => {
            let former = own.export_object(name).map_or(&[][..], |object| &object.conditions);
            export_request(exports, (name.namespace(), name.name()), conditions, former)
        }
        Write::CreateExport(name) => {
            let api = (MCS_GROUP, exports, "ServiceExport", "serviceexports");
            let action = Action::Create(made_export(exports, name));
            Request::new(api, Some(name.namespace()), name.name(), action)
        }
        Write::DeleteExport(name) => {
            let api = (MCS_GROUP, exports, "ServiceExport", "serviceexports");
            let uid = own.export_object(name).map(|object| object.uid.clone());
            Request::new(api, Some(name.namespace()), name.name(), Action::Delete { uid })
        }
        Write::CreateNamespace(namespace) => {
            let api = ("", "v1", "Namespace", "namespaces");
            Request::new(api, None, namespace, Action::Create(made_namespace(namespace)))
        }
        Write::DeleteImport(name) => {
            let uid = own.import_object(name).map(|object| object.uid.clone());
            let action = Action::Delete { uid };
            Request::new(imports_api, Some(name.namespace()), name.name(), action)
        }
        Write::ApplyDerivedService(import, ports) => {
            let is_ours = own.derived(import).is_some_and(|derived| derived.is_ours());
            let object = derived_service(import, ports);
            // Another controller may just have created one of that name.
            let action = Action::Apply { object, force: is_ours };
            Request::new(SERVICES, Some(import.namespace()), &derived_name(import), action)
        }
        Write::DeleteDerivedService(import) => {
            let uid = own.derived(import).map(|derived| derived.uid.to_string());
            let action = Action::Delete { uid };
            Request::new(SERVICES, Some(import.namespace()), &derived_name(import), action)
        }
        Write::DeleteSlice(service, _, name) => {
            let action = Action::Delete { uid: None };
            Request::new(SLICES, Some(service.namespace()), name, action)
        }
    }
}

/// The request for a ClusterProperty that agents read. This controller takes the object over from others.
pub fn property_request(version: &str, name: &str, value: &str) -> Request {
    let object = json!({
        "apiVersion": format!("about.k8s.io/{version}"),
        "kind": "ClusterProperty",
        "metadata": {"name": name},
        "spec": {"value": value},
    });
    let api = ("about.k8s.io", version, "ClusterProperty", "clusterproperties");
    Request::new(api, None, name, Action::Apply { object, force: true })
}

/// The request that judges a ServiceExport with a name that no Service can have.
pub fn misnamed_request(key: &ObjectKey, own: &OwnCluster) -> Request {
    let conditions = misnamed_conditions(&key.name);
    export_request(own.export_version(), (&key.namespace, &key.name), &conditions, &[])
}

fn export_request(
    version: &str,
    (namespace, name): (&str, &str),
    conditions: &[Condition],
    former: &[objects::Condition],
) -> Request {
    let status =
        export_status(version, (namespace, name), conditions, former, clock::time_of_day());
    let api = (MCS_GROUP, version, "ServiceExport", "serviceexports");
    Request::new(api, Some(namespace), name, Action::ApplyStatus(status))
}

/// The request for a write to a mailbox. `None`: there is nothing to write.
pub fn mailbox_request(
    write: &MailboxWrite,
    mailbox: &str,
    cluster: &ClusterId,
    view: &MailboxView,
    stamp: Stamp,
) -> Option<Request> {
    let services = (well_known::GROUP, OWN_VERSION, "ExportedService", "exportedservices");
    Some(match write {
        MailboxWrite::ApplySlice(service, slice) => {
            let name = mailbox_slice_name(service.namespace(), &slice.name);
            let object = mailbox_slice(mailbox, cluster, service, slice, stamp);
            let seen = view.seen_slices(service);
            let is_there = seen.is_some_and(|seen| seen.contains_key(&slice.name));
            Request::new(SLICES, Some(mailbox), &name, Action::Replace { object, is_there })
        }
        MailboxWrite::ApplyService(exported) | MailboxWrite::WithdrawService(exported) => {
            let service = &exported.export.name;
            let seen = view.seen().get(service).map(|seen| &seen.version);
            let version = seen.or_else(|| view.unread().get(service));
            let version = version.and_then(|version| version.as_deref());
            let is_withdrawn = matches!(write, MailboxWrite::WithdrawService(_));
            let object = exported_service(mailbox, exported, stamp, is_withdrawn, version)?;
            let name = exported_name(service);
            Request::new(
                services,
                Some(mailbox),
                &name,
                Action::Replace { object, is_there: version.is_some() },
            )
        }
        MailboxWrite::DeleteService(service) => {
            let action = Action::Delete { uid: None };
            Request::new(services, Some(mailbox), &exported_name(service), action)
        }
        MailboxWrite::DeleteSlice(service, slice) => {
            let name = mailbox_slice_name(service.namespace(), slice);
            Request::new(SLICES, Some(mailbox), &name, Action::Delete { uid: None })
        }
    })
}
