//! The plan of `mcs up`: what is, and what will be. It is printed, and then carried out.

use anyhow::{Context as _, ensure};
use mcs_controller::core::clusterset::ClusterId;
use serde_json::Value;

use super::{
    UpCommand,
    chart::Chart,
    member::{self, Member},
    proof::Proof,
    release::{Release, ReleaseChange},
};
use crate::{
    cluster::Cluster,
    fleet,
    link::{self, LinkCommand, LinkPlan},
    pod_ranges,
};

/// What becomes of the clusters.
pub(super) struct Plan {
    pub(super) chart: Chart,
    pub(super) clusterset: String,
    pub(super) members: Vec<(Member, Release)>,
    pub(super) hub: Option<Cluster>,
    pub(super) link: LinkCommand,
    pub(super) links: LinkPlan,
    pub(super) proof: Proof,
}

impl Plan {
    /// Looks at all clusters. Changes nothing.
    ///
    /// # Errors
    /// Everything that is in the way, in every cluster.
    pub(super) async fn of(command: &UpCommand) -> anyhow::Result<Self> {
        let named = command.clusters.named()?;
        ensure!(
            named.len() > 1,
            "name two clusters or more, such as --context east --context west"
        );
        let chart = Chart::of(&command.chart).await?;
        let members = fleet::each(&named, async |kubeconfig| {
            Member::inspect(&command.member, &command.chart, kubeconfig).await
        });
        let mut members = fleet::all_of(members.await)?;
        let hub = link::open_hub(command.hub.as_ref()).await?;
        if hub.is_none() {
            ensure_home(&members)?;
        }
        ensure_known(command, &members, hub.as_ref())?;
        let clusterset = member::clusterset(&command.member, &members)?;
        let peers: Vec<Value> =
            members.iter().flat_map(|member| member.peers.iter().cloned()).collect();
        let found = fleet::each(&mut members, async |member| member.find_pods(&peers).await);
        fleet::all_of(found.await)?;
        for (place, member) in members.iter().enumerate() {
            for other in &members[..place] {
                member.ensure_apart(other)?;
            }
        }
        let planned = fleet::each(members, async |mut member: Member| {
            let values = values(command, &member, &clusterset, hub.is_some());
            let Member { cluster, kubeconfig, types, .. } = &mut member;
            let can_render = types.are_served();
            let release = Release::plan(&chart, cluster, kubeconfig, values, can_render);
            let release = release.await.with_context(|| format!("cluster {}", cluster.id))?;
            types.compare(&chart, cluster, release.change.former()).await?;
            anyhow::Ok((member, release))
        });
        let members = fleet::all_of(planned.await)?;
        let link = link_command(command, &members);
        let clusters: Vec<_> = members.iter().map(|(member, _)| &member.cluster).collect();
        let links = link::plan(&link, &clusters, hub.as_ref()).await?;
        let named: Vec<_> = members.iter().map(|(member, _)| member).collect();
        let proof = Proof::of(command.proof_namespace.as_deref(), &named).await?;
        Ok(Self { chart, clusterset, members, hub, link, links, proof })
    }

    /// Whether nothing is written to a cluster, but the service of the proof.
    pub(super) fn is_left(&self, place: usize) -> bool {
        let (member, _) = &self.members[place];
        self.is_installed(place) && self.links.of(&member.cluster.id).is_empty()
    }

    /// Whether types, chart, properties and DNS are as they will be.
    pub(super) fn is_installed(&self, place: usize) -> bool {
        let (member, release) = &self.members[place];
        member.types.are_left()
            && matches!(release.change, ReleaseChange::Keep { .. })
            && !member.properties.lack_set()
            && member.dns.as_ref().is_none_or(crate::dns::Plan::changes_nothing)
    }

