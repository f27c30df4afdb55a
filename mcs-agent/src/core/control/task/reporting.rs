//! When the control task reports, and what.

use std::{io, sync::Arc};

use mcs_kube::report::CommonReport;
use tokio::time::Instant;

use super::Control;
use crate::core::{
    control::{
        config::POLL_INTERVAL,
        process::thread_cpu,
        rejections::ListedRejections,
        report::{Report, seconds_since_epoch},
        status_file::Written,
    },
    kernel::loader::{config_memory, state_bytes},
};

impl Control {
    /// `status` takes an agent whose report is older than a minute for one that cannot write it.
    pub(super) fn report_in_time(&mut self) {
        if self.status_file.is_old(seconds_since_epoch()) {
            self.core.report_soon();
        }
    }

    /// Publishes a report. The part that lists objects, and the status file, may be due later.
    pub(super) fn report(&mut self) {
        let before = thread_cpu();
        self.agent.updated = seconds_since_epoch();
        let due = self.object_reports.next().map(Instant::from_std);
        let later = due.filter(|due| *due > Instant::now());
        // Health and metrics follow also while a write of the file takes long.
        let may_write = later.is_none() && !self.status_file.is_busy();
        if may_write {
            let desired = self.core.engine.desired();
            self.imports = Arc::clone(&desired.imports);
            self.rejections = ListedRejections::for_status(&desired.rejections);
            self.features.each(|feature| feature.objects_listed(&self.core));
        }
        let report = Arc::new(self.make_report());
        self.core.published.publish(Arc::clone(&report));
        self.core.report_at = later;
        if may_write && self.status_file.lacks(&report) {
            let spent = thread_cpu().saturating_sub(before);
            self.status_file.write(report, self.core.installed.run_directory.clone(), spent);
        } else if later.is_none() && !may_write {
            self.status_file.is_outdated = true;
        }
    }

    pub(super) fn note_written(&mut self, written: io::Result<Written>) {
        let error = match written {
            // CPU time: on a busy node a short report may take long.
            Ok(Written { result, cpu }) => {
                self.object_reports.worked(std::time::Instant::now(), cpu);
                result.err().map(anyhow::Error::new)
            }
            Err(error) => Some(error.into()),
        };
        if let Some(error) = error {
            tracing::warn!("{error:#}; trying again");
            let again = Instant::now() + POLL_INTERVAL;
            self.core.report_at(again);
        }
        if std::mem::take(&mut self.status_file.is_outdated) {
            self.core.report_soon();
        }
    }

    fn make_report(&self) -> Report {
        let (engine, installed) = (&self.core.engine, &self.core.installed);
        let config = &installed.config;
        let (node, totals) = (engine.node(), engine.rules().totals());
        let capacity = installed.capacity();
        let common = CommonReport {
            agent: self.agent.clone(),
            source: Arc::clone(engine.source()),
            node: node.facts.clone(),
            rejections: Arc::clone(&self.rejections.lines),
            rejection_counts: Arc::clone(&self.rejections.counts),
            pending: engine.why_pending().to_vec(),
        };
        Report {
            common,
            orphan_release_after: config.release_after.map(|after| after.as_secs()),
            synced: engine.synced(),
            reads: Some(config.source.from.clone()),
            node_name: node.node_name.clone(),
            vip_cidrs: node.vip_cidrs.clone(),
            vips_kept: engine.vips_outside_ranges(),
            imports_outside: engine.imports_outside_ranges(),
            socket_lb: config.socket_lb,
            tc: installed.packets.report(),
            cgroup_path: installed.cgroup.path.clone(),
            cgroup_id: installed.cgroup.id,
            features: installed.options.features,
            capacity,
            max_memory: config.max_memory,
            max_capacity: node.capacity,
            usage: engine.usage(),
            grown_at: self.grown_at,
            not_grown: engine.not_grown().map(str::to_owned),
            config_map_bytes: config_memory(capacity).0,
            state_map_bytes: state_bytes(&installed.options),
            flows: self.flows.clone(),
            ejections: self.features.ejections(&self.core),
            imports: Arc::clone(&self.imports),
            rejections_omitted: self.rejections.omitted,
            outdated: installed.is_outdated(),
            refusing: totals.refusing,
            backends: totals.clusters.clone(),
            source_lost: self.source_lost.0.clone(),
            repairs: self.repairs.clone(),
            listeners: self.core.published.listeners(),
            sections: self.features.report(&self.core),
        }
    }
}
