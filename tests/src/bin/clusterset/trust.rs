//! What the API server takes of a ClusterPeer.

use anyhow::{Context as _, ensure};
use mcs_tests::suite::Suite;
use serde_json::{Value, json};

use crate::{
    peering,
    world::{POD_RANGES, World},
};

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a ClusterPeer that no controller can use is refused", refused);
}

fn refused(world: &mut World) -> anyhow::Result<()> {
    let (api, good) = (world.second().api(), peering::peer(world.first(), POD_RANGES[0]));
    let with = |field: &str, value: &Value| {
        let mut peer = good.clone();
        peer["spec"][field] = value.clone();
        api.would_apply(&peer)
    };
    for range in [
        "10.2.0.0/33",
        "10.2.0/16",
        "10.2.0.256/16",
        "010.2.0.0/16",
        "10.2.0.0",
        "0.0.0.0/0",
        "fd00::/129",
        "fd00:::/8",
        "fd00::1::/64",
        "::/0",
        "1:2:3:4:5:6:7:8:9/64",
        "east",
    ] {
        ensure!(with("podCIDRs", &json!([POD_RANGES[0], range])).is_err(), "{range} is taken");
    }
    for range in ["10.2.0.0/16", "0.0.0.0/1", "fd02::/48", "::/1", "1:2:3:4:5:6:7:8/128"] {
        with("podCIDRs", &json!([range])).with_context(|| range.to_owned())?;
    }
    for pattern in ["Shop", "*-shop", "sh*p", "shop/web", ""] {
        for field in ["allow", "deny"] {
            let rules = json!({ field: [pattern] });
            ensure!(with("namespaces", &rules).is_err(), "{rules} is taken");
        }
    }
    for pattern in ["shop", "shop-*", "*"] {
        with("namespaces", &json!({ "allow": [pattern] })).with_context(|| pattern.to_owned())?;
    }
    for (field, value) in [("weight", json!(1001)), ("whenStale", json!("forget"))] {
        ensure!(with(field, &value).is_err(), "{field} {value} is taken");
    }
    let error = with("podCIDRs", &json!(["10.2.0.0/33"])).err().context("it is taken")?;
    ensure!(format!("{error:#}").contains("spec.podCIDRs[0]"), "{error:#}");
    Ok(())
}
