//! Cluster selectors (KEP-5939): an import tells agents which clusters should serve it first, by the ClusterProperties of
//! each.

mod border;
mod selectors;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use mcs_kube::{Tiers, reasons::Reason, wish::Border};

use self::selectors::Selectors;
use crate::core::{
    apply::ApplyError,
    clusterset::{
        Actual, ClusterId, Condition, ConditionStatus, ConditionType, Export, Properties,
        ServiceType, Wanted, WantedImport, bounded, in_import, well_known,
    },
    control::{Planned, State},
    feature::{Core, Entry, Feature},
    status::{Failures, Turn},
};

/// The feature in the list.
pub(crate) const ENTRY: Entry =
    Entry { start: |_, _| Ok(Some(Box::new(Chooser::default()))), ..Entry::NONE };

#[derive(Default)]
struct Chooser {
    /// Whether ServiceImports have no `status.clusterSelectorResults`.
    lacks_results: bool,
    /// Whether peers do not get all ClusterProperties.
    untold: Failures<()>,
    /// What the operator of this cluster wanted when all imports were planned the last time.
    border: Option<Border>,
}

/// The ClusterProperties of each cluster, as far as they are known.
type Known = BTreeMap<ClusterId, Arc<Properties>>;

fn known(state: &State) -> Known {
    let own = state.own_properties().map(|own| (state.cluster().clone(), own));
    let peers = state.peers.by_cluster(state.cluster()).into_iter().filter_map(|peer| {
        Some((peer.object.cluster.clone(), Arc::clone(peer.view.properties()?)))
    });
    own.into_iter().chain(peers).collect()
}

/// Adds the results of the cluster selectors to the import. While they are unknown, the import keeps its results, and a
/// condition says so.
fn add_tiers(
    wanted: &mut Wanted,
    actual: &Actual,
    importer: &ClusterId,
    known: &dyn Fn() -> Known,
    of_operator: Option<Border>,
) {
    let WantedImport::Present(import, status) = &mut wanted.import else { return };
    let spec = &mut import.spec;
    // The names of a headless service resolve to the pods of all clusters.
    let text = spec.annotations.get(well_known::CLUSTER_SELECTORS).cloned();
    let Some(text) = text.filter(|_| spec.service_type == ServiceType::ClusterSetIp) else {
        return;
    };
    let selectors = Selectors::parse(&text);
    if selectors.as_ref().is_ok_and(Selectors::is_empty) {
        return;
    }
    let current = actual.import.as_ref();
    let stays = || -> Option<Tiers> {
        current.and_then(|now| now.import.tiers.clone().or_else(|| now.status.tiers.clone()))
    };
    // Results of other selectors say nothing of these.
    let is_of_these = current.is_some_and(|now| {
        now.import.spec.annotations.get(well_known::CLUSTER_SELECTORS) == Some(&text)
    });
    let is_bordered = border::add(&mut spec.annotations, of_operator).is_some();
    let former = || is_bordered.then(|| stays().filter(|_| is_of_these).unwrap_or_default());
    let resolved = match selectors {
        Ok(selectors) => selectors.resolve(importer, &status.clusters, &known(), former().as_ref()),
        Err(error) => Err((Reason::InvalidClusterSelector, error)),
    };
    let (tiers, unresolved) = match resolved {
        Ok(tiers) => (Some(tiers), None),
        // Results do not change for an unreadable cluster: each change of the import costs every node.
        Err((Reason::PropertiesUnknown, _)) if wanted.has_unread => {
            let said =
                current.and_then(|now| now.status.condition(ConditionType::SelectorsResolved));
            (stays(), said.cloned())
        }
        Err((reason, error)) => {
            let message = in_import(format!("clusters are preferred as before: {error}"));
            let kind = ConditionType::SelectorsResolved;
            (stays(), Some(Condition::new(kind, ConditionStatus::False, reason, message)))
        }
    };
    if let Some(tiers) = tiers.as_ref().filter(|_| is_bordered) {
        border::judge(status, &wanted.endpoints, tiers);
    }
    import.tiers.clone_from(&tiers);
    status.tiers = tiers;
    // The condition `Accepted` is the last.
    let place = status.conditions.len().saturating_sub(1);
    status.conditions.splice(place..place, unresolved);
}

