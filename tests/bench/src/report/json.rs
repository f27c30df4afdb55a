//! The results as JSON.

use super::targets::TargetResult;
use crate::{prelude::*, traffic::CONGESTION};

/// Every figure with its rounds, medians and ratios, and what they were measured on.
pub(crate) fn document(
    figures: &Figures,
    targets: &[TargetResult],
    machine: &Machine,
    plan: &Plan,
) -> Result<Value> {
    let figure = |figure: &crate::figures::Figure| {
        let mut value = serde_json::to_value(figure)?;
        value["summary"] = serde_json::to_value(figure.summary())?;
        let ratio = figures.ratio(&figure.key, figure.contender, Contender::Direct);
        value["to_direct"] = serde_json::to_value(ratio)?;
        anyhow::Ok(value)
    };
    let all = figures.all().iter().map(figure).collect::<Result<Vec<_>>>()?;
    Ok(json!({
        "machine": machine,
        "tcp_congestion_control": CONGESTION,
        "rounds": plan.rounds,
        "services": plan.sizes,
        "targets": targets,
        "figures": all,
    }))
}
