//! Prints commands to try if `--keep` leaves everything in place.

use std::path::Path;

use super::{
    example::{Cluster, Family, SERVICE},
    world::{Place, World},
};

/// Commands to type, and how to remove everything.
pub(super) fn commands(world: &World, agent: &Path) -> String {
    let client = world.script(Place::Client);
    let (client, node) = (client.display(), world.script(Place::Node));
    let (agent, bpffs) = (agent.display(), world.bpffs.path().display());
    format!(
        "As a process of the client or of the node (these scripts enter its cgroup and namespace):\n\
         \x20 {client} curl http://{v4}/\n\
         \x20 echo | {client} nc -u -w1 {v4} 9000\n\
         \x20 {node} curl 'http://[{v6}]/'\n\
         \x20 {client} bash\n\
         \x20 {guest} curl http://{v4}/     (no hook sees its sockets)\n\
         \n\
         No route leads to the ClusterSetIP:\n\
         \x20 nsenter --net={netns} ip route\n\
         \n\
         The agent follows the manifests:\n\
         \x20 sed -i '/name: cart-2}}/d' {slices}\n\
         \x20 tail {log}\n\
         \n\
         What it has put into the kernel:\n\
         \x20 {agent} services --bpffs {bpffs}\n\
         \x20 {agent} backends {SERVICE} --bpffs {bpffs}\n\
         \x20 {agent} flows --bpffs {bpffs}\n\
         \x20 {agent} status --bpffs {bpffs}\n\
         \x20 bpftool map dump pinned {bpffs}/mcs/config/frontends\n\
         \n\
         To remove everything, as the next run does too:\n\
         \x20 cargo xtask demo --clean",
        v4 = Family::V4.vip(),
        v6 = Family::V6.vip(),
        node = node.display(),
        guest = world.script(Place::Guest).display(),
        netns = world.netns(Place::Client).path().display(),
        slices = world.manifests.file(Cluster::West).display(),
        log = world.log().display(),
    )
}