/// Says on an export that its selectors are unusable. The Service is exported nevertheless.
fn judge(export: &Export, conditions: &mut [Condition]) {
    let Some((reason, problem)) = problem(export) else { return };
    let valid = conditions.iter_mut().find(|one| one.condition_type == ConditionType::Valid);
    let Some(valid) = valid else { return };
    if valid.status == ConditionStatus::True {
        valid.message = bounded(problem);
    } else if valid.reason == Reason::InvalidAnnotation {
        valid.message = bounded(format!("{problem}; {}", valid.message));
    } else {
        return;
    }
    (valid.status, valid.reason) = (ConditionStatus::False, reason.to_string());
}

/// Why the selectors of an export are unusable: a reason and a message.
fn problem(export: &Export) -> Option<(Reason, String)> {
    let spec = export.spec()?;
    let text = spec.annotations.get(well_known::CLUSTER_SELECTORS)?;
    match Selectors::parse(text) {
        Err(error) => Some((
            Reason::InvalidClusterSelector,
            format!("importing clusters prefer the clusters that they preferred before: {error}"),
        )),
        Ok(selectors) if spec.service_type == ServiceType::Headless && !selectors.is_empty() => {
            Some((
                Reason::InvalidServiceType,
                "the Service is headless: its names resolve to the pods of all clusters, whatever its cluster selectors are"
                    .to_owned(),
            ))
        }
        Ok(_) => None,
    }
}

/// The border that the operator of this cluster wants for every service with selectors.
fn of_operator(state: &State) -> Option<Border> {
    border::wanted(state.own.property(well_known::FALLBACK_PROPERTY))
}

impl Feature for Chooser {
    fn act(&mut self, core: &mut Core, _: Instant) {
        if core.state.own.knows_properties() {
            let border = of_operator(&core.state);
            if border != std::mem::replace(&mut self.border, border) {
                core.state.queue_all();
            }
        }
        if !core.may_tell_agents() {
            return;
        }
        let left_out = core.state.own.published_properties().1;
        let problem = (left_out > 0).then(|| {
            format!("{left_out} ClusterProperties are more than peers get: no cluster selector sees them")
        });
        match (self.untold.note((), problem.as_deref()), problem) {
            (Turn::Fails, Some(problem)) => tracing::warn!("{problem}"),
            (Turn::Recovered, _) => tracing::info!("peers get all ClusterProperties again"),
            _ => {}
        }
    }

    fn shape(&self, plan: &mut Planned, state: &State) {
        let of_operator = if state.own.knows_properties() {
            of_operator(state)
        } else {
            // What the import has stays while nobody can read what the operator wants.
            let now = plan.actual.import.as_ref();
            now.and_then(|now| border::written(&now.import.spec.annotations))
        };
        let known = || known(state);
        add_tiers(&mut plan.wanted, &plan.actual, state.cluster(), &known, of_operator);
        if let (true, WantedImport::Present(_, status)) =
            (self.lacks_results, &mut plan.wanted.import)
        {
            status.tiers = None;
        }
        if let (Some(conditions), Some(export)) = (&mut plan.wanted.export_conditions, &plan.export)
        {
            judge(export, conditions);
        }
    }

    fn does_without(&mut self, error: &ApplyError) -> bool {
        let lacks = error.is_unknown_field("clusterSelectorResults");
        if lacks && !std::mem::replace(&mut self.lacks_results, true) {
            tracing::info!(
                "ServiceImports of this cluster have no status.clusterSelectorResults: an annotation has the results"
            );
        }
        lacks
    }
}
