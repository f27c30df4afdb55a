//! Parses a manifest file into objects, each with its position in the file.

use std::{collections::BTreeMap, fmt, io, panic, sync::Arc, thread};

use serde_path_to_error::Path;

use super::{
    documents::{Document, documents},
    yaml::{PARSER_STACK, YamlNode},
};
use crate::{
    model::{Kind, ObjectKey, ObjectRef},
    source::{
        adopt::ReadObject,
        objects::{self, ReadScope},
    },
};

/// The namespace of manifests without one, as with kubectl.
const DEFAULT_NAMESPACE: &str = "default";

/// The contents of a manifest file.
#[derive(Debug, Default)]
pub(super) struct FileContent {
    /// In the order of the file.
    pub(super) manifests: Vec<Manifest>,
    /// Documents that name no object.
    pub(super) problems: Vec<FileProblem>,
    /// The number of objects that the agent does not use, by `apiVersion/kind`.
    pub(super) skipped: BTreeMap<String, u64>,
}

/// One object in a file.
#[derive(Debug)]
pub(super) struct Manifest {
    pub(super) object: ObjectRef,
    pub(super) position: FilePosition,
    /// The object, or why it does not decode as its kind.
    pub(super) decoded: Result<Arc<ReadObject>, FileProblem>,
}

/// A part of a file that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FileProblem {
    /// `None` is the whole file.
    pub(super) position: Option<FilePosition>,
    pub(super) message: String,
}

/// A position in a file. It displays as `document 2, line 14`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FilePosition {
    document: usize,
    line: u64,
}

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "document {}, line {}", self.document, self.line)
    }
}

impl FileContent {
    /// Parses a file of YAML or JSON documents. An invalid object fails alone, and a syntax error fails
    /// the whole file. The outer error is a failure to start the parser's thread.
    pub(super) fn parse(bytes: &[u8], scope: &ReadScope) -> io::Result<Result<Self, FileProblem>> {
        thread::scope(|threads| {
            let parser =
                thread::Builder::new().name("manifests".to_owned()).stack_size(PARSER_STACK);
            let parser = parser.spawn_scoped(threads, || Self::parse_here(bytes, scope))?;
            Ok(parser.join().unwrap_or_else(|panic| panic::resume_unwind(panic)))
        })
    }

    fn parse_here(bytes: &[u8], scope: &ReadScope) -> Result<Self, FileProblem> {
        let text = str::from_utf8(bytes).map_err(|error| not_utf8(bytes, error.valid_up_to()))?;
        let mut content = Parser { scope, content: Self::default() };
        for document in documents(text.trim_start_matches('\u{feff}')) {
            let root = YamlNode::parse(document.text).map_err(|error| FileProblem {
                position: Some(document.position(error.line)),
                message: error.to_string(),
            })?;
            if !root.is_null() {
                content.add(&document, &root, None);
            }
        }
        Ok(content.content)
    }
}

/// Collects the content of a file.
struct Parser<'a> {
    scope: &'a ReadScope,
    content: FileContent,
}

impl Parser<'_> {
    /// Adds an object, or every object of a list. `implied` is the type that a list gives its items.
    fn add(&mut self, document: &Document<'_>, node: &YamlNode, implied: Option<TypeMeta<'_>>) {
        let Some(type_meta) = TypeMeta::of(node).or(implied) else {
            self.problem(
                document,
                node,
                "this is no Kubernetes object: it needs apiVersion and kind",
            );
            return;
        };
        if type_meta.is_list(self.scope) {
            self.add_list(document, node, type_meta.item(self.scope));
        } else if let Some(kind) = self.scope.kind(type_meta.api_version, type_meta.kind) {
            self.add_object(document, node, kind, type_meta);
        } else {
            self.skip(type_meta.to_string());
        }
    }

    fn add_list(
        &mut self,
        document: &Document<'_>,
        list: &YamlNode,
        implied: Option<TypeMeta<'_>>,
    ) {
        match list.get("items").map(YamlNode::items) {
            None => {}
            Some(None) => self.problem(document, list, "the items of a list must be a sequence"),
            Some(Some(items)) => {
                for item in items {
                    self.add(document, item, implied);
                }
            }
        }
    }

    fn add_object(
        &mut self,
        document: &Document<'_>,
        node: &YamlNode,
        kind: Kind,
        type_meta: TypeMeta<'_>,
    ) {
        let is_standard = kind != Kind::EndpointSlice || may_be_imported(node);
        if !is_standard && self.scope.adopt.is_empty() {
            self.skip_unlabelled(type_meta);
            return;
        }
        let Some(key) = key(node) else {
            let message = format!(
                "the agent does not use a {kind} without a valid name: metadata.name must be a string, \
                 and so must metadata.namespace if it is set"
            );
            self.problem(document, node, &message);
            return;
        };
        let decode = if is_standard { objects::decode } else { objects::decode_adoptable };
        let decoded = match decode(kind, key.clone(), &node.to_json()) {
            Ok(Some(object)) => Ok(Arc::new(object)),
            Ok(None) => {
                self.skip_unlabelled(type_meta);
                return;
            }
            Err(error) => Err(FileProblem {
                position: Some(document.position(node.line_at(error.path()))),
                message: with_path(error.path(), &error.inner().to_string()),
            }),
        };
        self.content.manifests.push(Manifest {
            object: ObjectRef { kind, key },
            position: document.position(node.line()),
            decoded,
        });
    }

    fn skip_unlabelled(&mut self, type_meta: TypeMeta<'_>) {
        self.skip(format!("{type_meta} without {}", objects::SERVICE_NAME_LABEL));
    }

    fn skip(&mut self, what: String) {
        *self.content.skipped.entry(what).or_default() += 1;
    }

    fn problem(&mut self, document: &Document<'_>, node: &YamlNode, message: &str) {
        let position = Some(document.position(node.line()));
        self.content.problems.push(FileProblem { position, message: message.to_owned() });
    }
}

