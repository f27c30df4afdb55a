//! What `apply` and `undo` change in the DNS of a cluster. A plan is complete before anything is written.

use anyhow::{Context as _, ensure};

use super::{
    SYSTEM, ensure_version, other,
    sources::{Cache, Source, Sources, link_local_nameserver},
    write::{CorefileChange, restart, write},
};
use crate::{
    cluster::{Cluster, DAEMON_SETS, DEPLOYMENTS},
    corefile::{self, Corefile},
};

/// The plan for the DNS of a cluster.
pub(crate) struct Plan {
    /// The ServiceAccount of CoreDNS.
    pub(crate) account: String,
    /// The block that answers already.
    answered: Option<String>,
    /// For CoreDNS.
    change: Option<CorefileChange>,
    /// For the caches that do not send the zone to CoreDNS.
    caches: Vec<(Cache, CorefileChange)>,
    /// Whether CoreDNS is restarted after a change.
    needs_restart: bool,
    /// Notes for the operator.
    notes: Vec<String>,
}

impl Plan {
    /// Plans for a cluster. Changes nothing.
    ///
    /// # Errors
    /// The DNS of the cluster is none that can be edited, another DNS answers the zone, or CoreDNS is too old.
    pub(crate) async fn of(cluster: &Cluster) -> anyhow::Result<Self> {
        let deployment = cluster.get(DEPLOYMENTS, Some(SYSTEM), "coredns").await?;
        let Some(deployment) = deployment else { return Err(other(cluster).await?.into()) };
        let mut sources = Sources::of(cluster).await?;
        let found_caches = std::mem::take(&mut sources.caches);
        let view = sources.view()?;
        let answered = view.answered()?;
        let (target, is_main) = view.target();
        let change = if answered.is_some() {
            None
        } else {
            ensure_version(&deployment)?;
            Some(addition(target, &view.model, is_main)?)
        };
        let mut notes = Vec::new();
        if deployment["metadata"]["labels"]["eks.amazonaws.com/component"] == "coredns" {
            notes.push(
                "an update of EKS's add-on coredns resets the Corefile: put the block into the add-on's configuration too"
                    .to_owned(),
            );
        }
        if found_caches.is_empty()
            && let Some(address) = link_local_nameserver(cluster).await?
        {
            notes.push(format!(
                "pods ask {address}, a DNS cache that mcs does not know: let it send clusterset.local to CoreDNS, as cluster.local"
            ));
        }
        let mut caches = Vec::new();
        for cache in found_caches {
            if !is_main {
                ensure_apart(&cache, target)?;
            }
            if let Some(text) = cached(&cache.source, &view.model.domain)? {
                let change = CorefileChange::new(&cache.source, text)?;
                caches.push((cache, change));
            }
        }
        let account = deployment["spec"]["template"]["spec"]["serviceAccountName"].as_str();
        let account = account.unwrap_or("default").to_owned();
        let needs_restart = !view.main.reloads();
        Ok(Self { account, answered, change, caches, needs_restart, notes })
    }

    /// Whether everything is there.
    pub(crate) fn changes_nothing(&self) -> bool {
        self.change.is_none() && self.caches.is_empty()
    }

    /// The plan in a line.
    pub(crate) fn text(&self) -> String {
        let coredns = match (&self.answered, &self.change) {
            (Some(block), _) => format!("CoreDNS answers clusterset.local already ({block})"),
            (None, Some(change)) => {
                format!("add the block for clusterset.local to {}", change.source)
            }
            (None, None) => String::new(),
        };
        let caches = self.caches.iter().map(|(_, change)| format!("; and to {}", change.source));
        let notes = self.notes.iter().map(|note| format!("; note: {note}"));
        coredns + &caches.chain(notes).collect::<String>()
    }
}

/// A cache has no plugin `kubernetes`, and does not start with the block. That of Gardener imports what CoreDNS imports.
fn ensure_apart(cache: &Cache, target: &Source) -> anyhow::Result<()> {
    let Cache { daemon_set, source } = cache;
    ensure!(
        !source.corefile()?.imports(&target.key),
        "the DNS cache {daemon_set} imports {target} too, and does not start with a block for CoreDNS: add one by hand where the cache \
         does not read it (deploy/dns)"
    );
    Ok(())
}

