//! Corefiles in small. The suite `clusterset` has whole ones, which CoreDNS reads.

use super::{edit::block, *};

/// As kubeadm writes it.
const KUBEADM: &str = "\
.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30
    loop
    reload
    loadbalance
}
";

const CACHE: &str = "\
cluster.local:53 {
    errors
    bind 169.254.20.10 10.96.0.10
    forward . __PILLAR__CLUSTER__DNS__ {
        force_tcp
    }
    health 169.254.20.10:8080 {
        lameduck 5s
    } # for the probe
    prometheus :9253
}
.:53 {
    bind 169.254.20.10 10.96.0.10
    forward . __PILLAR__UPSTREAM__SERVERS__
}
";

fn model_of(text: &str) -> Result<Model, CorefileError> {
    let corefile = Corefile::parse(text)?;
    model(&[&corefile])
}

fn state_of(text: &str) -> Result<State, CorefileError> {
    let corefile = Corefile::parse(text)?;
    state(&corefile, &model(&[&corefile])?)
}

fn added(text: &str) -> String {
    let corefile = Corefile::parse(text).unwrap();
    with_zone(&corefile, &model_of(text).unwrap(), true).unwrap()
}

fn undone(text: &str) -> String {
    without_zone(&Corefile::parse(text).unwrap()).unwrap()
}

fn cached(text: &str) -> Result<Option<String>, CorefileError> {
    with_cached_zone(&Corefile::parse(text)?, "cluster.local")
}

#[test]
fn the_block_is_that_of_the_documents() {
    let block = block(&model_of(KUBEADM).unwrap());
    for document in [
        include_str!("../../../deploy/dns/Corefile"),
        include_str!("../../../deploy/helm/mcs/dns/clusterset.server"),
    ] {
        assert!(document.contains(&block), "{document}");
    }
    for document in [
        include_str!("../../../deploy/dns/Corefile"),
        include_str!("../../../deploy/dns/node-local-dns.Corefile"),
    ] {
        let left = undone(document);
        assert!(!left.contains(ZONE_HEADER) && !left.contains(LABELS), "{left}");
    }
}

const ZONE_HEADER: &str = "clusterset.local:53 {";

#[test]
fn the_block_comes_and_goes_and_leaves_nothing() {
    let short = ".:53 {\n  kubernetes cluster.local # all\n}";
    for before in [KUBEADM, short, &KUBEADM.replace('\n', "\r\n"), &format!("\u{feff}{short}")] {
        let after = added(before);
        assert_eq!(state_of(&after), Ok(State::Block("clusterset.local:53".to_owned())), "{after}");
        assert_eq!(after.matches(LABELS).count(), 1, "{after}");
        assert_eq!(after.contains("\r\n"), before.contains("\r\n"));
        assert!(is_edited(&Corefile::parse(&after).unwrap()));
        assert_eq!(undone(&after), before);
        assert_eq!(undone(before), before);
    }
}

const LABELS: &str = "labels !multicluster.kubernetes.io/source-cluster # written by mcs";

#[test]
fn undo_takes_what_has_the_mark_alone() {
    let cilium = KUBEADM
        .replace("cluster.local in", "cluster.local clusterset.local in")
        .replace("pods insecure", "multicluster clusterset.local\n       pods insecure");
    let by_hand = added(KUBEADM)
        .replace("    # written by mcs: `mcs dns undo` takes this block out\n", "")
        .replace(" # written by mcs", "");
    let extended = added(KUBEADM).replace(ZONE_HEADER, "clusterset.local:53 example.org:53 {");
    for (text, header) in [(&cilium, ".:53"), (&by_hand, "clusterset.local:53")] {
        assert_eq!(state_of(text), Ok(State::Block(header.to_owned())), "{text}");
        assert_eq!(undone(text), *text);
        assert_eq!(answering(&Corefile::parse(text).unwrap()), [header]);
    }
    assert!(undone(&extended).starts_with("clusterset.local:53 example.org:53 {"));
    // Others have added a line where `apply` has added a section.
    let after = added(".:53 {\n  kubernetes cluster.local\n}\n");
    let grown = after.replace("  } #", "    ttl 30\n  } #");
    let left = ".:53 {\n  kubernetes cluster.local {\n    ttl 30\n  } # written by mcs\n}\n";
    assert_eq!(undone(&grown), left);
}

#[test]
fn another_dns_of_the_zone_is_named() {
    let served = |text: &str| match state_of(text) {
        Err(CorefileError::Served { header, by }) => format!("{header}: {by}"),
        other => panic!("{other:?} of {text}"),
    };
    let with = |block: &str| format!("{block}{KUBEADM}");
    for (block, expected) in [
        (
            "clusterset.local:53 {\n  forward . 10.0.0.1\n}\n",
            "clusterset.local:53: forward . 10.0.0.1",
        ),
        (
            "svc.clusterset.local:53 {\n  forward . 10.0.0.1\n}\n",
            "svc.clusterset.local:53: forward . 10.0.0.1",
        ),
        ("ClusterSet.Local. {\n  errors\n}\n", "ClusterSet.Local.: no `multicluster`"),
        (
            "a.example clusterset.local:5353 {\n  log\n  file db\n}\n",
            "a.example clusterset.local:5353: file db",
        ),
        (
            ".:5353 {\n  forward clusterset.local 10.0.0.1\n}\n",
            ".:5353: forward clusterset.local 10.0.0.1",
        ),
    ] {
        assert_eq!(served(&with(block)), expected);
    }
    // Neither a name below it that no service has nor a comment nor another protocol.
    for block in [
        "east.clusterset.local:53 {\n  forward . 10.0.0.1\n}\n",
        "# clusterset.local:53 {\n",
        "tls://clusterset.local {\n  forward . 10.0.0.1\n}\n",
        "local:53 {\n  forward . 10.0.0.1\n  log clusterset.local\n}\n",
    ] {
        assert_eq!(state_of(&with(block)), Ok(State::Nobody), "{block}");
    }
}

