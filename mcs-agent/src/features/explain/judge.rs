//! Finds what is wrong with an import that is asked about, and with its frontends.

use std::collections::{BTreeMap, BTreeSet};

use mcs_kube::{
    program::{finding::Finding, suggest},
    reasons::{Code, Coded, Severity},
};

use super::{
    ExplainedImports,
    fates::hyphenated,
    frontends::FrontendView,
    list,
    rules::Explanation,
    target::{Target, What},
};
use crate::core::{
    control::Report,
    model::{EjectionState, ImportState, Kind, ObjectKey, Rejection, RejectionReason, Unreachable},
    rules::{Fallback, Fate},
    tables::MapView,
};

/// How many rejections for one reason are told.
const REJECTIONS: usize = 5;

/// Where imports are known from. An import that was not read does not count as missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Knowledge {
    /// From the source, by the rules.
    Rules,
    /// From the agent's last report.
    Report,
    /// From the maps alone.
    Maps,
}

/// What is known.
#[derive(Clone, Copy)]
pub(super) struct Judge<'a> {
    pub(super) target: &'a Target,
    pub(super) frontends: &'a [FrontendView],
    pub(super) maps: &'a MapView,
    pub(super) report: Option<&'a Report>,
    pub(super) known: Knowledge,
    /// The imports that there are.
    pub(super) imports: &'a [ObjectKey],
}

