//! Whether this node serves an import at all.

use crate::model::{ServiceImport, ServiceType};

/// The reason why this node does not serve a ServiceImport. It then claims nothing.
///
/// `endpointSliceObjects: Absent` says that the endpoints are not in slices here (KEP-1645,
/// "EndpointSlice"). kube-proxy serves an import that has a derived Service and no imported slices.
pub(super) fn why_left_alone(import: &ServiceImport, has_slices: bool) -> Option<String> {
    if import.service_type == ServiceType::Headless {
        return Some("headless: left to DNS".to_owned());
    }
    if import.endpoint_slice_objects.as_deref() == Some("Absent") {
        return Some(
            "status.endpointSliceObjects is Absent: its endpoints are not published here"
                .to_owned(),
        );
    }
    match import.derived_service.as_deref() {
        Some(derived) if !derived.is_empty() && !has_slices => {
            return Some(format!("no EndpointSlice: left to the derived Service {derived:?}"));
        }
        _ => {}
    }
    import.ips.is_empty().then(|| "no ClusterSetIP yet: spec.ips is empty".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture::import;

    #[test]
    fn leaves_alone_what_others_serve() {
        let web = || import("shop/web").ip("10.0.0.1");
        let headless = ServiceImport { service_type: ServiceType::Headless, ..web() };
        let published =
            |value: &str| ServiceImport { endpoint_slice_objects: Some(value.to_owned()), ..web() };
        let derived =
            |name: &str| ServiceImport { derived_service: Some(name.to_owned()), ..web() };
        for (import, has_slices, expected) in [
            (web(), true, None),
            (web(), false, None),
            (headless, true, Some("headless")),
            (published("Absent"), true, Some("Absent")),
            (published("Present"), false, None),
            (derived("derived-abc"), false, Some("\"derived-abc\"")),
            (derived("derived-abc"), true, None),
            (derived(""), false, None),
            (import("shop/web"), true, Some("spec.ips is empty")),
        ] {
            let why = why_left_alone(&import, has_slices);
            match expected {
                Some(part) => assert!(why.as_ref().is_some_and(|w| w.contains(part)), "{why:?}"),
                None => assert_eq!(why, None, "{import:?}"),
            }
        }
    }
}
