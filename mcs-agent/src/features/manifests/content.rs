//! Parses a manifest file into objects, each with its place.

use std::{collections::BTreeMap, ffi::OsStr, sync::Arc};

use serde_json::Value as Json;

use super::yaml::{self, Document, documents};
use crate::core::{
    model::{Kind, ObjectKey, ObjectRef, SourceProblem},
    source::{ObjectFilter, ReadObject, decode, objects::SERVICE_NAME_LABEL},
};

/// The namespace of manifests without one, as with kubectl.
const DEFAULT_NAMESPACE: &str = "default";

/// What the agent uses of a manifest file.
#[derive(Clone, Debug, Default)]
pub(super) struct FileContent {
    /// Whether the file could be read once.
    pub(super) was_read: bool,
    /// In the order of the file.
    pub(super) manifests: Vec<Manifest>,
    /// Documents that name no object, or the reason why all of it is not current.
    pub(super) problems: Vec<SourceProblem>,
    /// The number of objects that the agent does not use, by `apiVersion/kind`.
    pub(super) skipped: BTreeMap<String, u64>,
}

/// One object in a file.
#[derive(Clone, Debug)]
pub(super) struct Manifest {
    pub(super) object: ObjectRef,
    /// `web.yaml, document 2`.
    pub(super) place: String,
    /// The object, or where and why it does not decode as its kind.
    pub(super) decoded: Result<ReadObject, String>,
}

impl FileContent {
    /// Parses a file of YAML or JSON documents. An invalid object fails alone, and a syntax error fails
    /// the whole file.
    pub(super) fn parse(
        file: &OsStr,
        bytes: &[u8],
        import_group: &str,
        filter: Option<&dyn ObjectFilter>,
    ) -> Result<Self, SourceProblem> {
        let text = str::from_utf8(bytes).map_err(|error| {
            not_utf8(file, &String::from_utf8_lossy(&bytes[..error.valid_up_to()]))
        })?;
        let mut content = Self { was_read: true, ..Self::default() };
        for document in documents(text.trim_start_matches('\u{feff}')) {
            let place = document.place(file);
            let object = yaml::parse(document.text).map_err(|(line, message)| {
                let line = document.first_line + line - 1;
                SourceProblem { place: format!("{place}, line {line}"), message }
            })?;
            if let Some(object) = object {
                let content = &mut content;
                Parser { place, import_group, filter, content }.add(&object, None);
            }
        }
        Ok(content)
    }
}

/// `apiVersion` and `kind`.
type TypeMeta<'a> = (&'a str, &'a str);

/// Collects the objects of a document. An object is the document, or the item of a list.
struct Parser<'a> {
    /// Of the document.
    place: String,
    import_group: &'a str,
    filter: Option<&'a dyn ObjectFilter>,
    content: &'a mut FileContent,
}

impl Parser<'_> {
    /// Adds an object, or every object of a list. `implied` is the type that a list gives its items.
    fn add(&mut self, object: &Json, implied: Option<TypeMeta<'_>>) {
        let Some((api_version, kind)) = type_of(object).or(implied) else {
            let message = "this is no Kubernetes object: it needs apiVersion and kind";
            return self.problem(message);
        };
        // The API server does not repeat the type in each item.
        let item = kind.strip_suffix("List").map(|kind| (api_version, kind));
        let item = item.filter(|(_, kind)| self.kind(api_version, kind).is_some());
        if item.is_some() || (api_version, kind) == ("v1", "List") {
            self.add_items(object, item);
        } else if let Some(kind) = self.kind(api_version, kind) {
            self.add_object(object, kind, api_version);
        } else {
            self.skip(format!("{api_version}/{kind}"));
        }
    }

    /// The kind of this name, if the agent reads it.
    fn kind(&self, api_version: &str, kind: &str) -> Option<Kind> {
        let known = decode::kind(self.import_group, api_version, kind);
        known.or_else(|| self.filter?.kind(api_version, kind))
    }

    fn add_items(&mut self, list: &Json, implied: Option<TypeMeta<'_>>) {
        match list.get("items") {
            None | Some(Json::Null) => {}
            Some(Json::Array(items)) => {
                for item in items {
                    self.add(item, implied);
                }
            }
            Some(_) => self.problem("the items of a list must be a sequence"),
        }
    }

    fn add_object(&mut self, object: &Json, kind: Kind, api_version: &str) {
        let unlabelled = || format!("{api_version}/{kind} without {SERVICE_NAME_LABEL}");
        let is_foreign = kind == Kind::EndpointSlice && !may_be_imported(object);
        if is_foreign && self.filter.is_none() {
            return self.skip(unlabelled());
        }
        let Some(key) = key(object) else {
            let message = format!(
                "the agent does not use a {kind} without a valid name: metadata.name must be a string, \
                 and so must metadata.namespace if it is set"
            );
            return self.problem(&message);
        };
        let decoded = match self.decode(kind, &key, object) {
            Ok(Some(object)) => Ok(object),
            Ok(None) => return self.skip(unlabelled()),
            Err(error) => Err(format!("{}: {error}", self.place)),
        };
        let (object, place) = (ObjectRef { kind, key }, self.place.clone());
        self.content.manifests.push(Manifest { object, place, decoded });
    }

    fn decode(
        &self,
        kind: Kind,
        key: &ObjectKey,
        object: &Json,
    ) -> Result<Option<ReadObject>, String> {
        if let Some(read) = decode::decode(kind, key, object)? {
            return Ok(Some(read));
        }
        let Some(filter) = self.filter else { return Ok(None) };
        let other = || {
            let reference = ObjectRef { kind, key: key.clone() };
            ReadObject::Other(reference, Arc::new(object.clone()))
        };
        Ok(filter.uses(kind, key, object)?.then(other))
    }

    fn skip(&mut self, what: String) {
        *self.content.skipped.entry(what).or_default() += 1;
    }

    fn problem(&mut self, message: &str) {
        let problem = SourceProblem { place: self.place.clone(), message: message.to_owned() };
        self.content.problems.push(problem);
    }
}