impl Judge<'_> {
    /// Returns what it finds, and corrects the fates of endpoints that the maps do not have.
    pub(super) fn judge(&self, explained: &mut ExplainedImports) -> Vec<Finding> {
        let mut findings = Vec::new();
        let Some((key, first)) = explained.first_mut() else {
            findings.extend(self.without_import());
            return findings;
        };
        let no_room = self.no_room(key);
        findings.extend(no_room.map(|why| Finding::new(Code::NoRoom, why.message.clone())));
        self.judge_import(key, first, &mut findings);
        findings.extend(first.fallbacks.iter().map(finding_of));
        findings.extend(self.silent(first));
        self.correct_fates(first, if no_room.is_some() { Fate::NoRoom } else { Fate::NotWritten });
        for frontend in self.frontends {
            frontend.judge(no_room.is_some(), &first.slices, &mut findings);
        }
        for (other, one) in &explained[1..] {
            let mut rejections = one.rejections.iter();
            if let Some(taken) = rejections.find(|one| one.reason == RejectionReason::FrontendTaken)
            {
                let message = format!("{other} asks for it too: {}", taken.message);
                findings.push(of_rule(Severity::Note, taken.reason, &message));
            }
        }
        findings
    }

    /// No import has the address.
    fn without_import(&self) -> Option<Finding> {
        let What::Vip(ip) = self.target.what else { return None };
        if let Some(departure) = self.maps.departed.get(&ip) {
            let what = format!("{ip} is {departure}: {}", departure.meaning());
            return Some(Finding::new(Code::Departed, what));
        }
        let lacks_room = |report: &Report| {
            report.common.rejection_counts.contains_key(&RejectionReason::Capacity)
        };
        if self.maps.vips.contains(&ip) && self.report.is_some_and(lacks_room) {
            let what = format!(
                "the maps have {ip} without a port: `mcs-agent status` lists what does not fit"
            );
            return Some(Finding::new(Code::NoRoom, what));
        }
        let nobody =
            if self.known == Knowledge::Rules { "ServiceImport" } else { "frontend in the maps" };
        let what = format!("no {nobody} has {ip}");
        Some(Finding::new(Code::UnknownVip, what))
    }

    /// The source clusters that give no sign of life, where nodes are to eject them.
    fn silent(&self, explanation: &Explanation) -> Vec<Finding> {
        let Some(report) = self.report else { return Vec::new() };
        let traffic = &report.common.node.traffic;
        let clusters: BTreeSet<_> = explanation.slices.iter().map(|one| &one.cluster).collect();
        let silent = clusters.into_iter().filter(|cluster| traffic.may_eject(cluster));
        let told = silent.map(|cluster| {
            let ejected = traffic.ejected(cluster);
            let does = if traffic.is_drained(cluster) || ejected.is_some() {
                "new clients get other clusters"
            } else {
                "its endpoints are used as it told them last, until this node reaches none of its pods"
            };
            let family = ejected.map_or("", Unreachable::family);
            Finding::new(Code::PeerSilent, format!("{cluster} gives no sign of life: {does}{family}"))
        });
        told.collect()
    }

    /// Why the agent has no room for all of an import. The rules know this only with every object.
    fn no_room(&self, key: &ObjectKey) -> Option<&Rejection> {
        let mut rejections = self.report?.common.rejections.iter();
        rejections.find(|one| one.reason == RejectionReason::Capacity && one.object.key == *key)
    }

    fn judge_import(
        &self,
        key: &ObjectKey,
        explanation: &Explanation,
        findings: &mut Vec<Finding>,
    ) {
        let Some(report) = &explanation.report else {
            // Without a source and a report nobody knows which imports there are.
            if self.known != Knowledge::Maps {
                let meant = similar(key, self.imports);
                let meant = meant.map(|meant| format!(": did you mean {meant}?"));
                let what = format!("there is no ServiceImport {key}{}", meant.unwrap_or_default());
                findings.push(Finding::new(Code::UnknownImport, what));
            }
            return;
        };
        let before = findings.len();
        add_rejections(key, &explanation.rejections, findings);
        if let Some(reason) = report.left_alone {
            findings.push(of_rule(Severity::Wrong, reason, &report.message));
            return;
        }
        if report.state == ImportState::Rejected {
            if findings.len() == before {
                findings.push(Finding::new(Code::Rejected, report.message.clone()));
            }
            return;
        }
        let has_backends = self.frontends.iter().any(|one| !one.backends.is_empty());
        if self.known == Knowledge::Rules && explanation.slices.is_empty() && !has_backends {
            findings.push(Finding::new(Code::NoSlices, format!("{key} has no EndpointSlice")));
        }
        if self.target.port.is_some() && self.frontends.is_empty() && self.no_room(key).is_none() {
            let ports = explanation.frontends.iter().map(|(id, _)| (id.port, id.protocol));
            let ports: BTreeSet<_> = ports.collect();
            let has = list(ports.iter().map(|(port, protocol)| format!("{port}/{protocol}")));
            let has = if has.is_empty() { "none" } else { &has };
            let what = format!("{}: {key} has no such port; it has {has}", self.target);
            findings.push(Finding::new(Code::UnknownPort, what));
        }
        findings.extend(self.unanswered(key));
    }

    /// The backends of an import that answer the agent, and no client of this node, by passive health.
    fn unanswered(&self, key: &ObjectKey) -> Option<Finding> {
        let ejections = self.report.into_iter().flat_map(|report| &report.ejections);
        let of_key = ejections.filter(|one| one.import == *key);
        let alone = of_key.filter(|one| one.state == EjectionState::AnswersAgent);
        let backends: Vec<_> = alone.map(|one| one.backend.to_string()).collect();
        (!backends.is_empty()).then(|| {
            let what =
                format!("{}: no client of this node gets an answer", list(backends.into_iter()));
            Finding::new(Code::ClientsUnanswered, what)
        })
    }

    /// The rules use some endpoints that the maps do not have: `fate` says why.
    fn correct_fates(&self, explanation: &mut Explanation, fate: Fate) {
        let missing: BTreeSet<_> = self.frontends.iter().flat_map(|one| &one.missing).collect();
        let endpoints = explanation.slices.iter_mut().flat_map(|slice| &mut slice.endpoints);
        for one in endpoints.flat_map(|endpoint| &mut endpoint.fates) {
            let is_missing = one.backend.is_some_and(|backend| missing.contains(&backend));
            if one.fate == Ok(Fate::Used) && is_missing {
                one.fate = Ok(fate);
            }
        }
    }
}

