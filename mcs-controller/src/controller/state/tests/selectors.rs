//! Cluster selectors, from what a peer publishes of itself to the import.

use super::*;

/// West says this of its ClusterProperties.
fn says(state: &mut State, sequence: u64, properties: &str) {
    let lease = complete_lease("west", 1, sequence);
    let mut lease = publisher_lease("mcs-mailbox", &lease, jiff::Timestamp::UNIX_EPOCH);
    lease["metadata"]["annotations"][well_known::PROPERTIES] = json!(properties);
    mailbox(state, MailboxEvent::Lease(ResourceEvent::Changed(object(lease))));
}

fn mailbox(state: &mut State, event: MailboxEvent) {
    state.update(Update::Mailbox(MailboxId::Peer("west".into(), 1), event));
}

#[test]
fn what_peers_say_of_themselves_decides() {
    let mut state = state();
    let name = ServiceName::new("shop", "web").unwrap();
    let selectors = json!([{"propertySelector": {"matchProperties": {"region.example": "eu"}}}]);
    let metadata = json!({"namespace": "shop", "name": "web"});
    // The field comes before the annotation.
    let export = object(json!({"metadata": metadata, "spec": {
        "clusterSelectors": selectors,
        "exportedAnnotations": {well_known::CLUSTER_SELECTORS: "[]"},
    }}));
    let service = object(json!({"metadata": metadata, "spec": {
        "clusterIP": "10.96.0.1", "ports": [{"port": 80}],
    }}));
    let namespace = object(json!({"metadata": {"name": "shop"}}));
    state.update(Update::Own(OwnEvent::Exports(ResourceEvent::Changed(export))));
    state.update(Update::Own(OwnEvent::Services(ResourceEvent::Changed(service))));
    state.update(Update::Own(OwnEvent::Namespaces(ResourceEvent::Changed(namespace))));
    let tiers = |state: &mut State| {
        let writes = state.plan_and_note(&name);
        let import = writes.into_iter().find_map(|write| match write {
            Write::ApplyImport(import) => Some(import),
            _ => None,
        });
        import.and_then(|import| import.tiers).map(|tiers| tiers.to_string())
    };
    assert_eq!(tiers(&mut state), None, "the properties of this cluster are not known yet");
    state.update(Update::Own(OwnEvent::Properties(listed())));
    assert_eq!(tiers(&mut state).as_deref(), Some("1 none"));
    property(&mut state, "region.example", "eu");
    property(&mut state, "weight.clusterset.mcs-agent.io", "5");
    assert_eq!(tiers(&mut state).as_deref(), Some("1 east"));
    let published: BTreeMap<_, _> = [("region.example".into(), "eu".into())].into();
    assert_eq!(*state.statement().properties, published, "what is about traffic here stays here");

    let peer = object(json!({"metadata": {"name": "west"}, "spec": {
        "clusterId": "west", "kubeconfigSecretRef": {"name": "west"}, "podCIDRs": ["10.2.0.0/16"],
    }}));
    state.update(Update::Peers(ResourceEvent::Changed(peer)));
    let writes = state.plan_and_note_publication(&name);
    let [MailboxWrite::ApplyService(exported)] = &*writes else { panic!("{writes:?}") };
    let mut of_west = Clone::clone(&**exported);
    of_west.export.cluster = "west".parse().unwrap();
    let stamp = Stamp { mailbox: 0, epoch: 1, sequence: 1 };
    let of_west = exported_service("mcs-mailbox", &of_west, stamp, false, None).unwrap();
    let services =
        ResourceEvent::Listed { version: "v1".to_owned(), objects: vec![object(of_west)] };
    mailbox(&mut state, MailboxEvent::Services(services));
    mailbox(&mut state, MailboxEvent::Slices(listed()));
    mailbox(&mut state, MailboxEvent::Lease(listed()));
    for (sequence, properties, expected) in [
        (2, "{}", "1 east"),
        (3, r#"{"region.example":"eu"}"#, "1 east, west"),
        (4, r#"{"region.example":"us"}"#, "1 east"),
        (5, "[", "1 east"),
        (6, r#"{"region.example":"eu"}"#, "1 east, west"),
    ] {
        state.imports = Queue::default();
        says(&mut state, sequence, properties);
        let is_queued = state.imports.names().any(|queued| *queued == name);
        assert_eq!(is_queued, properties != "[", "{sequence}");
        assert_eq!(tiers(&mut state).as_deref(), Some(expected), "{sequence}");
    }
}