impl Document<'_> {
    /// `line` counts from 1 within the document.
    fn position(&self, line: u64) -> FilePosition {
        FilePosition { document: self.number, line: self.first_line + line - 1 }
    }
}

/// The type of an object. It displays as `apiVersion/kind`.
#[derive(Clone, Copy)]
struct TypeMeta<'a> {
    api_version: &'a str,
    kind: &'a str,
}

impl<'a> TypeMeta<'a> {
    fn of(node: &'a YamlNode) -> Option<Self> {
        Some(Self {
            api_version: node.get("apiVersion")?.as_str()?,
            kind: node.get("kind")?.as_str()?,
        })
    }

    /// Whether this is a list that may have objects for the agent.
    fn is_list(self, scope: &ReadScope) -> bool {
        (self.api_version, self.kind) == ("v1", "List") || self.item(scope).is_some()
    }

    /// The type of the items of a list of one kind. The API server does not repeat it in each item.
    fn item(self, scope: &ReadScope) -> Option<Self> {
        let kind = self.kind.strip_suffix("List")?;
        scope.kind(self.api_version, kind)?;
        Some(Self { kind, ..self })
    }
}

impl fmt::Display for TypeMeta<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.api_version, self.kind)
    }
}

fn key(node: &YamlNode) -> Option<ObjectKey> {
    let metadata = node.get("metadata")?;
    let name = metadata.get("name")?.as_str().filter(|name| !name.is_empty())?;
    let namespace = match metadata.get("namespace") {
        Some(namespace) => namespace.as_str()?,
        None => "",
    };
    let namespace = if namespace.is_empty() { DEFAULT_NAMESPACE } else { namespace };
    Some(ObjectKey::new(namespace, name))
}

/// Whether a slice has the label of imported slices. A label that is no string makes it malformed, not
/// a slice of another controller.
fn may_be_imported(slice: &YamlNode) -> bool {
    slice
        .get("metadata")
        .and_then(|metadata| metadata.get("labels"))
        .and_then(|labels| labels.get(objects::SERVICE_NAME_LABEL))
        .is_some_and(|service| service.as_str() != Some(""))
}

fn with_path(path: &Path, message: &str) -> String {
    match path.iter().len() {
        0 => message.to_owned(),
        _ => format!("{path}: {message}"),
    }
}

