//! An API server in memory: what it answers, and what it does when it is away, hangs or refuses.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::pending,
    io,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use http::Method;
use mcs_controller::core::clock::Skew;
use mcs_kube::testing::in_memory::{Answer, Asked, Parts, Served, whole};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};

use super::{
    journal::Journal,
    kinds::Kind,
    member::{NAMESPACE, generation, holder},
    selector::Selector,
    store::{Change, Failure, Kept, Key, Store},
};

/// How long a client waits for the answer of a server that hangs, which it pings.
const PING: Duration = Duration::from_secs(25);
/// How long it takes to answer, if it is not slow.
pub(super) const LATENCY: Duration = Duration::from_millis(2);
/// How often a watch has a bookmark.
const BOOKMARKS: Duration = Duration::from_mins(1);

/// How many changes it remembers at least.
const CHANGES: usize = 1000;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// How it is with requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mood {
    Answers,
    /// Nobody listens.
    Away,
    /// It takes requests, and answers none.
    Hangs,
    /// It does what it is asked, and its answers are lost. Watches last.
    Loses,
    /// Every other write reaches it twice, and has the second answer. So does every event of a watch.
    Repeats,
}

impl Mood {
    const fn obeys(self) -> bool {
        matches!(self, Self::Answers | Self::Loses | Self::Repeats)
    }
}

/// Which requests it answers with an error.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    /// Whose, a controller's or a replica's; empty: everybody's.
    pub(super) of: String,
    /// The verb, such as `watch`; empty: any.
    pub(super) verb: String,
    pub(super) plural: String,
    /// What the name of the object begins with.
    pub(super) name: String,
    pub(super) code: u16,
    pub(super) message: String,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    /// How it is for a controller or a replica; for everybody else under the empty name.
    moods: BTreeMap<String, Mood>,
    /// The other servers to which the address of this one leads, for such readers.
    led: BTreeMap<String, Weak<Server>>,
    /// The oldest token of a controller that is good.
    revoked: BTreeMap<String, u32>,
    /// Whether it streams no lists, and answers them from its cache.
    is_plain: bool,
    /// How many writes it has had while they were repeated.
    repeatable: u64,
    latency: Duration,
    /// How late watches are.
    lag: Duration,
    /// The plurals whose types are gone.
    gone: BTreeSet<String>,
    refusals: Vec<Refusal>,
    /// Counts what ends all watches, by plural.
    cuts: BTreeMap<&'static str, u64>,
    cut: u64,
    /// The oldest version that it knows.
    oldest: u64,
}

impl Inner {
    fn mood(&self, token: &str) -> Mood {
        Self::of(&self.moods, token).copied().unwrap_or(Mood::Answers)
    }

    /// What is there for a replica, or else for its controller, or else for everybody.
    fn of<'a, T>(all: &'a BTreeMap<String, T>, token: &str) -> Option<&'a T> {
        let token = token.split('~').next().unwrap_or_default();
        [token, holder(token).0, ""].into_iter().find_map(|reader| all.get(reader))
    }
}

/// The API server of a cluster.
#[derive(Debug)]
pub(super) struct Server {
    inner: Mutex<Inner>,
    /// Tells of each change, in the order in which watches wait: a channel of tokio's wakes them in another one each time.
    changed: Notify,
}

/// What a request is about.
struct Place {
    kind: &'static Kind,
    namespace: String,
    name: Option<String>,
    is_status: bool,
}

impl Server {
    /// Starts one, which answers requests to this host.
    pub(super) fn start(host: &str, journal: Journal, skew: Skew) -> (Arc<Self>, Served) {
        let inner = Inner {
            store: Store::new(host, journal, skew),
            moods: BTreeMap::new(),
            led: BTreeMap::new(),
            revoked: BTreeMap::new(),
            is_plain: false,
            repeatable: 0,
            latency: LATENCY,
            lag: Duration::ZERO,
            gone: BTreeSet::new(),
            refusals: Vec::new(),
            cuts: BTreeMap::new(),
            cut: 0,
            oldest: 0,
        };
        let server = Arc::new(Self { inner: Mutex::new(inner), changed: Notify::new() });
        let answers = Arc::clone(&server);
        let handler = move |request| {
            let server = Arc::clone(&answers);
            Box::pin(async move { server.answer(request).await }) as _
        };
        (server, Served::at(host, Arc::new(handler)))
    }