    /// The rows of the printed plan: cluster, step, and what becomes of it.
    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for (place, (member, release)) in self.members.iter().enumerate() {
            let id = &member.cluster.id;
            let mut add = |step: &str, what: String| {
                rows.push(vec![id.to_string(), step.to_owned(), what]);
            };
            if self.is_left(place) {
                let version = release.change.former().unwrap_or_default();
                add("all", format!("left as it is: {version}, with these values and links"));
                continue;
            }
            add("cluster", self.about(member));
            add("types", member.types.text());
            add("chart", release.change.text());
            let dns = member.dns.as_ref().map(crate::dns::Plan::text);
            add("dns", dns.unwrap_or_else(|| "left as it is".to_owned()));
            add("link", self.link_text(member));
        }
        let all = match &self.hub {
            Some(hub) => format!("the mailboxes are on the hub at {}", hub.server),
            None => "each mailbox is in its cluster".to_owned(),
        };
        let mut add = |step: &str, what: String| {
            rows.push(vec!["all".to_owned(), step.to_owned(), what]);
        };
        add("link", all);
        add("proof", self.proof.text());
        rows
    }

    fn about(&self, member: &Member) -> String {
        let Member { cluster, nodes, properties, .. } = member;
        let writes = " (writes the ClusterProperty clusterset.k8s.io)";
        let written = if properties.lack_set() { writes } else { "" };
        format!("id {}, clusterset {}{written}, {nodes} nodes", cluster.id, self.clusterset)
    }

    fn link_text(&self, member: &Member) -> String {
        let Member { cluster, server, pods, .. } = member;
        let server = server.as_ref().map_or_else(
            || cluster.server.clone(),
            |url| format!("{url} (the kubeconfig has {})", cluster.server),
        );
        let lacks = self.links.of(&cluster.id);
        let links = if lacks.is_empty() {
            "its links stay as they are".to_owned()
        } else {
            format!("it will read {}", lacks.join(", "))
        };
        let pods = pod_ranges::joined(pods);
        format!("{links}; others reach it at {server}; its pods have {pods}")
    }
}

/// Fails if a cluster reads others on a hub: `up` would link it at home.
fn ensure_home(members: &[Member]) -> anyhow::Result<()> {
    for member in members {
        if let Some(peer) = link::peer_on_hub(&member.peers) {
            return Err(link::needs_hub(&member.cluster.id, peer));
        }
    }
    Ok(())
}

/// Fails if a flag names a cluster that is not there.
fn ensure_known(
    command: &UpCommand,
    members: &[Member],
    hub: Option<&Cluster>,
) -> anyhow::Result<()> {
    let ids: Vec<&ClusterId> = members.iter().map(|member| &member.cluster.id).collect();
    let args = &command.member;
    for id in args.pod_cidr.iter().map(|(id, _)| id) {
        ensure!(ids.contains(&id), "--pod-cidr: no cluster among these has the id {id}");
    }
    for id in args.server.iter().map(|(id, _)| id) {
        let is_hub = hub.is_some_and(|hub| hub.id == *id);
        ensure!(is_hub || ids.contains(&id), "--server: no cluster among these has the id {id}");
    }
    Ok(())
}

/// The values of a cluster, as helm takes them.
fn values(command: &UpCommand, member: &Member, clusterset: &str, on_hub: bool) -> Vec<String> {
    let id = &member.cluster.id;
    let mut values = Vec::new();
    if !member.properties.are_of_others {
        values.push("clusterProperties.create=true".to_owned());
        values.push(format!("global.clusterId={id}"));
        values.push(format!("clusterProperties.clusterset={clusterset}"));
    }
    if let Some(dns) = &member.dns {
        values.push(format!("dns.serviceAccount={}", dns.account));
    }
    if on_hub {
        values.push(format!("mcs-controller.mailbox.namespace=mcs-{id}"));
        values.push("mcs-controller.mailbox.secret=mailbox".to_owned());
    }
    values.extend_from_slice(&command.chart.set);
    values
}

/// `mcs link` of these clusters.
fn link_command(command: &UpCommand, members: &[(Member, Release)]) -> LinkCommand {
    let args = &command.member;
    let of_members = members
        .iter()
        .filter_map(|(member, _)| Some((member.cluster.id.clone(), member.server.clone()?)));
    let mut servers: Vec<_> = of_members.collect();
    let is_member = |id: &ClusterId| members.iter().any(|(member, _)| member.cluster.id == *id);
    servers.extend(args.server.iter().filter(|(id, _)| !is_member(id)).cloned());
    LinkCommand::new(args.pod_cidr.clone(), servers)
}
