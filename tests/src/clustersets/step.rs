//! The steps of a story.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, bail, ensure};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{
    kinds::Kind,
    member::secret,
    server::{Mood, Refusal},
    store::Key,
    view::Part,
};
use crate::script;

/// What happens next.
#[derive(Debug)]
pub(super) enum Step {
    /// The set has these clusters.
    Clusters(Vec<String>),
    /// The mailboxes of all clusters are at the API server of this one.
    Hub(String),
    /// The controllers have two replicas, `a` and `b`.
    Replicas(Vec<String>),
    /// The clocks are so much ahead, or behind.
    Clock(Vec<String>, SignedDuration),
    /// A user applies objects.
    Apply(Vec<String>, Vec<Value>),
    /// A user deletes an object.
    Delete(Vec<String>, Key),
    /// The controller begins again, with these flags if there are any.
    Restart(Vec<String>, Vec<String>),
    /// The controller is killed.
    Kill(Vec<String>),
    /// The controller ends in order.
    End(Vec<String>),
    /// The controller starts, with the flags that it had.
    Start(Vec<String>),
    /// The API server is away, hangs or answers from now on, for everybody or, as `c1/c2`, for the controller of c2.
    Mood(Vec<String>, Mood),
    /// The API server knows no earlier versions.
    Forget(Vec<String>),
    /// The API server refuses requests.
    Refuse(Vec<String>, Refusal),
    /// The API server refuses nothing any more.
    Allow(Vec<String>),
    /// A type goes with its objects, or comes back.
    Serve(Vec<String>, &'static Kind, bool),
    /// Somebody keeps the contents of the mailbox, or brings back what was kept and nothing else.
    Backup(Vec<String>, bool),
    /// Somebody keeps all that the API server has, or brings it back.
    Snapshot(Vec<String>, bool),
    /// The address of an API server leads a reader to that of another cluster.
    Lead(String, String, String),
    /// A cluster gets another token for the API server of a peer, which takes the former ones no more.
    Rotate(String, String),
    /// A controller or a replica is killed after so many writes, and starts again.
    Die(String, u32),
    /// The API server is an old one, which streams no lists and answers them from its cache.
    Plain(Vec<String>),
    /// The types of the API server do not declare a field of a plural.
    Prune(Vec<String>, String, String),
    /// A hostile peer forges what is in its mailbox; the number says how.
    Forge(String, u64),
    /// Another controller applies these objects whenever they are not as it has applied them, for so long.
    Contest(Vec<String>, Duration, Vec<Value>),
    /// Answers take so long.
    Slow(Vec<String>, Duration),
    /// Watches are so late.
    Lag(Vec<String>, Duration),
    /// All faults end, so much time passes, and all is as it should be.
    Settle(Duration),
    /// The history is drawn, and everything of chance follows from this number. What a step does not find is no error.
    Seed(u64),
    /// Time passes.
    Wait(Duration),
    /// This is what there is, of these clusters and parts.
    Expect(Shown),
    /// All is as it was at the last [`Step::Expect`].
    ExpectNoChange,
}

/// What an `expect` shows. Empty: all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Shown {
    pub(super) clusters: BTreeSet<String>,
    /// Namespaces and names of services.
    pub(super) services: BTreeSet<String>,
    pub(super) parts: BTreeSet<Part>,
    /// How long it takes until there is that, if that matters.
    pub(super) after: Option<Duration>,
}