    /// Looks at the objects.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Store) -> T) -> T {
        look(&self.inner.lock().store)
    }

    /// Changes objects, as those do who are no controllers.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Store) -> T) -> T {
        let changed = change(&mut self.inner.lock().store);
        self.tell();
        changed
    }

    /// It takes so long to answer.
    pub(super) fn slow(&self, latency: Duration) {
        self.inner.lock().latency = latency;
    }

    /// Its watches are so late.
    pub(super) fn lag(&self, lag: Duration) {
        self.inner.lock().lag = lag;
        self.tell();
    }

    /// Ends all faults.
    pub(super) fn heal(&self) {
        let mut inner = self.inner.lock();
        inner.moods.clear();
        inner.led.clear();
        inner.revoked.clear();
        (inner.latency, inner.lag) = (LATENCY, Duration::ZERO);
        inner.refusals.clear();
        inner.gone.clear();
        drop(inner);
        self.tell();
    }

    /// Forgets old changes, as etcd does every few minutes. Watches that have not seen them have to list.
    pub(super) fn compact(&self) {
        let mut inner = self.inner.lock();
        inner.oldest = inner.store.compact(CHANGES).max(inner.oldest);
    }

    /// For a reader; the empty name: for everybody.
    pub(super) fn set_mood(&self, reader: &str, mood: Mood) {
        let mut inner = self.inner.lock();
        if reader.is_empty() {
            inner.moods.clear();
        }
        inner.moods.insert(reader.to_owned(), mood);
        drop(inner);
        self.tell();
    }

    /// It has started again, and knows no earlier version.
    pub(super) fn forget(&self) {
        self.begin_again(|_| {});
    }

    fn begin_again(&self, act: impl FnOnce(&mut Store)) {
        let mut inner = self.inner.lock();
        act(&mut inner.store);
        inner.oldest = inner.store.version();
        inner.cut += 1;
        drop(inner);
        self.tell();
    }

    /// It has again what it had then.
    pub(super) fn rewind(&self, kept: &Kept) {
        self.begin_again(|store| store.rewind(kept));
    }

    /// Its address leads a reader to another server from now on; the empty name: everybody.
    pub(super) fn lead(&self, reader: &str, other: &Arc<Self>) {
        let mut inner = self.inner.lock();
        inner.led.insert(reader.to_owned(), Arc::downgrade(other));
        inner.cut += 1;
        drop(inner);
        self.tell();
    }

    /// The older tokens of a controller are good no more.
    pub(super) fn revoke(&self, reader: &str, oldest: u32) {
        self.inner.lock().revoked.insert(reader.to_owned(), oldest);
    }

    /// It is an old one, which streams no lists.
    pub(super) fn make_plain(&self) {
        self.inner.lock().is_plain = true;
    }

    pub(super) fn refuse(&self, refusal: Refusal) {
        self.inner.lock().refusals.push(refusal);
    }

    /// Refuses nothing any more.
    pub(super) fn allow(&self) {
        self.inner.lock().refusals.clear();
    }

    /// Takes a type away with all its objects, or brings it back.
    pub(super) fn serve(&self, kind: &'static Kind, is_served: bool) {
        let mut inner = self.inner.lock();
        if is_served {
            inner.gone.remove(kind.plural);
        } else {
            inner.gone.insert(kind.plural.to_owned());
            let keys: Vec<_> = inner.store.all(kind.plural).map(|(key, _)| key.clone()).collect();
            for key in keys {
                // It is there.
                let _ = inner.store.delete(&key, None);
            }
            *inner.cuts.entry(kind.plural).or_default() += 1;
        }
        drop(inner);
        self.tell();
    }

    fn tell(&self) {
        self.changed.notify_waiters();
    }

    async fn answer(self: Arc<Self>, asked: Asked) -> Answer {
        let other = Inner::of(&self.inner.lock().led, &asked.token).and_then(Weak::upgrade);
        let server = other.unwrap_or(self);
        let (latency, journal) = server.noted(&asked);
        if journal.is_dead(&asked.token, asked.method != Method::GET) {
            return pending().await;
        }
        sleep(latency).await;
        let answer = server.answer_now(&asked).await;
        if journal.is_dead(&asked.token, false) { pending().await } else { answer }
    }

    /// Notes a request, and returns how long the answer takes.
    fn noted(&self, asked: &Asked) -> (Duration, Journal) {
        let inner = self.inner.lock();
        let is_vote = asked.path.contains(&format!("/namespaces/{NAMESPACE}/leases"));
        inner.store.note_arrival(asked, asked.method != Method::GET && !is_vote);
        (inner.latency, inner.store.journal.clone())
    }

    async fn answer_now(self: Arc<Self>, asked: &Asked) -> Answer {
        let mood = self.inner.lock().mood(&asked.token);
        match mood {
            Mood::Answers | Mood::Loses | Mood::Repeats => {}
            Mood::Away => return Err("tcp connect error: Connection refused (os error 111)".into()),
            Mood::Hangs => return pending().await,
        }
        let Some(place) = place(&asked.path) else {
            return Ok(failed(&(404, "NotFound", "404 page not found".to_owned())));
        };
        let is_watch = asked.query.get("watch").is_some_and(|watch| watch == "true");
        let verb = verb(&asked.method, &place, is_watch);
        let permitted = self.permit(verb, &place, asked);
        if is_watch && permitted.is_ok() {
            self.note(verb, &place, asked, 200);
            return Ok((200, self.watch(&place, asked)));
        }
        let before = self.inner.lock().store.version();
        let mut done = permitted.and_then(|()| self.write_or_read(&place, asked));
        if mood == Mood::Repeats && asked.method != Method::GET && done.is_ok() && self.repeats() {
            done = self.write_or_read(&place, asked);
        }
        self.note(verb, &place, asked, done.as_ref().map_or_else(|failure| failure.0, |_| 200));
        if self.inner.lock().store.version() != before {
            self.tell();
        }
        if mood == Mood::Loses {
            return Err("connection reset by peer (os error 104)".into());
        }
        match done {
            Ok(value) => Ok((200, whole(value.to_string()))),
            Err(error) => Ok(failed(&error)),
        }
    }

    /// Whether the write comes twice.
    fn repeats(&self) -> bool {
        let mut inner = self.inner.lock();
        inner.repeatable += 1;
        inner.repeatable.is_multiple_of(2)
    }

    fn note(&self, verb: &'static str, place: &Place, asked: &Asked, code: u16) {
        self.inner.lock().store.note_request(verb, place.kind.plural, asked, code);
    }

    fn permit(&self, verb: &str, place: &Place, asked: &Asked) -> Result<(), Failure> {
        let inner = self.inner.lock();
        let plural = place.kind.plural;
        if inner.gone.contains(plural) {
            return Err((
                404,
                "NotFound",
                "the server could not find the requested resource".to_owned(),
            ));
        }
        let (reader, replica) = (holder(&asked.token).0, asked.token.split('~').next());
        if inner.revoked.get(reader).is_some_and(|oldest| generation(&asked.token) < *oldest) {
            return Err((401, "Unauthorized", "Unauthorized".to_owned()));
        }
        let begins = asked.query.get("sendInitialEvents").is_some_and(|begins| begins == "true");
        if begins && inner.is_plain {
            return Err((422, "Invalid", "sendInitialEvents is forbidden".to_owned()));
        }
        let posted = || serde_json::from_slice::<Value>(&asked.body).ok();
        let name = place
            .name
            .clone()
            .or_else(|| posted()?["metadata"]["name"].as_str().map(str::to_owned));
        let name = name.unwrap_or_default();
        let is_meant = |one: &&Refusal| {
            (one.of.is_empty() || one.of == reader || replica == Some(&one.of))
                && (one.verb.is_empty() || one.verb == verb)
                && one.plural == plural
                && name.starts_with(&one.name)
        };
        let Some(Refusal { code, message, .. }) = inner.refusals.iter().find(is_meant) else {
            return Ok(());
        };
        let reason = match code {
            401 => "Unauthorized",
            403 => "Forbidden",
            _ => "Invalid",
        };
        Err((*code, reason, message.clone()))
    }

    fn write_or_read(&self, place: &Place, asked: &Asked) -> Result<Arc<Value>, Failure> {
        let mut inner = self.inner.lock();
        let lateness = inner.is_plain.then_some(inner.lag);
        let store = &mut inner.store;
        asked.token.clone_into(&mut store.by);
        let done = Self::done(store, place, asked, lateness);
        store.by.clear();
        done
    }

    fn done(
        store: &mut Store,
        Place { kind, namespace, name, is_status }: &Place,
        Asked { method, query, body, .. }: &Asked,
        lateness: Option<Duration>,
    ) -> Result<Arc<Value>, Failure> {
        let sent: Value = serde_json::from_slice(body).unwrap_or_default();
        let named = name.as_deref().or_else(|| sent["metadata"]["name"].as_str());
        let key: Key = (kind.plural, namespace.clone(), named.unwrap_or_default().to_owned());
        match (method.as_str(), name) {
            ("GET", Some(_)) => {
                let missing = || (404, "NotFound", format!("{} \"{}\" not found", key.0, key.2));
                store.get(&key).cloned().ok_or_else(missing)
            }
            ("GET", None) => {
                let selector = Selector::of(query, namespace);
                let least = query.get("resourceVersion").and_then(|least| least.parse().ok());
                // Without a version it asks for the present.
                let (version, all) = match (lateness, least) {
                    (Some(late), Some(least)) => store.cached(kind.plural, late, least),
                    _ => store.cached(kind.plural, Duration::ZERO, u64::MAX),
                };
                let items: Vec<_> = all.iter().filter(|object| selector.has(object)).collect();
                Ok(Arc::new(json!({
                    "apiVersion": "v1", "kind": "List",
                    "metadata": { "resourceVersion": version.to_string() }, "items": items,
                })))
            }
            ("POST" | "PATCH", _)
                if kind.is_namespaced
                    && store.get(&key).is_none()
                    && !store.has_namespace(namespace) =>
            {
                Err((404, "NotFound", format!("namespaces \"{namespace}\" not found")))
            }
            ("POST", _) => store.create(kind, &key, &sent),
            // The one built-in type here that a PUT creates.
            ("PUT", _) if kind.name == "Lease" && store.get(&key).is_none() => {
                store.create(kind, &key, &sent)
            }
            ("PUT", _) => store.replace(kind, &key, &sent),
            ("DELETE", _) => store.delete(&key, sent["preconditions"]["uid"].as_str()),
            // The form of a patch is in a header, and only applied ones have a manager that may take over fields.
            ("PATCH", _) if sent["apiVersion"].is_string() => {
                let manager = query.get("fieldManager").map_or("", String::as_str);
                let force = query.get("force").is_some_and(|force| force == "true");
                store.apply(kind, &key, (manager, force), &sent, *is_status)
            }
            ("PATCH", _) => store.merge(kind, &key, &sent, *is_status),
            _ => Err((405, "MethodNotAllowed", "it is not allowed".to_owned())),
        }
    }

    fn watch(self: Arc<Self>, place: &Place, Asked { query, token, .. }: &Asked) -> Parts {
        let inner = self.inner.lock();
        let selector = Selector::of(query, &place.namespace);
        let text = |name: &str| query.get(name).map_or("", String::as_str);
        let asked: Option<u64> = text("resourceVersion").parse().ok().filter(|asked| *asked > 0);
        let begins = text("sendInitialEvents") == "true";
        let mut events = VecDeque::new();
        let version = inner.store.version();
        match asked {
            _ if begins => {
                let all = inner.store.all(place.kind.plural);
                events.extend(
                    all.filter(|(_, object)| selector.has(object))
                        .map(|(_, object)| event("ADDED", object)),
                );
                events
                    .push_back(bookmark(version, &json!({ "k8s.io/initial-events-end": "true" })));
            }
            _ => {}
        }
        let seconds = text("timeoutSeconds").parse().unwrap_or(300);
        let watching = Watching {
            reader: token.clone(),
            plural: place.kind.plural,
            selector,
            events,
            version: if begins { version } else { asked.unwrap_or(version) },
            cuts: (inner.cut, inner.cuts.get(place.kind.plural).copied().unwrap_or_default()),
            ends: Instant::now() + Duration::from_secs(seconds),
            tells: Instant::now() + BOOKMARKS,
        };
        drop(inner);
        let lines = stream::unfold(Some((self, watching)), |state| async move {
            let (server, mut watching) = state?;
            match watching.next(&server).await {
                Ok(Some(line)) => Some((Ok(line.into()), Some((server, watching)))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        });
        lines.boxed()
    }
}

/// A watch that lasts.
struct Watching {
    reader: String,
    plural: &'static str,
    selector: Selector,
    /// What is to be sent.
    events: VecDeque<String>,
    /// What it has seen.
    version: u64,
    /// What of [`Inner::cut`] and [`Inner::cuts`] it has survived.
    cuts: (u64, u64),
    ends: Instant,
    /// When the next bookmark is due.
    tells: Instant,
}

impl Watching {
    /// The next event; `None`: the watch ends in order.
    async fn next(&mut self, server: &Server) -> Result<Option<String>, Error> {
        loop {
            let changed = server.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let mut due = None;
            let (mood, is_ahead) = {
                let inner = server.inner.lock();
                let cuts = (inner.cut, inner.cuts.get(self.plural).copied().unwrap_or_default());
                let mood = inner.mood(&self.reader);
                let is_ahead = self.version != u64::MAX && self.version > inner.store.version();
                if cuts.0 != self.cuts.0 || mood == Mood::Away {
                    return Err(io::Error::from(io::ErrorKind::ConnectionReset).into());
                }
                if self.version < inner.oldest {
                    let message = format!("too old resource version: {}", self.version);
                    self.version = u64::MAX;
                    return Ok(Some(event("ERROR", &status(&(410, "Expired", message)))));
                }
                if self.version == u64::MAX {
                    return Ok(None);
                }
                let (now, lag) = (Instant::now(), inner.lag);
                if mood.obeys() {
                    for change in inner.store.since(self.version) {
                        if change.at + lag > now {
                            due = Some(change.at + lag);
                            break;
                        }
                        self.version = change.version;
                        let event = self.selector.event(self.plural, change);
                        self.events.extend(event.clone().filter(|_| mood == Mood::Repeats));
                        self.events.extend(event);
                    }
                }
                if cuts.1 != self.cuts.1 && self.events.is_empty() {
                    return Ok(None);
                }
                (mood, is_ahead)
            };
            let answers = mood.obeys();
            if answers && let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = sleep(PING), if mood == Mood::Hangs => {
                    return Err("keep-alive timed out".into());
                }
                () = sleep_until(due.unwrap_or(self.ends)), if due.is_some() => {}
                // It has nothing to say of a version that it has not reached.
                () = sleep_until(self.tells), if answers && due.is_none() && !is_ahead => {
                    self.tells += BOOKMARKS;
                    return Ok(Some(bookmark(self.version, &json!({}))));
                }
                () = sleep_until(self.ends), if answers => return Ok(None),
            }
        }
    }
}

