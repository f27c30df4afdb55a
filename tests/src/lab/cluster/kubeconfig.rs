//! Writes kubeconfigs: the address of an API server, and a client's certificate.

use std::{fs, path::Path};

use serde_json::json;

use super::{
    certificates::{Authority, User},
    layout::Cluster,
};

/// Writes the kubeconfig of `user`, whose certificate is made for it.
pub(super) fn write(
    authority: &Authority,
    cluster: Cluster,
    path: &Path,
    user: &User<'_>,
) -> anyhow::Result<()> {
    let client = authority.client(&user.name.replace(':', "-"), user)?;
    let name = cluster.to_string();
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
        "clusters": [{
            "name": name,
            "cluster": {
                "server": format!("https://{}", cluster.api_server()),
                "certificate-authority": authority.certificate(),
            },
        }],
        "users": [{
            "name": name,
            "user": { "client-certificate": client.certificate, "client-key": client.key },
        }],
    });
    Ok(fs::write(path, format!("{config:#}\n"))?)
}