impl script::Step for Step {
    fn parse(marker: &str, body: &str) -> anyhow::Result<Self> {
        let words: Vec<_> = marker.split_whitespace().collect();
        let ids = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let lines = || body.lines().map(str::to_owned).collect::<Vec<_>>();
        let one_line = || body.split_whitespace().collect::<Vec<_>>().join(" ");
        let step = match words[..] {
            ["expect", "no", "change"] => Self::ExpectNoChange,
            ["expect", ref words @ ..] => return Shown::parse(words).map(Self::Expect),
            ["apply", ref of @ ..] => return Ok(Self::Apply(ids(of), documents(body)?)),
            ["restart", ref of @ ..] => return Ok(Self::Restart(ids(of), lines())),
            ["refuse", of, verb, plural, name, code] => {
                let any = |word: &str| word.trim_end_matches('*').to_owned();
                let code = code.parse().context("`refuse` takes a code")?;
                let (verb, plural, name) = (any(verb), plural.to_owned(), any(name));
                let (of, reader) = of.split_once('/').unwrap_or((of, ""));
                let reader = reader.to_owned();
                let refusal = Refusal { of: reader, verb, plural, name, code, message: one_line() };
                return Ok(Self::Refuse(ids(&[of]), refusal));
            }
            ["contest", of, seconds] => {
                return Ok(Self::Contest(ids(&[of]), duration(seconds)?, documents(body)?));
            }
            ["export", of, name, ref addresses @ ..] => {
                let all = expanded(name)?.into_iter().map(|name| export(&name, addresses, body));
                let all = all.collect::<anyhow::Result<Vec<_>>>()?;
                return Ok(Self::Apply(ids(&[of]), all.concat()));
            }
            ["link", of, peer] => Self::Apply(ids(&[of]), vec![secret(peer, of, false)]),
            ["clusters", ref of @ ..] => Self::Clusters(ids(of)),
            ["delete", ref of @ .., kind, name] => Self::Delete(ids(of), key(kind, name)?),
            ["unexport", ref of @ .., name] => Self::Delete(ids(of), key("ServiceExport", name)?),
            ["hub", hub] => Self::Hub(hub.to_owned()),
            ["replicas", ref of @ ..] => Self::Replicas(ids(of)),
            ["clock", ref of @ .., seconds] => {
                let seconds = seconds.parse().context("a time is in seconds")?;
                Self::Clock(ids(of), SignedDuration::try_from_secs_f64(seconds)?)
            }
            ["kill", ref of @ ..] => Self::Kill(ids(of)),
            ["end", ref of @ ..] => Self::End(ids(of)),
            ["start", ref of @ ..] => Self::Start(ids(of)),
            ["away", ref of @ ..] => Self::Mood(ids(of), Mood::Away),
            ["hangs", ref of @ ..] => Self::Mood(ids(of), Mood::Hangs),
            ["answers", ref of @ ..] => Self::Mood(ids(of), Mood::Answers),
            ["forgets", ref of @ ..] => Self::Forget(ids(of)),
            ["backup", ref of @ ..] => Self::Backup(ids(of), false),
            ["restore", ref of @ ..] => Self::Backup(ids(of), true),
            ["snapshot", ref of @ ..] => Self::Snapshot(ids(of), false),
            ["rewind", ref of @ ..] => Self::Snapshot(ids(of), true),
            ["leads", of, other] => {
                let (of, reader) = of.split_once('/').unwrap_or((of, ""));
                Self::Lead(of.to_owned(), reader.to_owned(), other.to_owned())
            }
            ["rotate", of, peer] => Self::Rotate(of.to_owned(), peer.to_owned()),
            ["dies", of, writes] => {
                Self::Die(of.to_owned(), writes.parse().context("`dies` takes a number")?)
            }
            ["forges", of, number] => {
                let number = number.parse().context("`forges` takes a number")?;
                Self::Forge(of.to_owned(), number)
            }
            ["plain", ref of @ ..] => Self::Plain(ids(of)),
            ["prunes", ref of @ .., plural, field] => {
                Self::Prune(ids(of), plural.to_owned(), field.to_owned())
            }
            ["allow", ref of @ ..] => Self::Allow(ids(of)),
            ["gone", ref of @ .., kind] => Self::Serve(ids(of), known(kind)?, false),
            ["back", ref of @ .., kind] => Self::Serve(ids(of), known(kind)?, true),
            ["loses", ref of @ ..] => Self::Mood(ids(of), Mood::Loses),
            ["repeats", ref of @ ..] => Self::Mood(ids(of), Mood::Repeats),
            ["slow", ref of @ .., seconds] => Self::Slow(ids(of), duration(seconds)?),
            ["lag", ref of @ .., seconds] => Self::Lag(ids(of), duration(seconds)?),
            ["settle", seconds] => Self::Settle(duration(seconds)?),
            ["seed", number] => Self::Seed(number.parse().context("`seed` takes a number")?),
            ["wait", seconds] => Self::Wait(duration(seconds)?),
            _ => bail!("`{marker}` is no step: tests/src/clustersets.rs lists them"),
        };
        ensure!(body.is_empty(), "`{marker}` takes no text");
        Ok(step)
    }

    fn has_outcome(&self) -> bool {
        matches!(self, Self::Expect(_))
    }

    fn proves(&self) -> bool {
        matches!(self, Self::Expect(_) | Self::ExpectNoChange | Self::Settle(_))
    }
}

impl Step {
    /// Whether it is what people do day by day, or time that passes: nothing goes wrong by it.
    pub(super) fn is_usual(&self) -> bool {
        let is_of_people =
            |kind: &str| matches!(kind, "Service" | "EndpointSlice" | "ServiceExport");
        match self {
            Self::Apply(_, objects) => {
                objects.iter().all(|one| one["kind"].as_str().is_some_and(is_of_people))
            }
            Self::Delete(_, (plural, ..)) => {
                Kind::of(plural).is_some_and(|kind| is_of_people(kind.name))
            }
            Self::Wait(_) | Self::Settle(_) | Self::Expect(_) | Self::ExpectNoChange => true,
            _ => false,
        }
    }
}

impl Shown {
    fn parse(words: &[&str]) -> anyhow::Result<Self> {
        let mut shown = Self::default();
        for word in words {
            match Part::named(word) {
                Some(part) => drop(shown.parts.insert(part)),
                None if word.ends_with('s') => {
                    shown.after = Some(duration(word.trim_end_matches('s'))?);
                }
                None if word.contains('/') => drop(shown.services.insert((*word).to_owned())),
                None => drop(shown.clusters.insert((*word).to_owned())),
            }
        }
        Ok(shown)
    }
}

