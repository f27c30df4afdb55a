//! Random slices in protobuf and in JSON, and answers that are damaged on the way.

use anyhow::ensure;
use mcs_agent::core::source::testing::{slices_of_list, slices_of_watch};
use mcs_kube::{
    objects::{
        Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, Named, ObjectMeta,
    },
    testing::messages::{event, list},
};
use proptest::{collection::vec, option, prelude::*, sample::Index};
use prost::Message as _;
use serde_json::json;

/// Slices, and what happens to the answer that has them.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    slices: Vec<EndpointSlice>,
    damage: Vec<Damage>,
}

/// What a proxy, a full disk or somebody hostile does to bytes.
#[derive(Clone, Debug)]
enum Damage {
    /// Other bytes come in the place of as many.
    Replace(Index, Vec<u8>),
    /// Bytes come in between.
    Insert(Index, Vec<u8>),
    /// The answer ends early.
    Cut(Index),
    /// A part comes twice.
    Repeat(Index, usize),
}

impl Damage {
    /// Applies it. Returns the place before which nothing changes.
    fn apply(&self, bytes: &mut Vec<u8>) -> usize {
        if bytes.is_empty() {
            return 0;
        }
        match self {
            Self::Replace(at, others) => {
                let at = at.index(bytes.len());
                let end = bytes.len().min(at + others.len());
                bytes[at..end].copy_from_slice(&others[..end - at]);
                at
            }
            Self::Insert(at, others) => {
                let at = at.index(bytes.len());
                bytes.splice(at..at, others.iter().copied());
                at
            }
            Self::Cut(at) => {
                let at = at.index(bytes.len());
                bytes.truncate(at);
                at
            }
            Self::Repeat(at, length) => {
                let at = at.index(bytes.len());
                let part = bytes[at..bytes.len().min(at + length)].to_vec();
                bytes.splice(at..at, part);
                at
            }
        }
    }
}

impl Answer {
    pub(super) fn any() -> impl Strategy<Value = Self> {
        (vec(any_slice(), 0..4), vec(any_damage(), 0..4))
            .prop_map(|(slices, damage)| Self { slices, damage })
    }

    /// What is whole is read as the same in JSON, and of what is damaged everything before the damage.
    pub(super) fn check(self) -> anyhow::Result<()> {
        let objects =
            self.slices.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
        let frames: Vec<_> = self
            .slices
            .iter()
            .map(|slice| event("MODIFIED", "EndpointSlice", slice.encode_to_vec()))
            .collect();
        let lines: Vec<_> = objects
            .iter()
            .map(|object| json!({"type": "MODIFIED", "object": object}).to_string())
            .collect();
        let watch = frames.concat();
        let read = slices_of_watch(&watch, true);
        let in_json = slices_of_watch(lines.join("\n").as_bytes(), false);
        ensure!(read == in_json, "a watch in protobuf: {read:#?}\nin JSON: {in_json:#?}");
        let text = json!({"metadata": {"resourceVersion": "7"}, "items": objects}).to_string();
        let whole = list("7", &self.slices);
        let (listed, in_json) =
            (slices_of_list(&whole, true), slices_of_list(text.as_bytes(), false));
        ensure!(listed == in_json, "a list in protobuf: {listed:#?}\nin JSON: {in_json:#?}");
        ensure!(listed.as_ref() == Ok(&read), "a list has {listed:#?}, a watch {read:#?}");

        let mut damaged = watch;
        let intact = self.damage.iter().map(|damage| damage.apply(&mut damaged)).min();
        let mut end = 0;
        let whole_frames = frames.iter().take_while(|frame| {
            end += frame.len();
            intact.is_none_or(|intact| end <= intact)
        });
        let whole_frames = whole_frames.count();
        let left = slices_of_watch(&damaged, true);
        ensure!(
            left.get(..whole_frames) == read.get(..whole_frames),
            "{whole_frames} frames are whole, and {left:#?} is read"
        );
        let mut damaged = whole;
        for damage in &self.damage {
            damage.apply(&mut damaged);
        }
        // It is a list or none, and ends.
        let _ = slices_of_list(&damaged, true);
        Ok(())
    }
}

