//! The control task without an API server.

use mcs_kube::testing;

use super::*;
use crate::{clusterset::NamespaceRules, objects::SecretReference};

/// A control task whose API server nobody plays.
async fn control() -> Control {
    let settings = Settings {
        kubeconfig: None,
        cluster: None,
        clusterset: None,
        namespace: "mcs-controller".to_owned(),
        mailbox: "mcs-mailbox".to_owned(),
        mailbox_kubeconfig: None,
        mailbox_secret: None::<SecretReference>,
        exports: NamespaceRules::default(),
        vips_v4: None,
        vips_v6: None,
        pod_ranges: vec![],
        adopt: false,
        create_namespaces: false,
        derived_services: false,
        peer_writes: 1,
        identity: None,
    };
    let (kubeconfig, _file) = testing::kubeconfig("http://127.0.0.1:9");
    let (access, _) = ApiAccess::new(Some(kubeconfig)).await.unwrap();
    let access = Arc::new(access);
    let published = Arc::new(Published::new().unwrap());
    let outbox = Outbox::open(&settings, &access, &published).await.unwrap();
    let (updates, _) = mpsc::channel(1);
    let state = State::new(settings.clone(), "east".parse().unwrap(), OwnCluster::new());
    let identity = PublisherIdentity {
        cluster: "east".parse().unwrap(),
        uid: "u".to_owned(),
        mailbox: settings.mailbox.clone(),
        is_at_home: true,
        is_elected: false,
    };
    let term = PublisherTerm::new(identity, Instant::now());
    Control::new((settings, state, term), access, outbox, updates, published)
}

fn metrics(control: &Control) -> String {
    control.published.metrics.text().unwrap()
}

#[tokio::test]
async fn a_standby_reports_no_queue() {
    let mut control = control().await;
    control.state.imports.add(ServiceName::new("shop", "web").unwrap());
    let is_told = |control: &Control| metrics(control).contains("waiting_services{target");
    control.tick();
    assert!(!is_told(&control), "it waits for its turn, and nobody takes this away");
    control.lead(true);
    control.tick();
    assert!(is_told(&control));
    control.lead(false);
    control.tick();
    assert!(!is_told(&control));
}

#[tokio::test]
async fn failures_are_counted_and_kept_for_the_status() {
    let mut control = control().await;
    for _ in 0..3 {
        control.finish(Done::Lease(Err(ApplyError::Silent)));
        control.finish(Done::PeerStatus("west".into(), Err(ApplyError::Silent)));
        let error = anyhow::anyhow!("<html>\n{}", "blocked ".repeat(1 << 17));
        control.finish(Done::Token("peer-west".to_owned(), Err(error)));
    }
    let text = metrics(&control);
    for line in [
        "mcs_controller_mailbox_lease_writes_total{result=\"error\"} 3",
        "mcs_controller_peer_status_errors_total{peer=\"west\"} 3",
        "mcs_controller_token_renewals_total{result=\"error\",secret=\"peer-west\"} 3",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
    }
    let reason = control.token_failures.reason(&"peer-west".to_owned()).unwrap();
    assert!(reason.starts_with("<html> blocked") && reason.len() < 1100, "{reason:.100}");
}
