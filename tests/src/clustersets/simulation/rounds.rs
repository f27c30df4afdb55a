//! Rounds of things that come and go, each with names of its own: what a controller keeps of them is bounded.

use std::{fmt::Write as _, path::Path};

use anyhow::ensure;

use super::{super::Story, weighed};
use crate::suite::tell;

/// Few rounds, after which all tables and buffers have been used, and many.
const ROUNDS: [usize; 2] = [20, 100];
/// How much more controllers may hold after many: buffers grow by halves.
const MORE: u64 = 32 << 10;

/// Services, peers, nodes, namespaces and rules of this number come and go, and an API server refuses some of what follows.
fn round(number: usize) -> String {
    let service = format!("shop/s{number}-{{1..3}}");
    let mut text = String::new();
    for of in ["c1", "c2"] {
        let _ = writeln!(text, "-- export {of} {service} 10.{}.0.1 --", &of[1..]);
    }
    let _ = write!(
        text,
        "-- refuse c2 * endpointslices s{number}-2 403 --\nexceeded quota\n\
         -- refuse c1 * exportedservices shop.s{number}-3 422 --\ninvalid\n\
         -- apply c1 --\nkind: Namespace\nmetadata: {{name: n{number}}}\n---\n\
         kind: Node\nmetadata: {{name: n{number}}}\nspec: {{podCIDRs: [10.1.{number}.0/24]}}\n---\n\
         kind: ClusterPeer\nmetadata: {{name: p{number}}}\nspec: {{clusterId: p{number}, \
         kubeconfigSecretRef: {{name: peer-c2}}, mailbox: m{number}, podCIDRs: [10.{number}.0.0/16]}}\n---\n\
         kind: ExportRule\nmetadata: {{name: r{number}}}\n\
         -- rotate c1 c2 --\n-- wait 40 --\n-- dies c2 2 --\n-- allow c1 c2 --\n-- wait 70 --\n"
    );
    for one in 1..=3 {
        for of in ["c1", "c2"] {
            let _ = write!(
                text,
                "-- delete {of} Service shop/s{number}-{one} --\n-- unexport {of} shop/s{number}-{one} --\n\
                 -- delete {of} EndpointSlice shop/s{number}-{one}-ipv4 --\n"
            );
        }
    }
    let _ = write!(
        text,
        "-- delete c1 Namespace n{number} --\n-- delete c1 Node n{number} --\n-- delete c1 ClusterPeer p{number} --\n\
         -- delete c1 ExportRule shop/r{number} --\n-- forgets c1 c2 --\n-- wait 30 --\n"
    );
    text
}

/// Compares what controllers hold after few rounds and after many.
pub(super) fn check(held: fn() -> u64) -> anyhow::Result<()> {
    let weigh = |rounds: usize| {
        let all: String = (1..=rounds).map(round).collect();
        let text = format!("{all}-- allow c1 c2 --\n-- wait 4000 --\n-- settle 10 --\n");
        weighed(&Story::parse(Path::new("rounds"), &text)?, held)
    };
    let [few, many] = [weigh(ROUNDS[0])?, weigh(ROUNDS[1])?];
    tell(format!(
        "two controllers hold {few} bytes after {} rounds, {many} after {}",
        ROUNDS[0], ROUNDS[1]
    ));
    ensure!(
        many <= few + MORE,
        "{many} bytes after {} rounds are more than {few} after {}",
        ROUNDS[1],
        ROUNDS[0]
    );
    Ok(())
}
