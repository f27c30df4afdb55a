//! Who pays for writes, and what waits without tokens.

use super::*;
use crate::core::clusterset::{
    ClusterId, Import, ImportStatus,
    fixture::{cluster, imported_slice, name, spec},
};

/// The tokens of a burst of a peer.
const BURST: u32 = 500;

fn slice(of: &str) -> Write {
    Write::ApplySlice(imported_slice(of))
}

/// An import with an annotation of so many bytes, and its status.
fn import(annotation: usize) -> Vec<Write> {
    let mut spec = spec();
    spec.annotations = [("text".into(), "x".repeat(annotation).into())].into();
    let import = Import {
        name: name("shop/web"),
        ips: vec![],
        spec,
        has_derived_service: false,
        tiers: None,
    };
    let status = Write::SetImportStatus(name("shop/web"), ImportStatus::default());
    vec![Write::ApplyImport(import), status]
}

impl Control {
    /// Writes these for a service that this cluster has changed, or a peer. Returns what waits for tokens: slices, and the
    /// number of other writes.
    fn write(&mut self, of: Option<&str>, mut writes: Vec<Write>) -> (Vec<Write>, usize) {
        let (now, all) = (Instant::now(), writes.len());
        self.core.state.imports.add_of(of.map(cluster), name("shop/web"));
        let Some(name) = self.core.state.imports.next() else { return (vec![], all) };
        let held = self.hold_unpaid(&name, &mut writes, now);
        let request = |write| own_request(write, &self.core.state.own, false);
        let requests: Vec<_> = writes.iter().map(request).collect();
        self.pay(&name, &writes, &requests, now);
        let left = all - writes.len() - held.len();
        (held, left)
    }

    /// How often these can be written at once.
    fn times(&mut self, of: Option<&str>, writes: &[Write]) -> usize {
        let written = |_: &usize| self.write(of, writes.to_vec()) == (vec![], 0);
        (0..10_000).take_while(written).count()
    }

    fn spend_all(&mut self, of: &str) -> ClusterId {
        let tokens = f64::from(10 * BURST);
        self.core.state.imports.spend(cluster(of), tokens, Instant::now());
        cluster(of)
    }
}

#[tokio::test]
async fn a_cluster_without_tokens_does_not_hold_up_the_others_of_a_service() {
    let mut control = control().await;
    let busy = control.spend_all("busy");
    let writes = vec![slice("busy"), slice("quiet"), slice("east")];
    let all = [writes, import(0)].concat();
    assert_eq!(control.write(Some("quiet"), all), (vec![slice("busy")], 0));
    let waiting = control.core.state.imports.waiting_for_tokens(&busy, Instant::now());
    assert_eq!(waiting, 1, "the service has its turn in that lane");
}

#[tokio::test]
async fn slices_do_not_wait_for_what_tenants_of_this_cluster_change() {
    let mut control = control().await;
    let east = control.spend_all("east");
    let deletion = Write::DeleteSlice(name("shop/web"), cluster("quiet"), "web-1".into());
    let all = [vec![slice("east"), slice("quiet")], import(0), vec![deletion]].concat();
    assert_eq!(control.write(None, all), (vec![], 3), "a deletion follows the import");
    let waiting = control.core.state.imports.waiting_for_tokens(&east, Instant::now());
    assert_eq!(waiting, 1);
}

#[tokio::test]
async fn imports_of_a_peer_cost_as_much_as_slices() {
    let of_both = [vec![slice("busy")], import(0)].concat();
    for (of, writes, expected) in [
        (Some("busy"), vec![slice("busy")], 500..=500),
        (Some("busy"), import(0), 500..=500),
        (Some("busy"), of_both, 500..=500),
        (Some("busy"), import(64 << 10), 240..=250),
        (None, import(0), 2500..=2510),
        (None, vec![slice("east")], 10_000..=10_000),
    ] {
        let times = control().await.times(of, &writes);
        assert!(expected.contains(&times), "{times} of {of:?}, not {expected:?}");
    }
}

#[tokio::test]
async fn publications_wait_for_tokens_of_their_own() {
    let mut control = control().await;
    let metadata = json!({"namespace": "shop", "name": "web"});
    let service = json!({"metadata": metadata, "spec": {"clusterIP": "10.96.0.1"}});
    let service = ResourceEvent::Changed(from_value(service).unwrap());
    let export = ResourceEvent::Changed(from_value(json!({"metadata": metadata})).unwrap());
    control.take(Update::Own(OwnEvent::Services(service)));
    control.take(Update::Own(OwnEvent::Exports(export)));
    let (now, east) = (Instant::now(), cluster("east"));
    for (tokens, waiting) in [(2499.0, 0), (1.0, 1)] {
        control.core.state.publications.spend(east.clone(), tokens, now);
        let queued = control.core.state.publications.next();
        control.publish(queued.unwrap_or_else(|| name("shop/web")));
        let found = control.core.state.publications.waiting_for_tokens(&east, Instant::now());
        assert_eq!((found, control.tasks.len()), (waiting, 1), "{tokens}");
    }
}