impl Selector {
    /// The event of a change, for whoever watches what the selector has.
    fn event(&self, plural: &str, change: &Change) -> Option<String> {
        if change.key.0 != plural {
            return None;
        }
        let has = |object: &Option<Arc<Value>>| object.as_ref().is_some_and(|one| self.has(one));
        match (has(&change.before), has(&change.after), &change.before, &change.after) {
            (false, true, _, Some(after)) => Some(event("ADDED", after)),
            (true, true, _, Some(after)) => Some(event("MODIFIED", after)),
            (true, false, Some(before), _) => {
                let mut gone = Value::clone(before);
                gone["metadata"]["resourceVersion"] = json!(change.version.to_string());
                Some(event("DELETED", &gone))
            }
            _ => None,
        }
    }
}

/// `/apis/GROUP/VERSION/[namespaces/NAMESPACE/]PLURAL[/NAME[/status]]`.
fn place(path: &str) -> Option<Place> {
    let words: Vec<_> = path.split('/').filter(|word| !word.is_empty()).collect();
    let (group, version, rest) = match words[..] {
        ["api", version, ref rest @ ..] => ("", version, rest),
        ["apis", group, version, ref rest @ ..] => (group, version, rest),
        _ => return None,
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        rest => ("", rest),
    };
    let (plural, name, is_status) = match rest {
        [plural] => (plural, None, false),
        [plural, name] => (plural, Some((*name).to_owned()), false),
        [plural, name, "status"] => (plural, Some((*name).to_owned()), true),
        _ => return None,
    };
    let kind = Kind::at(group, version, plural)?;
    Some(Place { kind, namespace: namespace.to_owned(), name, is_status })
}

fn verb(method: &Method, place: &Place, is_watch: bool) -> &'static str {
    match method.as_str() {
        "GET" if is_watch => "watch",
        "GET" if place.name.is_some() => "get",
        "GET" => "list",
        "POST" => "create",
        "PUT" => "update",
        "DELETE" => "delete",
        _ => "patch",
    }
}

/// A line of a watch.
fn event(kind: &str, object: &Value) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn bookmark(version: u64, annotations: &Value) -> String {
    let metadata = json!({ "resourceVersion": version.to_string(), "annotations": annotations });
    event("BOOKMARK", &json!({ "kind": "", "apiVersion": "", "metadata": metadata }))
}

fn status((code, reason, message): &Failure) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure",
        "code": code, "reason": reason, "message": message,
    })
}

fn failed(failure: &Failure) -> (u16, Parts) {
    (failure.0, whole(status(failure).to_string()))
}