fn finding_of((port, fallback): &(String, Fallback)) -> Finding {
    let code = match fallback {
        Fallback::TierEmpty(_) => Code::TierEmpty,
        Fallback::DrainedServe => Code::AllDrained,
        Fallback::TerminatingServe => Code::AllTerminating,
    };
    let port = if port.is_empty() { String::new() } else { format!("{port}: ") };
    Finding::new(code, format!("{port}{fallback}"))
}

/// The reasons of the rules say what to do in their messages.
fn of_rule(severity: Severity, reason: impl Coded, message: &str) -> Finding {
    let (code, message) = (hyphenated(reason), message.to_owned());
    Finding { severity, code, message, advice: "", see: reason.link() }
}

/// An import whose name is close, or one of that name in another namespace.
fn similar<'a>(key: &ObjectKey, imports: &'a [ObjectKey]) -> Option<&'a ObjectKey> {
    let names: Vec<_> = imports.iter().map(ToString::to_string).collect();
    let close = suggest::closest(&key.to_string(), names.iter().map(String::as_str));
    let close = close.and_then(|close| imports.iter().find(|one| one.to_string() == close));
    close.or_else(|| imports.iter().find(|one| one.name == key.name))
}

/// Adds a bounded number of rejections for each reason. Rejections of an import are wrong, unless the rules serve it all
/// the same. A rejected endpoint is wrong only if no other is used, which the finding of its frontend says.
fn add_rejections(key: &ObjectKey, rejections: &[Rejection], findings: &mut Vec<Finding>) {
    let mut told = BTreeMap::<RejectionReason, usize>::new();
    for Rejection { object, reason, message } in rejections {
        let count = told.entry(*reason).or_default();
        *count += 1;
        // The agent's report has this reason.
        if *reason == RejectionReason::Capacity || *count > REJECTIONS {
            continue;
        }
        let is_of_import = object.key == *key && object.kind != Kind::EndpointSlice;
        let severity = if is_of_import { reason.severity() } else { Severity::Note };
        findings.push(of_rule(severity, *reason, &format!("{object}: {message}")));
    }
    for (reason, count) in told.into_iter().filter(|(_, count)| *count > REJECTIONS) {
        let more = format!("{} more for this reason", count - REJECTIONS);
        findings.push(of_rule(Severity::Note, reason, &more));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{
        control::report_fixture,
        model::{Ejection, fixture::key},
    };

    #[test]
    fn backends_that_answer_the_agent_alone_are_told() {
        let mut report = report_fixture();
        let target = "shop/web".parse().unwrap();
        let found = |report: &Report| {
            let judge = Judge {
                target: &target,
                frontends: &[],
                maps: &MapView::default(),
                report: Some(report),
                known: Knowledge::Report,
                imports: &[],
            };
            judge.unanswered(&key("shop/web")).map(|one| one.code)
        };
        let of = |state| Ejection {
            import: key("shop/web"),
            backend: "10.1.0.1:80".parse().unwrap(),
            cluster: "east".into(),
            state,
            times: 1,
            used: false,
        };
        report.ejections = vec![of(EjectionState::Ejected)];
        assert_eq!(found(&report), None);
        report.ejections = vec![of(EjectionState::AnswersAgent)];
        assert_eq!(found(&report).as_deref(), Some("clients-unanswered"));
    }

    #[test]
    fn a_similar_import_is_suggested() {
        let imports = [ObjectKey::new("bank", "ledger"), ObjectKey::new("shop", "cart")];
        let meant = |namespace, name| {
            similar(&ObjectKey::new(namespace, name), &imports).map(ToString::to_string)
        };
        assert_eq!(meant("shop", "crat").as_deref(), Some("shop/cart"));
        assert_eq!(meant("store", "ledger").as_deref(), Some("bank/ledger"));
        assert_eq!(meant("shop", "payment"), None);
    }
}
