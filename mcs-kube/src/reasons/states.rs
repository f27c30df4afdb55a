//! States of imports and exports, for monitoring.

use super::reasons;

const IMPORT: &str = "its conditions say why: `kubectl describe serviceimport`, or `mcs status`";
const EXPORT: &str = "its conditions say why: `kubectl describe serviceexport`, or `mcs status`";

reasons! {
    /// The label `state` of `mcs_controller_imports` and
    /// `mcs_controller_service_trouble_since_timestamp_seconds`.
    ImportState "States of imports" "import: " "runbook.md#mcsimportswithoutaddress" {
        /// The import serves.
        Ready "ready" Note Nobody "";
        /// It has no address: none is free: [Pending](#pending).
        Pending "pending" Wrong Operator IMPORT;
        /// Another import has its address: [AddressShared](#addressshared).
        AddressShared "address_shared" Wrong Operator IMPORT;
        /// It has an address of a Service that is gone: [AddressInServiceRange](#addressinservicerange).
        AddressInServiceRange "address_in_service_range" Wrong Operator IMPORT;
        /// No Service of this cluster can have one of its IP families:
        /// [IPFamilyNotSupported](#ipfamilynotsupported).
        FamilyNotSupported "family_not_supported" Wrong Owner IMPORT;
        /// Another controller writes the ServiceImport: [LeftAlone](#leftalone).
        LeftAlone "left_alone" Unknown Operator IMPORT;
        /// It serves, and the exporting clusters disagree:
        /// [McsExportsDisagree](runbook.md#mcsexportsdisagree).
        Conflict "conflict" Note Owner IMPORT;
        /// It serves, and a conflict keeps endpoints from it:
        /// [McsEndpointsUnused](runbook.md#mcsendpointsunused).
        EndpointsUnused "endpoints_unused" Wrong Owner IMPORT;
        /// This cluster lacks the namespace: [NamespacesMissing](#namespacesmissing).
        NoNamespace "no_namespace" Note Operator IMPORT;
        /// The API server of this cluster refuses an object of it: [Refused](#refused).
        Refused "refused" Wrong Operator IMPORT;
    }
}

reasons! {
    /// The label `state` of `mcs_controller_exports`.
    ExportState "States of exports" "export: " "runbook.md#mcsexportsinvalid" {
        /// Peers can read the export.
        Exported "exported" Note Nobody "";
        /// Peers can read it, and one of them lacks its namespace: [NamespaceMissing](#namespacemissing).
        NotImported "not_imported" Note Owner EXPORT;
        /// It is not in the mailbox, or the Lease of the mailbox is not renewed.
        Unpublished "unpublished" Wrong Operator EXPORT;
        /// There is nothing to export.
        Invalid "invalid" Wrong Owner EXPORT;
        /// It is more than its namespace may export: [OverLimit](#overlimit).
        OverLimit "over_limit" Wrong Operator EXPORT;
    }
}
