//! Whether ServiceAccounts have their rights.

use anyhow::ensure;
use k8s_openapi::api::authorization::v1::{SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{Api, api::PostParams};

use crate::cluster::Cluster;
use mcs_controller::{
    core::clusterset::well_known,
    features::rights::{Right, attributes, listed, missing},
};

/// Whether the controller in that namespace has its rights.
pub(super) async fn of_controller(cluster: &Cluster, namespace: &str) -> anyhow::Result<String> {
    let account = format!("{namespace}:{}", well_known::CONTROLLER);
    let missing = missing(|right| may(cluster, &account, right)).await?;
    ensure!(
        missing.is_empty(),
        "the ServiceAccount {account} may not {}: install the chart mcs-controller in namespace {namespace}, or give \
         --namespace",
        listed(&missing)
    );
    Ok(format!("the ServiceAccount {account} may write imports and slices"))
}

/// Whether a ServiceAccount, as `namespace:name`, has a right in all namespaces.
pub(super) async fn may(cluster: &Cluster, account: &str, right: Right) -> anyhow::Result<bool> {
    let reviews: Api<SubjectAccessReview> = Api::all(cluster.client().await?);
    let spec = SubjectAccessReviewSpec {
        user: Some(format!("system:serviceaccount:{account}")),
        resource_attributes: Some(attributes(right)),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
