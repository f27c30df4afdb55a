//! Suite `upstream`: Kubernetes' own specs of its network, with the agent in kube-proxy's place.
//!
//! A cluster of six nodes in three zones; each Service is an import of its own ClusterIPs. A second cluster has one node.

use std::process::ExitCode;

use mcs_tests::suite::Suite;

use crate::world::World;

mod agents;
mod guard;
mod images;
mod mirror;
mod specs;
mod world;

fn main() -> ExitCode {
    let mut suite = Suite::default();
    suite.case("without kube-proxy, pods by sockets", World::without_proxy);
    suite.case("beside kube-proxy, pods by packets", World::by_packets);
    suite.full("beside kube-proxy, which serves node ports alone", World::beside_proxy);
    suite.full("beside kube-proxy, pods of another cluster serve", World::elsewhere);
    suite.on_clusters(World::begin)
}