/// The change that adds the block for the zone.
fn addition(
    target: &Source,
    model: &corefile::Model,
    is_main: bool,
) -> anyhow::Result<CorefileChange> {
    let edited = corefile::with_zone(&target.corefile()?, model, is_main);
    CorefileChange::new(target, edited.with_context(|| target.to_string())?)
}

/// The text of a cache with a block for the zone, if it needs one.
fn cached(source: &Source, domain: &str) -> anyhow::Result<Option<String>> {
    corefile::with_cached_zone(&source.corefile()?, domain).with_context(|| source.to_string())
}

/// Adds the missing configuration. Returns the changes.
///
/// # Errors
/// The DNS cannot be edited, and nothing is changed; or a write fails, and those before it stay.
pub(crate) async fn apply(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    let plan = Plan::of(cluster).await?;
    let mut done = Vec::new();
    if let Some(block) = &plan.answered {
        done.push(format!("CoreDNS has the block for clusterset.local ({block})"));
    }
    if let Some(change) = plan.change {
        done.extend(write(cluster, &[change]).await?);
        if plan.needs_restart {
            done.push(restart_coredns(cluster).await?);
        }
    }
    done.extend(write_caches(cluster, plan.caches).await?);
    done.extend(plan.notes);
    Ok(done)
}

/// Removes the additions of [`apply`], and nothing else. Returns the changes, and what stays.
///
/// # Errors
/// A configuration cannot be read or written.
pub(crate) async fn undo(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    let Sources { main, custom, own: _, caches } = Sources::of(cluster).await?;
    let mut done = Vec::new();
    let mut changes = Vec::new();
    for source in [&main].into_iter().chain(&custom) {
        changes.extend(removal(source, &mut done)?);
    }
    let mut of_caches = Vec::new();
    for cache in caches {
        if let Some(change) = removal(&cache.source, &mut done)? {
            of_caches.push((cache, change));
        }
    }
    if changes.is_empty() && of_caches.is_empty() {
        done.push("DNS has no block that `mcs dns apply` wrote".to_owned());
    }
    let is_changed = !changes.is_empty();
    done.splice(0..0, write(cluster, &changes).await?);
    // A CoreDNS whose Corefile cannot be read would not start again.
    if is_changed && main.corefile().is_ok_and(|corefile| !corefile.reloads()) {
        done.push(restart_coredns(cluster).await?);
    }
    done.extend(write_caches(cluster, of_caches).await?);
    Ok(done)
}

/// The change that takes out what `mcs` has written. Adds what stays to the notes.
fn removal(source: &Source, notes: &mut Vec<String>) -> anyhow::Result<Option<CorefileChange>> {
    let former = source.text().unwrap_or_default();
    let corefile = match source.corefile() {
        Ok(corefile) => corefile,
        // A file of another kind, or one that was broken by others.
        Err(_) if !corefile::may_be_edited(former) => return Ok(None),
        Err(error) => return Err(error.context("it is left alone")),
    };
    let is_edited = corefile::is_edited(&corefile);
    if let (true, Some(release)) = (is_edited, source.release()) {
        notes.push(format!(
            "{source} belongs to the release {release} of helm, and stays: change it there, or uninstall it"
        ));
        return Ok(None);
    }
    let text = corefile::without_zone(&corefile).with_context(|| source.to_string())?;
    for header in corefile::answering(&Corefile::parse(&text)?) {
        notes.push(format!(
            "the block `{header}` in {source} answers clusterset.local, and `mcs dns apply` did not write it: it stays"
        ));
    }
    if text == former { Ok(None) } else { CorefileChange::removal(source, text).map(Some) }
}

async fn restart_coredns(cluster: &Cluster) -> anyhow::Result<String> {
    restart(cluster, DEPLOYMENTS, SYSTEM, "coredns").await?;
    Ok("restarted CoreDNS, whose Corefile has no `reload`".to_owned())
}

async fn write_caches(
    cluster: &Cluster,
    caches: Vec<(Cache, CorefileChange)>,
) -> anyhow::Result<Vec<String>> {
    let (caches, changes): (Vec<_>, Vec<_>) = caches.into_iter().unzip();
    let mut done = write(cluster, &changes).await?;
    for (cache, change) in caches.iter().zip(&changes) {
        if !Corefile::parse(&change.text)?.reloads() {
            let Cache { daemon_set, source } = cache;
            restart(cluster, DAEMON_SETS, &source.namespace, daemon_set).await?;
            done.push(format!("restarted NodeLocal DNSCache ({daemon_set})"));
        }
    }
    Ok(done)
}
