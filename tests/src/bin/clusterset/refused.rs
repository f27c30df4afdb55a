//! As much of a Service as an API server takes.

use anyhow::{Context as _, ensure};
use mcs_tests::suite::Suite;
use serde_json::json;

use crate::{
    objects::service,
    world::{World, slice_of},
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a Service with more than Kubernetes' least is exported", wide_service);
}

/// As much as an API server takes of a Service.
fn wide_service(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.fresh()?;
    let (first, second) = (world.first(), world.second());
    let mut wide = service(&namespace);
    let protocol = format!("{}.{}/{}", "a".repeat(63), "b.".repeat(94) + "b", "c".repeat(63));
    wide["spec"]["ports"][0]["appProtocol"] = json!(protocol);
    let ports = wide["spec"]["ports"].as_array_mut().context("ports")?;
    let further = (0..1001).map(
        |number| json!({ "name": format!("p{number}"), "port": 1000 + number, "protocol": "TCP" }),
    );
    ports.extend(further);
    first.export(&wide, Some(&slice_of(&namespace, 0, 1)))?;
    first.wait_for_conditions(&namespace, &["Ready=True/Exported"])?;
    second.wait_for_import(&namespace, |import| {
        let ports = import["spec"]["ports"].as_array().context("no ports")?;
        ensure!(ports.len() == 1003, "{} ports", ports.len());
        ensure!(ports.iter().any(|port| port["appProtocol"] == protocol), "no protocol");
        Ok(())
    })?;
    first.unexport(&namespace)?;
    second.wait_for_nothing(&namespace)
}