#[test]
fn the_port_is_that_of_the_cluster() {
    for (header, expected) in [
        (".:8053", "clusterset.local:8053 {"),
        (".", "clusterset.local {"),
        ("dns://.:1053 tls://.:853", "clusterset.local:1053 {"),
        ("in-addr.arpa:53, cluster.local:{$PORT}", "clusterset.local:{$PORT} {"),
    ] {
        let after = added(&KUBEADM.replace(".:53", header));
        assert!(after.starts_with(expected), "{after}");
    }
    let after = added(&KUBEADM.replace("    ready", "    bind eth0"));
    assert!(after.starts_with("clusterset.local:53 {") && after.matches("bind eth0").count() == 2);
    let outside = KUBEADM.replace("ttl 30", "kubeconfig /k context # outside");
    assert!(added(&outside).contains("{\n        kubeconfig /k context\n        multicluster"));
    for several in [
        KUBEADM.replace(".:53", ".:53 .:5353"),
        format!("{KUBEADM}cluster.local:5353 {{\n  kubernetes\n}}\n"),
        format!("{KUBEADM}.:53 {{\n  bind lo\n  kubernetes cluster.local\n}}\n"),
    ] {
        assert!(matches!(model_of(&several), Err(CorefileError::Several(..))), "{several}");
    }
    let elsewhere = added(KUBEADM).replace("\n.:53", "\n.:8053");
    assert!(matches!(state_of(&elsewhere), Err(CorefileError::OtherPort { .. })));
}

#[test]
fn the_domain_is_that_of_the_plugin() {
    let domain = |zones: &str| Ok(model_of(&KUBEADM.replace("cluster.local in", zones))?.domain);
    assert_eq!(domain("a.example in"), Ok("a.example".to_owned()));
    assert_eq!(domain("a.example cluster.local. 10.0.0.0/8 in"), Ok("cluster.local".to_owned()));
    let several = CorefileError::Domains("a.example, b.example".to_owned());
    assert_eq!(domain("a.example b.example in"), Err(several));
    assert_eq!(domain("in"), Err(CorefileError::NoCluster));
    let of_block = "a.example {\n  kubernetes\n}\n";
    assert_eq!(model_of(of_block).unwrap().domain, "a.example");
}

#[test]
fn what_coredns_would_not_read_is_refused() {
    for (text, line) in [
        (".:53 {\n  errors\n", 1),
        ("}\n", 1),
        (".:53 {\n}\n}\n", 3),
        (".:53{\n  errors\n}\n", 1),
        (".:53 { errors }\n", 1),
        (".:53 {\n  log {\n    a\n  }\n  {\n}\n", 5),
        (".:53\nerrors\n", 1),
        ("a, {\n}\n", 1),
        ("{\n}\n", 1),
    ] {
        assert_eq!(Corefile::parse(text).err(), Some(CorefileError::Braces(line)), "{text}");
    }
    assert!(matches!(Corefile::parse("{$Z} {\n}\n"), Err(CorefileError::Variable(_))));
}

#[test]
fn snippets_and_imports_count() {
    let text = "\
(plumbing) {
    errors
    reload
}
(cluster) {
    import plumbing
    kubernetes cluster.local
}
.:53 {
    import cluster
    import custom/*.override
}
import /etc/coredns/custom/*.server
";
    let corefile = Corefile::parse(text).unwrap();
    assert!(corefile.reloads());
    assert!(corefile.imports("clusterset.server") && !corefile.imports("a.override"));
    assert!(corefile.imports_below("a.override") && !corefile.imports_below("a.server"));
    assert_eq!(undone(&added(text)), text);
    assert!(!Corefile::parse(".:53 {\n  # reload\n}\n").unwrap().reloads());
}

#[test]
fn a_cache_gets_a_copy_of_its_block_for_the_cluster() {
    let after = cached(CACHE).unwrap().unwrap();
    let copy = "\
clusterset.local:53 {
    # written by mcs: `mcs dns undo` takes this block out
    errors
    bind 169.254.20.10 10.96.0.10
    forward . __PILLAR__CLUSTER__DNS__ {
        force_tcp
    }
    prometheus :9253
}
";
    assert_eq!(after, format!("{copy}{CACHE}"));
    assert_eq!(cached(&after), Ok(None));
    assert_eq!(undone(&after), CACHE);
    let narrow = "cluster.local:53 { # node\n    forward . 10.0.0.2\n}\n";
    assert_eq!(undone(&cached(narrow).unwrap().unwrap()), narrow);
    let other = format!("{CACHE}clusterset.local {{\n  forward . 10.0.0.9\n}}\n");
    assert!(matches!(cached(&other), Err(CorefileError::Served { .. })));
    assert_eq!(cached(".:53 {\n  forward . 10.0.0.2\n}\n"), Ok(None));
    assert_eq!(cached("a:53 {\n}\n"), Err(CorefileError::NoBlock("cluster.local".to_owned())));
}
