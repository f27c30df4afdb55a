//! The feature in the agent: rounds of connects, and silent clusters that this node ejects by them.

use std::{collections::BTreeMap, future::ready};

use super::{Reach, ReachEvent, SECTION};
use crate::core::feature::{Act, Core, Feature, Follow, Sections, Wait};

pub(super) struct PeerReach {
    pub(super) reach: Reach,
    pub(super) event: Option<ReachEvent>,
}

impl PeerReach {
    /// Looks which clusters are silent and none of whose pods this node reaches, and says what has changed.
    fn judge_clusters(&mut self, core: &mut Core) -> Follow {
        let before = core.engine.ejected_clusters().clone();
        let traffic = &core.engine.node().facts.traffic;
        self.reach.hurry(traffic);
        // Nobody asks pods of a cluster that is not used. So it is not used again before its controller is heard.
        let how = |cluster: &str| match (before.get(cluster), self.reach.silent(cluster)) {
            (Some(before), Some(now)) => Some(before.and(now)),
            (before, now) => before.copied().or(now),
        };
        let ejected: BTreeMap<_, _> = traffic
            .ejectable()
            .filter_map(|cluster| Some((cluster.clone(), how(cluster)?)))
            .collect();
        for (cluster, how) in ejected.iter().filter(|(id, how)| before.get(*id) != Some(how)) {
            let family = how.family();
            tracing::warn!(
                "cluster {cluster} is silent, and none of its pods answers this node{family}: new clients and UDP clients get \
                 other clusters"
            );
        }
        for cluster in before.keys().filter(|id| !ejected.contains_key(*id)) {
            tracing::info!("new clients get cluster {cluster} again");
        }
        if core.engine.set_ejected_clusters(ejected) { Follow::Round } else { Follow::Nothing }
    }
}

impl Feature for PeerReach {
    fn wait(&mut self) -> Wait<'_> {
        Box::pin(async { self.event = Some(self.reach.next().await) })
    }

    fn act<'a>(&'a mut self, core: &'a mut Core) -> Act<'a> {
        let follow = match self.event.take() {
            Some(ReachEvent::Due) => {
                let facts = &core.engine.node().facts;
                self.reach.begin(
                    core.engine.desired(),
                    facts.cluster_id.as_deref(),
                    &facts.traffic,
                );
                Follow::Nothing
            }
            Some(ReachEvent::Ended) => self.judge_clusters(core).max(Follow::Report),
            None => Follow::Nothing,
        };
        Box::pin(ready(follow))
    }

    fn after_objects(&mut self, core: &mut Core) {
        // A round follows.
        self.judge_clusters(core);
    }

    fn each_second(&mut self, core: &mut Core) -> Follow {
        self.judge_clusters(core)
    }

    fn report(&self, _: &Core, sections: &mut Sections) {
        sections.set(SECTION, &self.reach.report());
    }
}
