//! Whether ServiceAccounts may do what they have to.

use anyhow::ensure;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::{Api, api::PostParams};

use crate::cluster::Cluster;
use mcs_controller::{
    clusterset::well_known::{self, GROUP},
    objects::MCS_GROUP,
};

/// Verb, group and resource.
pub(crate) type Right = (&'static str, &'static str, &'static str);

const SLICES: &str = "discovery.k8s.io";

/// What the controller needs in all namespaces.
const OF_CONTROLLER: [Right; 15] = [
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
    // The admission policy asks for it.
    ("write", GROUP, "importedobjects"),
];

/// Whether the controller in that namespace has its rights.
pub(super) async fn of_controller(cluster: &Cluster, namespace: &str) -> anyhow::Result<String> {
    let account = format!("{namespace}:{}", well_known::CONTROLLER);
    let mut missing = Vec::new();
    for right in OF_CONTROLLER {
        if !may(cluster, &account, right).await? {
            missing.push(format!("{} {}", right.0, right.2));
        }
    }
    ensure!(
        missing.is_empty(),
        "the ServiceAccount {account} may not {}: install the chart mcs-controller in namespace {namespace}, or give \
         --namespace",
        missing.join(", ")
    );
    Ok(format!("the ServiceAccount {account} may write imports and slices"))
}

/// Whether a ServiceAccount, as `namespace:name`, has a right in all namespaces.
pub(super) async fn may(cluster: &Cluster, account: &str, right: Right) -> anyhow::Result<bool> {
    let (verb, group, resource) = right;
    let mut parts = resource.split('/').map(str::to_owned);
    let reviews: Api<SubjectAccessReview> = Api::all(cluster.client().await?);
    let attributes = ResourceAttributes {
        group: Some(group.to_owned()),
        resource: parts.next(),
        subresource: parts.next(),
        verb: Some(verb.to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SubjectAccessReviewSpec {
        user: Some(format!("system:serviceaccount:{account}")),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