fn documents(text: &str) -> anyhow::Result<Vec<Value>> {
    let documents = text.split("\n---\n").filter(|text| !text.trim().is_empty());
    documents.map(|text| serde_saphyr::from_str(text).context("an object is no YAML")).collect()
}

fn duration(seconds: &str) -> anyhow::Result<Duration> {
    Ok(Duration::try_from_secs_f64(seconds.parse().context("a time is in seconds")?)?)
}

fn known(kind: &str) -> anyhow::Result<&'static Kind> {
    Kind::named(kind).with_context(|| format!("{kind} is none of the kinds that are played"))
}

/// An object of a namespace as `shop/web`, any other one as `c1`.
fn key(kind: &str, name: &str) -> anyhow::Result<Key> {
    let kind = known(kind)?;
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    ensure!(kind.is_namespaced != namespace.is_empty(), "{} `{name}`: which namespace?", kind.name);
    Ok((kind.plural, namespace.to_owned(), name.to_owned()))
}

/// `shop/web-1` to `shop/web-9` for `shop/web-{1..9}`.
fn expanded(name: &str) -> anyhow::Result<Vec<String>> {
    let Some((start, rest)) = name.split_once('{') else { return Ok(vec![name.to_owned()]) };
    let (range, end) = rest.split_once('}').context("a `}` is missing")?;
    let (first, last) = range.split_once("..").context("`{` takes FIRST..LAST")?;
    let numbers = first.parse::<u32>()?..=last.parse()?;
    Ok(numbers.map(|number| format!("{start}{number}{end}")).collect())
}

/// A Service with port 80, its pods, which listen at 8080, and its ServiceExport. The text is merged into the Service.
fn export(name: &str, addresses: &[&str], body: &str) -> anyhow::Result<Vec<Value>> {
    let (namespace, name) = name.split_once('/').context("`export` takes NAMESPACE/NAME")?;
    let metadata = json!({ "namespace": namespace, "name": name });
    let ports = json!([{ "name": "http", "port": 80, "protocol": "TCP" }]);
    let mut service =
        json!({ "kind": "Service", "metadata": metadata, "spec": { "ports": ports } });
    if !body.trim().is_empty() {
        let spec: Value = serde_saphyr::from_str(body).context("the text is no spec in YAML")?;
        for (field, value) in spec.as_object().context("the text is no spec")? {
            service["spec"][field] = value.clone();
        }
    }
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let targets: Vec<_> = ports
        .map(|port| json!({ "name": port["name"], "port": 8080, "protocol": port["protocol"] }))
        .collect();
    let mut objects = vec![service];
    for (family, is_v6) in [("IPv4", false), ("IPv6", true)] {
        let of_family: Vec<_> = addresses.iter().filter(|ip| ip.contains(':') == is_v6).collect();
        if of_family.is_empty() && is_v6 {
            continue;
        }
        let labels = json!({ "kubernetes.io/service-name": name });
        let slice = format!("{name}-{}", family.to_lowercase());
        let endpoint = |ip: &&&str| json!({ "addresses": [ip], "conditions": { "ready": true } });
        objects.push(json!({
            "kind": "EndpointSlice",
            "metadata": { "namespace": namespace, "name": slice, "labels": labels },
            "addressType": family,
            "ports": targets,
            "endpoints": of_family.iter().map(endpoint).collect::<Vec<_>>(),
        }));
    }
    objects.push(json!({ "kind": "ServiceExport", "metadata": metadata }));
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Step as _;

    #[test]
    fn a_name_stands_for_several() {
        let Ok(Step::Apply(of, objects)) = Step::parse("export c1 shop/a-{1..3} 10.1.0.1", "")
        else {
            panic!()
        };
        let names: Vec<_> = objects.iter().map(|object| &object["metadata"]["name"]).collect();
        assert_eq!((of, names.len()), (vec!["c1".to_owned()], 9));
        assert_eq!(names[..3], ["a-1", "a-1-ipv4", "a-1"]);
    }

    #[test]
    fn what_is_no_step_is_refused() {
        for (marker, body, part) in [
            ("expct", "", "is no step"),
            ("kill c1", "kind: A\n", "takes no text"),
            ("delete c1 Servce shop/web", "", "none of the kinds"),
            ("delete c1 Service web", "", "which namespace?"),
            ("delete c1 ClusterPeer shop/c1", "", "which namespace?"),
            ("export c1 shop/a-{1..x}", "", "invalid digit"),
            ("export c1 web", "", "NAMESPACE/NAME"),
            ("wait long", "", "in seconds"),
            ("apply c1", "kind: [", "no YAML"),
        ] {
            let error = format!("{:#}", Step::parse(marker, body).unwrap_err());
            assert!(error.contains(part), "{marker}: {error}");
        }
    }

    #[test]
    fn words_choose_what_is_shown() {
        let Ok(Step::Expect(shown)) = Step::parse("expect c2 shop/web slices", "anything") else {
            panic!()
        };
        assert_eq!(shown.clusters, BTreeSet::from(["c2".to_owned()]));
        assert_eq!(shown.services, BTreeSet::from(["shop/web".to_owned()]));
        assert_eq!(shown.parts, BTreeSet::from([Part::Slices]));
    }
}
