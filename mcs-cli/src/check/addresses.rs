//! Whether the VIP ranges overlap with this cluster's Services and pods.

use anyhow::ensure;
use ipnet::IpNet;
use mcs_kube::{Decoder, WatchedObject};
use serde_json::{Value, from_value};

use super::{Unknown, controller::arguments};
use crate::{
    cluster::{Cluster, DEPLOYMENTS, NODES, SERVICE_RANGES},
    pod_ranges::of_flag,
};
use mcs_controller::core::{
    clusterset::{VipRanges, well_known},
    objects::{NodeDecoder, RangeDecoder},
};

/// The ranges of a cluster.
pub(crate) struct Ranges {
    pub(crate) vips: VipRanges,
    pub(crate) services: Vec<IpNet>,
    pub(crate) pods: Vec<IpNet>,
}

/// Whether a VIP range overlaps with Services or pods.
pub(super) async fn vip_ranges(cluster: &Cluster, namespace: &str) -> anyhow::Result<String> {
    let Ranges { vips, services, pods } = ranges_of(cluster, namespace).await?;
    verdict(&vips, &services, &pods)
}

/// The ranges as the controller knows them. The flags come from the controller's Deployment in that namespace.
pub(crate) async fn ranges_of(cluster: &Cluster, namespace: &str) -> anyhow::Result<Ranges> {
    let deployment = cluster.get(DEPLOYMENTS, Some(namespace), well_known::CONTROLLER).await?;
    let deployment = deployment.unwrap_or_default();
    let property = cluster.property(well_known::CLUSTERSET_PROPERTY).await?;
    let vips = vips_of(&deployment, property.as_deref());
    let mut services = of_flag(&deployment, "--service-cidr");
    if services.is_empty() {
        // Kubernetes before 1.33 has no ServiceCIDRs.
        let ranges = cluster.list_if_served(SERVICE_RANGES).await?;
        services = decoded::<RangeDecoder>(ranges).flatten().collect();
    }
    let mut pods = of_flag(&deployment, "--pod-cidr");
    if pods.is_empty() {
        let nodes = cluster.list(NODES).await?;
        pods = decoded::<NodeDecoder>(nodes).flat_map(|node| node.pod_ranges).collect();
    }
    Ok(Ranges { vips, services, pods })
}

fn verdict(vips: &VipRanges, services: &[IpNet], pods: &[IpNet]) -> anyhow::Result<String> {
    let mut overlaps = vips.overlaps(services, "Services");
    overlaps.extend(vips.overlaps(pods, "pods"));
    ensure!(overlaps.is_empty(), overlaps.join("; "));
    ensure!(
        !services.is_empty(),
        Unknown(
            "the ranges of this cluster's Services are unknown: give the controller --service-cidr (chart: serviceCidrs)"
                .to_owned()
        )
    );
    let VipRanges { v4, v6 } = vips;
    let apart = format!("the VIP ranges {v4} and {v6} are apart from this cluster's Services");
    // Many clusters do not say.
    Ok(if pods.is_empty() {
        format!(
            "{apart}. The ranges of its pods are unknown: give the controller --pod-cidr (chart: podCidrs)"
        )
    } else {
        format!("{apart} and pods")
    })
}

fn decoded<D: Decoder>(objects: Vec<Value>) -> impl Iterator<Item = D::Value> {
    let read = |object| from_value::<WatchedObject<D>>(object).ok()?.decoded.ok();
    objects.into_iter().filter_map(read)
}

fn vips_of(deployment: &Value, property: Option<&str>) -> VipRanges {
    let mut given = arguments(deployment).filter_map(|one| one.strip_prefix("--clusterset="));
    let given = given.next().or(property);
    let mut vips = VipRanges::for_clusterset(given.unwrap_or(well_known::UNNAMED_CLUSTERSET));
    for range in of_flag(deployment, "--vip-cidr") {
        match range {
            IpNet::V4(range) => vips.v4 = range,
            IpNet::V6(range) => vips.v6 = range,
        }
    }
    vips
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_overlap_is_found() {
        let deployment = |arguments: &[&str]| {
            let containers = json!([{"args": arguments}]);
            json!({"spec": {"template": {"spec": {"containers": containers}}}})
        };
        let nets = |texts: &[&str]| -> Vec<IpNet> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let default = vips_of(&json!({}), None);
        assert_eq!(default, VipRanges::for_clusterset("clusterset"));
        assert_eq!(vips_of(&json!({}), Some("shop")), VipRanges::for_clusterset("shop"));
        let given = deployment(&["run", "--vip-cidr=10.9.0.0/16,fd00:9::/64", "--clusterset=x"]);
        let vips = vips_of(&given, Some("shop"));
        assert_eq!(
            (vips.v4.to_string(), vips.v6.to_string()),
            ("10.9.0.0/16".into(), "fd00:9::/64".into())
        );
        let services = nets(&["10.96.0.0/16"]);
        let fine = verdict(&vips, &services, &nets(&["10.1.0.0/16"])).unwrap();
        assert!(fine.ends_with("apart from this cluster's Services and pods"), "{fine}");
        let fine = verdict(&vips, &services, &[]).unwrap();
        assert!(fine.contains("The ranges of its pods are unknown"), "{fine}");
        let found = verdict(&vips, &services, &nets(&["10.0.0.0/8"])).unwrap_err().to_string();
        assert!(
            found.contains("10.9.0.0/16 overlaps with 10.0.0.0/8 of this cluster's pods"),
            "{found}"
        );
        let found = verdict(&vips, &nets(&["10.9.96.0/24"]), &[]).unwrap_err().to_string();
        assert!(found.contains("10.9.96.0/24 of this cluster's Services"), "{found}");
        let unknown = verdict(&vips, &[], &[]).unwrap_err();
        assert!(unknown.is::<Unknown>() && unknown.to_string().contains("--service-cidr"));
    }
}
