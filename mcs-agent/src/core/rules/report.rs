//! The state of an import in `status`, and the reason for it.

use super::{assigned_import::AssignedImport, claim::Unclaimed};
use crate::core::model::{
    FrontendId, ImportReport, ImportState, ObjectKey, RejectionReason, Sections, shorten,
};

/// The report of an import that is not left alone.
pub(super) fn report(import: &ObjectKey, state: ImportState, message: &str) -> ImportReport {
    let (import, message) = (import.clone(), shorten(message));
    ImportReport {
        import,
        state,
        message,
        left_alone: None,
        tiers: None,
        sections: Sections::default(),
    }
}

/// The report of an import that claims nothing.
pub(super) fn of_unclaimed(import: &ObjectKey, unclaimed: &Unclaimed) -> ImportReport {
    if let Some(why) = &unclaimed.left_alone {
        let report = report(import, ImportState::LeftAlone, &why.message);
        return ImportReport { left_alone: Some(why.reason), ..report };
    }
    let first = unclaimed.problems.first().map_or("", |problem| &problem.message);
    report(import, ImportState::Rejected, first)
}

/// The report of an import that claims VIPs.
pub(crate) fn of_assigned(assigned: &AssignedImport<'_>) -> ImportReport {
    let refusing: Vec<FrontendId> = assigned
        .frontends
        .iter()
        .filter_map(|(id, frontend)| frontend.backends.is_empty().then_some(*id))
        .collect();
    let (state, message) = if !assigned.has_vip {
        (ImportState::Rejected, first_problem(assigned).unwrap_or_default())
    } else if refusing.len() == assigned.frontends.len() {
        (ImportState::Refusing, why_all_refuse(assigned))
    } else if let [first, others @ ..] = refusing.as_slice() {
        let why = assigned.why_refused.clone();
        let why = why.unwrap_or_else(|| format!("no usable endpoint for {first}"));
        (ImportState::Partial, and_more(why, others.len()))
    } else {
        (ImportState::Ready, assigned.drain_ignored.map_or_else(String::new, who_serves))
    };
    let tiers = assigned.import.tiers.as_deref().and_then(|tiers| tiers.as_ref().ok()).cloned();
    let sections = assigned.sections.clone();
    ImportReport { tiers, sections, ..report(&assigned.import.key, state, &message) }
}

fn why_all_refuse(assigned: &AssignedImport<'_>) -> String {
    if assigned.frontends.is_empty() {
        return first_problem(assigned).unwrap_or_else(|| "spec.ports is empty".to_owned());
    }
    if !assigned.has_slices {
        let left = assigned.left_vips.iter();
        let left = left
            .map(|vip| format!("; ClusterSetIP {vip} is left to the Service with that address"));
        return format!("no EndpointSlice{}", left.collect::<String>());
    }
    if let Some(why) = &assigned.why_refused {
        return why.clone();
    }
    assigned
        .problems
        .iter()
        .find(|r| {
            matches!(
                r.reason,
                RejectionReason::TrafficPolicyNeedsIdentity | RejectionReason::Capacity
            )
        })
        .map_or_else(|| "no usable endpoint".to_owned(), |problem| problem.message.clone())
}

fn and_more(why: String, others: usize) -> String {
    if others == 0 { why } else { format!("{why} and {others} more") }
}

fn who_serves(drained: FrontendId) -> String {
    format!(
        "no other cluster has a ready endpoint for {drained}, so clusters that are out of use serve it"
    )
}

