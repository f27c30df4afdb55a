//! A network policy by address applies to connections through the VIP, whoever serves it.

use std::sync::Arc;

use crate::prelude::*;

/// Connections of each family.
const CONNECTIONS: usize = 40;
/// The backend that the pod may not reach.
const FORBIDDEN: u8 = ProxiedNode::REMOTE_PODS[0];
/// The node's table with the policy.
const TABLE: &str = "mcs-test-policy";

pub(crate) fn cases(suite: &mut Suite<World>) {
    suite.case("a policy that forbids a backend forbids it through the VIP", |world| {
        world.set_agent(false)?;
        world.set_import(Import::Complete)?;
        let policies: Vec<_> = world
            .nodes
            .iter()
            .map(|proxied| Policy::create(&proxied.node))
            .collect::<Result<_>>()?;
        obeyed(world, "kube-proxy")?;
        world.set_agent(true)?;
        obeyed(world, "the agent")?;
        drop(policies);
        Ok(())
    });
}

/// A rule in the forward path of a node, as a CNI's network policy ends in: a pod may not reach one backend.
struct Policy {
    netns: Arc<Namespace>,
}

impl Policy {
    fn create(node: &ProxiedNode) -> Result<Self> {
        let pod = &node.pods[0];
        let [v4, v6] = ProxiedNode::remote_pod(FORBIDDEN);
        let rules = format!(
            "table inet {TABLE} {{\n\
             chain forward {{\n\
             type filter hook forward priority filter;\n\
             ip saddr {} ip daddr {v4} meta l4proto tcp reject with tcp reset\n\
             ip6 saddr {} ip6 daddr {v6} meta l4proto tcp reject with tcp reset\n\
             }}\n}}",
            pod.v4(),
            pod.v6(),
        );
        node.netns.output("nft", &[&rules])?;
        Ok(Self { netns: Arc::clone(&node.netns) })
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        if let Err(error) = self.netns.output("nft", &["delete", "table", "inet", TABLE]) {
            eprintln!("cannot delete a policy: {error:#}");
        }
    }
}

/// Connects from the pod and from the host of every node. The pod reaches all backends but the forbidden one, the host
/// reaches all.
fn obeyed(world: &World, who: &str) -> Result {
    for proxied in &world.nodes {
        for place in Place::BOTH {
            for family in Family::ON_WIRE {
                let outcome = proxied
                    .node
                    .as_client(place, || connect_often(&world.service, family))
                    .with_context(|| format!("{who}, {proxied}, {place}, {family}"))?;
                let Outcome { answered, refused, forbidden } = outcome;
                let found = format!(
                    "{who}, {proxied}, {place}, {family}: {answered} answered, {forbidden} of these \
                     by the forbidden backend, {refused} refused"
                );
                let right = match place {
                    Place::Pod => forbidden == 0 && refused > 0 && answered > 0,
                    Place::Host => forbidden > 0 && refused == 0,
                };
                ensure!(right, "{found}");
                tell(found);
            }
        }
    }
    Ok(())
}

/// What became of connections.
#[derive(Default)]
struct Outcome {
    answered: usize,
    refused: usize,
    forbidden: usize,
}

fn connect_often(service: &DerivedService, family: Family) -> Result<Outcome> {
    let vip = service.at(family, Protocol::Tcp);
    let forbidden = ProxiedNode::remote_pod(FORBIDDEN);
    let mut outcome = Outcome::default();
    for _ in 0..CONNECTIONS {
        let stream = tcp(family)?;
        match connect(&stream, vip) {
            Ok(()) => {
                outcome.answered += 1;
                let backend = identity(&stream)?;
                outcome.forbidden += usize::from(forbidden.contains(&backend.ip()));
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => outcome.refused += 1,
            Err(error) => bail!("connect: {error}"),
        }
    }
    Ok(outcome)
}