fn not_utf8(bytes: &[u8], valid_up_to: usize) -> FileProblem {
    let valid = String::from_utf8_lossy(&bytes[..valid_up_to]);
    let document = documents(&valid).count().max(1);
    let line = valid.split('\n').zip(1..).last().map_or(1, |(_, line)| line);
    FileProblem { position: Some(FilePosition { document, line }), message: "not UTF-8".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// One line per manifest, problem and skipped kind.
    fn summary(bytes: &[u8]) -> Vec<String> {
        let content = match FileContent::parse(bytes, &ReadScope::default()).unwrap() {
            Ok(content) => content,
            Err(problem) => return vec![format!("FILE {}", describe(&problem))],
        };
        let manifests = content.manifests.iter().map(|manifest| match &manifest.decoded {
            Ok(object) => {
                assert_eq!(object.reference(), manifest.object);
                format!("{} at {}", manifest.object, manifest.position)
            }
            Err(problem) => format!("{} BAD {}", manifest.object, describe(problem)),
        });
        let problems = content.problems.iter().map(|problem| format!("? {}", describe(problem)));
        let skipped = content.skipped.iter().map(|(kind, count)| format!("{kind} x{count}"));
        manifests.chain(problems).chain(skipped).collect()
    }

    fn describe(problem: &FileProblem) -> String {
        match problem.position {
            Some(position) => format!("{position}: {}", problem.message),
            None => problem.message.clone(),
        }
    }

    #[test]
    fn objects_are_found_with_their_positions() {
        let alpha = IMPORT.replace("v1beta1", "v1alpha1");
        for (text, expected) in [
            (String::new(), vec![]),
            ("# only\n---\n# comments\n---\n~\n".to_owned(), vec![]),
            (IMPORT.to_owned(), vec!["ServiceImport shop/web at document 1, line 1"]),
            (alpha, vec!["ServiceImport shop/web at document 1, line 1"]),
            (format!("\u{feff}{IMPORT}"), vec!["ServiceImport shop/web at document 1, line 1"]),
            (
                format!("# licence\n---\n{IMPORT}---\n---\n{SLICE}"),
                vec![
                    "ServiceImport shop/web at document 1, line 3",
                    "EndpointSlice default/web-a at document 3, line 9",
                ],
            ),
            (
                format!("{IMPORT}---\n{SLICE}").replace('\n', "\r\n"),
                vec![
                    "ServiceImport shop/web at document 1, line 1",
                    "EndpointSlice default/web-a at document 2, line 6",
                ],
            ),
            (
                "{\n\t\"apiVersion\": \"discovery.k8s.io/v1\",\n\t\"kind\": \"EndpointSlice\",\n\
                 \t\"metadata\": {\n\t\t\"name\": \"web-a\",\n\t\t\"namespace\": \"\",\n\
                 \t\t\"labels\": {\"multicluster.kubernetes.io/service-name\": \"web\"}\n\t},\n\
                 \t\"addressType\": \"IPv4\"\n}\n"
                    .to_owned(),
                vec!["EndpointSlice default/web-a at document 1, line 1"],
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
                    "ServiceImport shop/a at document 1, line 4",
                    "ServiceImport shop/b at document 1, line 5",
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
                    "ServiceImport shop/a at document 1, line 4",
                    "ServiceImport shop/b at document 1, line 5",
                ],
            ),
            (
                "apiVersion: discovery.k8s.io/v1\nkind: EndpointSliceList\nitems:\n- metadata:\n    \
                 name: web-a\n    labels: {multicluster.kubernetes.io/service-name: web}\n  \
                 addressType: IPv4\n"
                    .to_owned(),
                vec!["EndpointSlice default/web-a at document 1, line 4"],
            ),
            ("{apiVersion: v1, kind: List, items: []}".to_owned(), vec![]),
            ("{apiVersion: v1, kind: List, items: null}".to_owned(), vec![]),
            ("{apiVersion: v1, kind: PodList, items: [{}]}".to_owned(), vec!["v1/PodList x1"]),
            (
                "\napiVersion: v1\nkind: List\nitems: web\n".to_owned(),
                vec!["? document 1, line 2: the items of a list must be a sequence"],
            ),
            (
                "apiVersion: v1\nkind: List\nitems:\n- {metadata: {name: a}}\n".to_owned(),
                vec![
                    "? document 1, line 4: this is no Kubernetes object: it needs apiVersion and kind",
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
                    "ServiceImport shop/web at document 1, line 1",
                    "ServiceImport default/bad BAD document 2, line 14: spec.ports[1].port: invalid \
                     type: string \"http\", expected i32",
                ],
            ),
            (
                format!(
                    "apiVersion: v1\nkind: List\nitems:\n- {}",
                    MALFORMED.replace('\n', "\n  ")
                ),
                vec![
                    "ServiceImport default/bad BAD document 1, line 12: spec.ports[1].port: invalid \
                     type: string \"http\", expected i32",
                ],
            ),
            (
                MALFORMED.split_inclusive("spec:").next().unwrap().replace("spec:", ""),
                vec!["ServiceImport default/bad BAD document 1, line 1: missing field `spec`"],
            ),
            (
                unlabelled,
                vec![
                    "EndpointSlice default/web-a BAD document 1, line 5: \
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
        for (text, line, message) in [
            ("just text", 1, no_object),
            ("---\n[1, 2]", 2, no_object),
            ("kind: ServiceImport\n", 1, no_object),
            ("apiVersion: 1\nkind: ServiceImport\n", 1, no_object),
        ] {
            assert_eq!(
                summary(text.as_bytes()),
                [format!("? document 1, line {line}: {message}")],
                "{text}"
            );
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
                    "ServiceImport shop/web at document 1, line 1",
                    "? document 2, line 6: the agent does not use a ServiceImport without a valid \
                     name: metadata.name must be a string, and so must metadata.namespace if it is set",
                ],
                "{metadata}"
            );
        }
    }

    #[test]
    fn nesting_is_bounded_and_needs_no_deep_stack() {
        let nested = |levels| format!("{}1{}", "{a: [".repeat(levels), "]}".repeat(levels));
        let shallow = thread::Builder::new().stack_size(256 * 1024);
        let allowed = shallow.spawn(move || summary(nested(31).as_bytes())).unwrap();
        assert_eq!(
            allowed.join().unwrap(),
            ["? document 1, line 1: this is no Kubernetes object: it needs apiVersion and kind"]
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
            (b"a: 1\n---\nb: \xff\n".to_vec(), "FILE document 2, line 3: not UTF-8"),
            (b"\xff\xfea".to_vec(), "FILE document 1, line 1: not UTF-8"),
        ] {
            assert_eq!(summary(&bytes), [expected]);
        }
    }
}