fn first_problem(assigned: &AssignedImport<'_>) -> Option<String> {
    assigned.problems.first().map(|problem| problem.message.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{
        model::{
            Backend, Frontend, Protocol,
            fixture::{import, key},
        },
        rules::fields::ObjectProblem,
    };

    /// The state and message of an import with these numbers of backends in its frontends.
    fn outcome(
        backends: &[usize],
        edit: impl FnOnce(&mut AssignedImport<'_>),
    ) -> (ImportState, String) {
        let import = import("shop/web");
        let frontends = backends
            .iter()
            .zip(80..)
            .map(|(count, port)| {
                let id = FrontendId { ip: [10, 0, 0, 1].into(), port, protocol: Protocol::Tcp };
                let backend = Backend { address: ([10, 1, 0, 1], 80).into(), cluster: "".into() };
                (id, Frontend::plain(key("shop/web"), vec![backend; *count]))
            })
            .collect();
        let mut assigned = AssignedImport::fixture(&import, frontends);
        edit(&mut assigned);
        let ImportReport { state, message, .. } = of_assigned(&assigned);
        (state, message)
    }

    fn refuse(reason: RejectionReason, message: &str) -> impl Fn(&mut AssignedImport<'_>) {
        move |assigned| assigned.problems.push(ObjectProblem::new(reason, message))
    }

    #[test]
    fn the_frontends_decide_the_state() {
        for (backends, state, message) in [
            (vec![1, 2], ImportState::Ready, ""),
            (vec![1, 0], ImportState::Partial, "no usable endpoint for 10.0.0.1:81/TCP"),
            (
                vec![0, 1, 0],
                ImportState::Partial,
                "no usable endpoint for 10.0.0.1:80/TCP and 1 more",
            ),
            (vec![0, 0], ImportState::Refusing, "no usable endpoint"),
            (vec![], ImportState::Refusing, "spec.ports is empty"),
        ] {
            assert_eq!(outcome(&backends, |_| {}), (state, message.to_owned()), "{backends:?}");
        }
    }

    #[test]
    fn gives_the_reason_why_every_client_is_refused() {
        for (reason, expected) in [
            (RejectionReason::TrafficPolicyNeedsIdentity, "because"),
            (RejectionReason::Capacity, "because"),
            (RejectionReason::VipForbidden, "no usable endpoint"),
        ] {
            let (state, message) = outcome(&[0], refuse(reason, "because"));
            assert_eq!((state, message.as_str()), (ImportState::Refusing, expected), "{reason}");
        }
        let no_slices = outcome(&[0], |assigned| assigned.has_slices = false);
        assert_eq!(no_slices, (ImportState::Refusing, "no EndpointSlice".to_owned()));
        let (_, message) = outcome(&[0], |assigned| {
            assigned.has_slices = false;
            assigned.left_vips.push([10, 96, 0, 1].into());
        });
        let left =
            "no EndpointSlice; ClusterSetIP 10.96.0.1 is left to the Service with that address";
        assert_eq!(message, left);
        let no_ports = outcome(&[], refuse(RejectionReason::PortInvalid, "because"));
        assert_eq!(no_ports, (ImportState::Refusing, "because".to_owned()));
    }

    #[test]
    fn a_drain_that_is_not_obeyed_is_told() {
        let (state, message) = outcome(&[1], |assigned| {
            assigned.drain_ignored = assigned.frontends.first().map(|(id, _)| *id);
        });
        let told = "no other cluster has a ready endpoint for 10.0.0.1:80/TCP, so clusters that are out of use serve it";
        assert_eq!((state, &*message), (ImportState::Ready, told));
    }

    #[test]
    fn what_has_no_vip_is_rejected() {
        let rejected = outcome(&[], |assigned| {
            assigned.has_vip = false;
            refuse(RejectionReason::FrontendTaken, "because")(assigned);
        });
        assert_eq!(rejected, (ImportState::Rejected, "because".to_owned()));
    }

    #[test]
    fn a_long_value_does_not_fill_the_status_file() {
        let (_, message) = outcome(&[], |assigned| {
            refuse(RejectionReason::PortInvalid, &"x".repeat(1_000_000))(assigned);
        });
        assert_eq!(message, format!("{}…", "x".repeat(500)));
    }

    #[test]
    fn what_is_served_is_ready_whatever_else_was_refused() {
        assert_eq!(
            outcome(&[1], refuse(RejectionReason::PortInvalid, "x")),
            (ImportState::Ready, String::new())
        );
    }
}
