//! Each CNI, in both orders.

use mcs_tests::deployed::traces;

use crate::{prelude::*, setting::SETTINGS};

/// Cilium has programs and pins of its own.
const OUR_PINS: &str = "pin mcs";

pub(crate) fn cases(suite: &mut Suite<World>) {
    for setting in SETTINGS {
        for order in [Order::AgentFirst, Order::CniFirst] {
            let mut case = |name: &str, check: fn(&Stage, &mut Row) -> Result| {
                suite.case(format!("{setting}, {order}: {name}"), move |world| {
                    let (stage, row) = world.enter(setting, order)?;
                    check(stage, row)
                });
            };
            case("clients reach every backend, or are refused", reach);
            case("the CNI's part and ours are replaced under load, and nothing leaks", replaced);
        }
        suite.case(format!("{setting}: an uninstall leaves what others have"), move |world| {
            let (stage, row) = world.enter(setting, Order::CniFirst)?;
            uninstalled(stage, row)
        });
    }
}

fn reach(stage: &Stage, row: &mut Row) -> Result {
    let target = stage.imported("reach")?;
    row.exchanges += clients::reach_all(stage, &target)?;
    target.publish_with(&stage.importer, stage.members().map(|it| (&*it.name, Vec::new())))?;
    clients::are_refused(stage, &target)?;
    row.refused = true;
    target.withdraw(&stage.importer)
}

fn replaced(stage: &Stage, row: &mut Row) -> Result {
    let target = stage.imported("replaced")?;
    row.load = Some(load::during(stage, &target, || {
        stage.replace_cni()?;
        agents::delete_pods(&stage.importer)
    })?);
    target.withdraw(&stage.importer)
}

/// `before` was taken after an earlier uninstall, so that it has all that the CNI does by itself.
fn uninstalled(stage: &Stage, row: &mut Row) -> Result {
    let before = stage.before.as_ref().context("nobody has looked at the nodes without agents")?;
    stage.release.remove(&stage.importer)?;
    let is_ours = |trace: &String| stage.setting.cni != Cni::Cilium || trace.starts_with(OUR_PINS);
    for node in stage.importer.nodes() {
        let ours: Vec<_> = traces(node)?.into_iter().filter(is_ours).collect();
        ensure!(ours.is_empty(), "{node} still has {ours:?}");
    }
    let differences = before.differences(&Snapshot::take(stage)?);
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    tell(format!("{} lines about the nodes are as before", before.count()));
    row.unchanged = true;
    Ok(())
}
