//! What the cases share: a network, etcd, pods, and the controllers that the last case has used.

use mcs_tests::topology::Node;

use crate::{prelude::*, table::Row};

// They have to be removed in this order.
pub(crate) struct World {
    stage: Option<Stage>,
    /// What the cases have seen.
    pub(crate) rows: Vec<Row>,
    pub(crate) control: ControlPlane,
    _pods: Pods,
    pub(crate) node: Node,
    pub(crate) run: Run,
    /// How many have been made.
    stages: u32,
    namespaces: u32,
}

impl World {
    /// Starts what does not depend on controllers.
    pub(crate) fn begin(run: Run) -> Result<Self> {
        let node = Node::create(&run)?;
        let pods = Pods::start(&run, &node)?;
        let control = ControlPlane::linked(&run, &node)?;
        let rows = Vec::new();
        Ok(Self { stage: None, rows, control, _pods: pods, node, run, stages: 0, namespaces: 0 })
    }

    /// Starts these controllers with clusters of their own, unless they run already. Others end first.
    pub(crate) fn enter(&mut self, kind: Kind) -> Result {
        if self.stage.as_ref().is_some_and(|stage| stage.kind == kind) {
            return Ok(());
        }
        self.stage = None;
        self.stages += 1;
        self.stage = Some(Stage::start(self, kind, &format!("stage-{}", self.stages))?);
        Ok(())
    }

    /// Ends the controllers that run.
    pub(crate) fn leave(&mut self) {
        self.stage = None;
    }

    /// The controllers that run.
    pub(crate) fn stage(&self) -> Result<&Stage> {
        self.stage.as_ref().context("no controllers run")
    }

    /// The same, to change them.
    pub(crate) fn stage_mut(&mut self) -> Result<&mut Stage> {
        self.stage.as_mut().context("no controllers run")
    }

    /// A namespace of all clusters that no other case uses, with the service's pods.
    pub(crate) fn fresh(&mut self) -> Result<String> {
        self.namespaces += 1;
        let name = format!("case-{}", self.namespaces);
        self.stage()?.add_namespace(&name)?;
        Ok(name)
    }
}
