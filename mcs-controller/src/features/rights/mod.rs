//! The rights that the controller needs in its own cluster, and which of them are missing.
//!
//! Failing requests show a lost right late: a running watch survives the loss, and without a change nothing is written.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};
use prometheus::IntGaugeVec;

use crate::core::{
    clock,
    clusterset::well_known::GROUP,
    control::State,
    feature::{Core, Entry, Feature, Question},
    objects::MCS_GROUP,
    server::Metrics,
};

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

/// The feature in the list.
pub(crate) const ENTRY: Entry = Entry {
    start: |_, wiring| Ok(Some(Box::new(Rights::new(&wiring.published.metrics)?))),
    ..Entry::NONE
};

/// The schedule and the last answer of the check.
struct Rights {
    missing: Vec<Right>,
    next_at: Option<Instant>,
    question: Question<Option<Vec<Right>>>,
    /// How many rights this controller needs and does not have.
    gauge: IntGaugeVec,
}

impl Rights {
    fn new(metrics: &Metrics) -> prometheus::Result<Self> {
        let gauge = metrics.gauges(
            "mcs_controller_missing_rights",
            "Rights in its own cluster that the controller needs and does not have",
            &[],
        )?;
        Ok(Self { missing: vec![], next_at: None, question: Question::default(), gauge })
    }

    /// Whether it is time to ask.
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = !self.question.is_asked() && self.next_at.is_none_or(|at| now >= at);
        if is_due {
            self.next_at = Some(now + PERIOD);
        }
        is_due
    }

    /// Records the missing rights; `None` if the API server did not say.
    fn note(&mut self, answer: Option<Vec<Right>>, now: Instant) {
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
            self.next_at = Some(now + AGAIN);
        }
        let count = i64::try_from(self.missing.len()).unwrap_or(i64::MAX);
        self.gauge.with_label_values::<&str>(&[]).set(count);
    }
}

impl Feature for Rights {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.question.poll(cx).map(|answer| self.note(answer, clock::now()))
    }

    fn act(&mut self, core: &mut Core, now: Instant) {
        if !core.is_leader || !self.is_due(now) {
            return;
        }
        let access = Arc::clone(&core.access);
        self.question.ask(async move {
            let connection = access.connection().await.ok()?;
            missing(|right| may(&connection.client, None, right)).await.ok()
        });
    }

    fn lead(&mut self, _: bool, _: &mut State, _: Instant) {
        (self.missing, self.next_at, self.question) = (vec![], None, Question::default());
        self.gauge.reset();
    }

    #[cfg(test)]
    fn fill_metrics(&self) {
        self.gauge.with_label_values::<&str>(&[]).set(0);
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
        let mut rights = Rights::new(&Metrics::new().unwrap()).unwrap();
        assert!(rights.is_due(now));
        rights.question.ask(std::future::pending());
        assert!(!rights.is_due(now + PERIOD * 2), "it is under way");
        rights.question = Question::default();
        rights.note(Some(vec![NEEDED[0]]), now);
        assert_eq!(rights.missing, [NEEDED[0]]);
        assert!(rights.is_due(now + AGAIN));
        rights.note(None, now + AGAIN);
        assert_eq!(rights.missing, [NEEDED[0]]);
        assert!(!rights.is_due(now + AGAIN));
        assert!(rights.is_due(now + AGAIN * 2));
        rights.note(Some(Vec::new()), now + AGAIN * 2);
        assert!(rights.missing.is_empty());
        assert!(!rights.is_due(now + PERIOD));
        assert!(rights.is_due(now + AGAIN * 2 + PERIOD));
    }
}
