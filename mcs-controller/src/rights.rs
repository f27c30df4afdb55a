//! The rights that the controller needs in its own cluster, and which of them are missing.
//!
//! Failing requests show a lost right late: a running watch survives the loss, and without a change nothing is written.

use std::time::{Duration, Instant};

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};

use crate::{clusterset::well_known::GROUP, objects::MCS_GROUP};

/// Verb, group and resource, whose subresource follows a `/`.
pub type Right = (&'static str, &'static str, &'static str);

const SLICES: &str = "discovery.k8s.io";

/// What the controller needs in all namespaces.
pub const NEEDED: [Right; 15] = [
    ("watch", MCS_GROUP, "serviceexports"),
    ("patch", MCS_GROUP, "serviceexports/status"),
    ("watch", "", "services"),
    ("watch", "", "namespaces"),
    ("watch", "about.k8s.io", "clusterproperties"),
    ("watch", MCS_GROUP, "serviceimports"),
    ("create", MCS_GROUP, "serviceimports"),
    ("patch", MCS_GROUP, "serviceimports"),
    ("delete", MCS_GROUP, "serviceimports"),
    ("patch", MCS_GROUP, "serviceimports/status"),
    ("create", SLICES, "endpointslices"),
    ("update", SLICES, "endpointslices"),
    ("delete", SLICES, "endpointslices"),
    ("watch", GROUP, "clusterpeers"),
    // The admission policy checks it.
    ("write", GROUP, "importedobjects"),
];

/// How often the leader asks.
const PERIOD: Duration = Duration::from_secs(30);
/// How often the leader asks while rights are missing.
const AGAIN: Duration = Duration::from_secs(5);

/// The attributes of a right in all namespaces, for a review.
pub fn attributes((verb, group, resource): Right) -> ResourceAttributes {
    let mut parts = resource.split('/').map(str::to_owned);
    ResourceAttributes {
        group: Some(group.to_owned()),
        resource: parts.next(),
        subresource: parts.next(),
        verb: Some(verb.to_owned()),
        ..ResourceAttributes::default()
    }
}

/// Rights as text: `create endpointslices, watch services`.
pub fn listed(rights: &[Right]) -> String {
    let each: Vec<_> =
        rights.iter().map(|(verb, _, resource)| format!("{verb} {resource}")).collect();
    each.join(", ")
}

/// Whether the caller has a right, in this namespace or in all.
pub async fn may(client: &Client, namespace: Option<&str>, right: Right) -> kube::Result<bool> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let resource_attributes =
        Some(ResourceAttributes { namespace: namespace.map(str::to_owned), ..attributes(right) });
    let spec = SelfSubjectAccessReviewSpec { resource_attributes, ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// The missing rights, by the answers of `may`.
pub async fn missing<E, F: Future<Output = Result<bool, E>>>(
    may: impl Fn(Right) -> F,
) -> Result<Vec<Right>, E> {
    let mut missing = Vec::new();
    for right in NEEDED {
        if !may(right).await? {
            missing.push(right);
        }
    }
    Ok(missing)
}

/// The schedule and the last answer of the check.
#[derive(Debug)]
pub struct Rights {
    missing: Vec<Right>,
    next_at: Instant,
    is_under_way: bool,
}

impl Rights {
    /// No right is known to be missing. The first check is due at once.
    pub const fn since(now: Instant) -> Self {
        Self { missing: Vec::new(), next_at: now, is_under_way: false }
    }

    /// Whether it is time to ask. If so, the caller begins to.
    pub fn begin(&mut self, now: Instant) -> bool {
        let is_due = !self.is_under_way && now >= self.next_at;
        if is_due {
            (self.next_at, self.is_under_way) = (now + PERIOD, true);
        }
        is_due
    }

    /// Records the answer and logs a change. Without an answer, the last one stays. Returns the number of missing rights.
    pub fn end(&mut self, answer: Option<Vec<Right>>, now: Instant) -> usize {
        self.is_under_way = false;
        if let Some(missing) = answer
            && missing != self.missing
        {
            if missing.is_empty() {
                tracing::info!("the API server allows again all that the controller needs");
            } else {
                tracing::warn!(
                    "the API server does not allow this controller to {}: install the chart again",
                    listed(&missing)
                );
            }
            self.missing = missing;
        }
        if !self.missing.is_empty() {
            self.next_at = now + AGAIN;
        }
        self.missing.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_is_asked_for_as_the_api_server_knows_it() {
        let asked = attributes(("patch", MCS_GROUP, "serviceexports/status"));
        assert_eq!(asked.resource.as_deref(), Some("serviceexports"));
        assert_eq!(asked.subresource.as_deref(), Some("status"));
        assert_eq!(attributes(("watch", "", "services")).subresource, None);
        assert_eq!(listed(&NEEDED[..2]), "watch serviceexports, patch serviceexports/status");
    }

    #[test]
    fn one_question_at_a_time_and_no_answer_changes_nothing() {
        let now = Instant::now();
        let mut rights = Rights::since(now);
        assert!(rights.begin(now));
        assert!(!rights.begin(now + PERIOD * 2), "it is under way");
        assert_eq!(rights.end(Some(vec![NEEDED[0]]), now), 1);
        assert!(rights.begin(now + AGAIN));
        assert_eq!(rights.end(None, now + AGAIN), 1);
        assert!(!rights.begin(now + AGAIN));
        assert!(rights.begin(now + AGAIN * 2));
        assert_eq!(rights.end(Some(Vec::new()), now + AGAIN * 2), 0);
        assert!(!rights.begin(now + PERIOD));
        assert!(rights.begin(now + AGAIN * 2 + PERIOD));
    }
}