fn any_damage() -> impl Strategy<Value = Damage> {
    let length = prop_oneof![
        Just(vec![0x80, 0, 0, 0]),
        Just(vec![0xff; 10]),
        Just(vec![0x12, 0xff, 0xff, 0xff, 0xff, 0x07]),
        Just(b"k8s\0".to_vec()),
    ];
    let bytes = prop_oneof![vec(any::<u8>(), 1..12), length];
    let at = any::<Index>;
    prop_oneof![
        4 => (at(), bytes.clone()).prop_map(|(at, bytes)| Damage::Replace(at, bytes)),
        2 => (at(), bytes).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        1 => at().prop_map(Damage::Cut),
        1 => (at(), 1..200_usize).prop_map(|(at, length)| Damage::Repeat(at, length)),
    ]
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-z0-9.-]{1,20}",
        "\\PC{1,8}",
        Just("\"\\\n\u{0}".to_owned())
    ]
}

fn any_address() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<std::net::Ipv4Addr>().prop_map(|ip| ip.to_string()),
        any::<std::net::Ipv6Addr>().prop_map(|ip| ip.to_string()),
        any_text(),
    ]
}

fn any_slice() -> impl Strategy<Value = EndpointSlice> {
    let label = |name: &'static str| {
        option::of(any_text()).prop_map(move |text| text.map(|text| (name.to_owned(), text)))
    };
    let labels = (
        label("multicluster.kubernetes.io/service-name"),
        label("multicluster.kubernetes.io/source-cluster"),
    );
    let annotations =
        option::of(prop_oneof![any_text(), Just("2026-01-02T03:04:05.678Z".to_owned()),]);
    // JSON leaves them out if they are empty.
    let text = || "\\PC{1,8}";
    let metadata = (text(), text(), text(), labels, annotations).prop_map(
        |(name, namespace, resource_version, (service, cluster), trigger)| {
            let trigger = trigger
                .map(|text| ("endpoints.kubernetes.io/last-change-trigger-time".to_owned(), text));
            ObjectMeta {
                name,
                namespace,
                resource_version,
                labels: service.into_iter().chain(cluster).collect(),
                annotations: trigger.into_iter().collect(),
                ..ObjectMeta::default()
            }
        },
    );
    let address_type = prop_oneof![Just("IPv4".to_owned()), Just("IPv6".to_owned()), any_text()];
    (metadata, vec(any_endpoint(), 0..5), vec(any_port(), 0..3), address_type).prop_map(
        |(metadata, endpoints, ports, address_type)| EndpointSlice {
            metadata,
            endpoints,
            ports,
            address_type,
        },
    )
}

fn any_endpoint() -> impl Strategy<Value = Endpoint> {
    let conditions = option::of(any::<[Option<bool>; 3]>()).prop_map(|conditions| {
        conditions.map(|[ready, serving, terminating]| EndpointConditions {
            ready,
            serving,
            terminating,
        })
    });
    let named = || vec(any_text().prop_map(|name| Named { name }), 0..3);
    let hints = option::of((named(), named())).prop_map(|hints| {
        hints.map(|(for_zones, for_nodes)| EndpointHints { for_zones, for_nodes })
    });
    let text = || option::of(any_text());
    (vec(any_address(), 0..3), conditions, text(), text(), text(), hints).prop_map(
        |(addresses, conditions, hostname, node_name, zone, hints)| Endpoint {
            addresses,
            conditions,
            hostname,
            node_name,
            zone,
            hints,
        },
    )
}

fn any_port() -> impl Strategy<Value = EndpointPort> {
    let text = || option::of(any_text());
    (text(), text(), option::of(any::<i32>()), text()).prop_map(
        |(name, protocol, port, app_protocol)| EndpointPort { name, protocol, port, app_protocol },
    )
}