impl Document<'_> {
    fn place(&self, file: &OsStr) -> String {
        format!("{}, document {}", file.display(), self.number)
    }
}

fn type_of(object: &Json) -> Option<TypeMeta<'_>> {
    Some((object.get("apiVersion")?.as_str()?, object.get("kind")?.as_str()?))
}

/// A null counts as absent, as in the Kubernetes API.
fn key(object: &Json) -> Option<ObjectKey> {
    let metadata = object.get("metadata")?;
    let name = metadata.get("name")?.as_str().filter(|name| !name.is_empty())?;
    let namespace = match metadata.get("namespace") {
        None | Some(Json::Null) => "",
        Some(namespace) => namespace.as_str()?,
    };
    let namespace = if namespace.is_empty() { DEFAULT_NAMESPACE } else { namespace };
    Some(ObjectKey::new(namespace, name))
}

/// Whether a slice has the label of imported slices. A label that is no string makes it malformed, not
/// a slice of another controller.
fn may_be_imported(slice: &Json) -> bool {
    // No field is an index: a missing one is null.
    let service = &slice["metadata"]["labels"][SERVICE_NAME_LABEL];
    !service.is_null() && service != ""
}

fn not_utf8(file: &OsStr, valid: &str) -> SourceProblem {
    let number = documents(valid).len().max(1);
    let place = Document { number, first_line: 1, text: valid }.place(file);
    SourceProblem { place, message: "not UTF-8".to_owned() }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::core::source::objects::MCS_GROUP;

    const IMPORT: &str = "apiVersion: multicluster.x-k8s.io/v1beta1\n\
                          kind: ServiceImport\n\
                          metadata: {name: web, namespace: shop}\n\
                          spec: {type: ClusterSetIP, ips: [10.0.0.1], ports: [{port: 80}]}\n";
    const SLICE: &str = "apiVersion: discovery.k8s.io/v1\n\
                         kind: EndpointSlice\n\
                         metadata:\n  \
                           name: web-a\n  \
                           labels: {multicluster.kubernetes.io/service-name: web}\n\
                         addressType: IPv4\n";
    const MALFORMED: &str = "apiVersion: multicluster.x-k8s.io/v1beta1\n\
                             kind: ServiceImport\n\
                             metadata:\n  \
                               name: bad\n\
                             spec:\n  \
                               type: ClusterSetIP\n  \
                               ports:\n  \
                               - port: 80\n  \
                               - port: http\n";

    fn reference(read: &ReadObject) -> ObjectRef {
        match read {
            ReadObject::Import(read) => read.import.read_from(),
            ReadObject::Slice(slice) => {
                ObjectRef { kind: Kind::EndpointSlice, key: slice.key.clone() }
            }
            ReadObject::Other(reference, _) => reference.clone(),
        }
    }

    /// One line per manifest, problem and skipped kind.
    fn summary(bytes: &[u8]) -> Vec<String> {
        let file = "web.yaml";
        let in_file = |place: &str| place.strip_prefix("web.yaml, ").unwrap().to_owned();
        let describe =
            |problem: &SourceProblem| format!("{}: {}", in_file(&problem.place), problem.message);
        let content = match FileContent::parse(file.as_ref(), bytes, MCS_GROUP, None) {
            Ok(content) => content,
            Err(problem) => return vec![format!("FILE {}", describe(&problem))],
        };
        let manifests = content.manifests.iter().map(|manifest| match &manifest.decoded {
            Ok(object) => {
                assert_eq!(reference(object), manifest.object);
                format!("{} at {}", manifest.object, in_file(&manifest.place))
            }
            Err(problem) => format!("{} BAD {}", manifest.object, in_file(problem)),
        });
        let problems = content.problems.iter().map(|problem| format!("? {}", describe(problem)));
        let skipped = content.skipped.iter().map(|(kind, count)| format!("{kind} x{count}"));
        manifests.chain(problems).chain(skipped).collect()
    }

    #[test]
    fn objects_are_found_with_their_documents() {
        let alpha = IMPORT.replace("v1beta1", "v1alpha1");
        for (text, expected) in [
            (String::new(), vec![]),
            ("# only\n---\n# comments\n---\n~\n".to_owned(), vec![]),
            (IMPORT.to_owned(), vec!["ServiceImport shop/web at document 1"]),
            (alpha, vec!["ServiceImport shop/web at document 1"]),
            (format!("\u{feff}{IMPORT}"), vec!["ServiceImport shop/web at document 1"]),
            (
                format!("# licence\n---\n{IMPORT}---\n---\n{SLICE}"),
                vec![
                    "ServiceImport shop/web at document 1",
                    "EndpointSlice default/web-a at document 3",
                ],
            ),
            (
                format!("{IMPORT}---\n{SLICE}").replace('\n', "\r\n"),
                vec![
                    "ServiceImport shop/web at document 1",
                    "EndpointSlice default/web-a at document 2",
                ],
            ),
            (
                "{\n\t\"apiVersion\": \"discovery.k8s.io/v1\",\n\t\"kind\": \"EndpointSlice\",\n\
                 \t\"metadata\": {\n\t\t\"name\": \"web-a\",\n\t\t\"namespace\": \"\",\n\
                 \t\t\"labels\": {\"multicluster.kubernetes.io/service-name\": \"web\"}\n\t},\n\
                 \t\"addressType\": \"IPv4\"\n}\n"
                    .to_owned(),
                vec!["EndpointSlice default/web-a at document 1"],
            ),
        ] {
            assert_eq!(summary(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn lists_are_flattened() {
        let item = |name: &str, head: &str| {
            format!(
                "- {{{head} metadata: {{name: {name}, namespace: shop}}, \
                 spec: {{type: Headless, ports: []}}}}\n"
            )
        };
        let import = "apiVersion: multicluster.x-k8s.io/v1alpha1, kind: ServiceImport,";
        for (text, expected) in [
            (
                format!(
                    "apiVersion: v1\nkind: List\nitems:\n{}{}- {{apiVersion: v1, kind: Pod}}\n",
                    item("a", import),
                    item("b", import)
                ),
                vec![
                    "ServiceImport shop/a at document 1",
                    "ServiceImport shop/b at document 1",
                    "v1/Pod x1",
                ],
            ),
            (
                format!(
                    "apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceImportList\nitems:\n{}{}",
                    item("a", ""),
                    item("b", import)
                ),
                vec![
                    "ServiceImport shop/a at document 1",
                    "ServiceImport shop/b at document 1",
                ],
            ),
            (
                "apiVersion: discovery.k8s.io/v1\nkind: EndpointSliceList\nitems:\n- metadata:\n    \
                 name: web-a\n    labels: {multicluster.kubernetes.io/service-name: web}\n  \
                 addressType: IPv4\n"
                    .to_owned(),
                vec!["EndpointSlice default/web-a at document 1"],
            ),
            (
                format!(
                    "apiVersion: v1\nkind: List\nitems:\n- {{apiVersion: v1, kind: List}}\n\
                     - apiVersion: v1\n  kind: List\n  items:\n  {}",
                    item("a", import)
                ),
                vec!["ServiceImport shop/a at document 1"],
            ),
            ("{apiVersion: v1, kind: List, items: []}".to_owned(), vec![]),
            ("{apiVersion: v1, kind: List, items: null}".to_owned(), vec![]),
            ("{apiVersion: v1, kind: PodList, items: [{}]}".to_owned(), vec!["v1/PodList x1"]),
            (
                "\napiVersion: v1\nkind: List\nitems: web\n".to_owned(),
                vec!["? document 1: the items of a list must be a sequence"],
            ),
            (
                "apiVersion: v1\nkind: List\nitems:\n- {metadata: {name: a}}\n".to_owned(),
                vec![
                    "? document 1: this is no Kubernetes object: it needs apiVersion and kind",
                ],
            ),
        ] {
            assert_eq!(summary(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_ours_is_counted() {
        let text = "{apiVersion: v1, kind: Service}\n---\n{apiVersion: v1, kind: Service}\n---\n\
                    {apiVersion: multicluster.k8s.io/v1alpha1, kind: ServiceImport}\n---\n\
                    {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: 4}\n---\n\
                    {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: a, \
                    labels: {multicluster.kubernetes.io/service-name: ''}}, addressType: IPv4}\n";
        assert_eq!(
            summary(text.as_bytes()),
            [
                "discovery.k8s.io/v1/EndpointSlice without multicluster.kubernetes.io/service-name x2",
                "multicluster.k8s.io/v1alpha1/ServiceImport x1",
                "v1/Service x2",
            ]
        );
    }

    #[test]
    fn a_malformed_object_fails_alone() {
        let unlabelled = SLICE.replace("name: web}", "name: 7}");
        for (text, expected) in [
            (
                format!("{IMPORT}---\n{MALFORMED}"),
                vec![
                    "ServiceImport shop/web at document 1",
                    "ServiceImport default/bad BAD document 2: spec.ports[1].port: invalid \
                     type: string \"http\", expected i32",
                ],
            ),
            (
                format!(
                    "apiVersion: v1\nkind: List\nitems:\n- {}",
                    MALFORMED.replace('\n', "\n  ")
                ),
                vec![
                    "ServiceImport default/bad BAD document 1: spec.ports[1].port: invalid \
                     type: string \"http\", expected i32",
                ],
            ),
            (
                MALFORMED.split_inclusive("spec:").next().unwrap().replace("spec:", ""),
                vec!["ServiceImport default/bad BAD document 1: missing field `spec`"],
            ),
            (
                unlabelled,
                vec![
                    "EndpointSlice default/web-a BAD document 1: \
                     metadata.labels.multicluster.kubernetes.io/service-name: invalid type: integer \
                     `7`, expected a string",
                ],
            ),
        ] {
            assert_eq!(summary(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn what_names_no_object_is_a_problem() {
        let no_object = "this is no Kubernetes object: it needs apiVersion and kind";
        for text in [
            "just text",
            "---\n[1, 2]",
            "kind: ServiceImport\n",
            "apiVersion: 1\nkind: ServiceImport\n",
        ] {
            assert_eq!(summary(text.as_bytes()), [format!("? document 1: {no_object}")], "{text}");
        }
        for metadata in [
            "",
            "metadata: {}",
            "metadata: {name: ''}",
            "metadata: {name: 7}",
            "metadata: web",
            "metadata: {name: web, namespace: 7}",
        ] {
            let text =
                format!("{IMPORT}---\n{}\n{metadata}\n", IMPORT.replace("metadata: ", "_: "));
            assert_eq!(
                summary(text.as_bytes()),
                [
                    "ServiceImport shop/web at document 1",
                    "? document 2: the agent does not use a ServiceImport without a valid \
                     name: metadata.name must be a string, and so must metadata.namespace if it is set",
                ],
                "{metadata}"
            );
        }
    }

    #[test]
    fn nesting_is_bounded_and_needs_no_deep_stack() {
        let nested = |levels| format!("{}1{}", "{a: [".repeat(levels), "]}".repeat(levels));
        // Threads have this stack by default.
        let shallow = thread::Builder::new().stack_size(2 * 1024 * 1024);
        let allowed = shallow.spawn(move || summary(nested(31).as_bytes())).unwrap();
        assert_eq!(
            allowed.join().unwrap(),
            ["? document 1: this is no Kubernetes object: it needs apiVersion and kind"]
        );
        for text in [nested(33), "- ".repeat(100_000), "[".repeat(100_000), "{a: ".repeat(100_000)]
        {
            let refused = summary(text.as_bytes());
            assert!(refused[0].starts_with("FILE document 1, line 1: "), "{refused:?}");
        }
    }

    #[test]
    fn a_syntax_error_fails_the_file() {
        for (bytes, expected) in [
            (
                format!("{IMPORT}---\na: [\n").into_bytes(),
                "FILE document 2, line 6: unclosed bracket '['",
            ),
            (
                format!("{IMPORT}---\n{SLICE}spec:\n\tx: 1\n").into_bytes(),
                "FILE document 2, line 13: tabs disallowed within this context (block indentation)",
            ),
            (b"a: 1\n---\nb: \xff\n".to_vec(), "FILE document 2: not UTF-8"),
            (b"\xff\xfea".to_vec(), "FILE document 1: not UTF-8"),
        ] {
            assert_eq!(summary(&bytes), [expected]);
        }
    }
}
