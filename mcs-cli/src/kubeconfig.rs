//! The kubeconfigs and contexts on the command line, and the API servers in them.

use std::{env, fmt, fs, io, path::PathBuf, str::FromStr};

use clap::Args;
use k8s_openapi::ByteString;
use kube::config::{Context, Kubeconfig};
use mcs_kube::{KubeconfigFile, program::suggest};

/// The clusters of a command.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    /// Kubeconfigs, one for each cluster: `FILE` or `FILE:CONTEXT`
    #[arg(value_name = "KUBECONFIG")]
    kubeconfigs: Vec<KubeconfigArg>,

    /// A context of KUBECONFIG, whose files are merged as kubectl does, or of ~/.kube/config; repeatable
    #[arg(long = "context", value_name = "NAME")]
    contexts: Vec<String>,
}

/// The clusters of a command that has other arguments too.
#[derive(Debug, Args)]
pub(crate) struct ContextArgs {
    /// A context of KUBECONFIG or of ~/.kube/config; repeatable [default: all]
    #[arg(long = "context", value_name = "NAME")]
    contexts: Vec<String>,

    /// A kubeconfig instead: `FILE` or `FILE:CONTEXT`; repeatable
    #[arg(long = "kubeconfig", value_name = "KUBECONFIG")]
    kubeconfigs: Vec<KubeconfigArg>,
}

impl ContextArgs {
    /// The kubeconfigs of all named clusters.
    pub(crate) fn named(&self) -> Result<Vec<KubeconfigArg>, KubeconfigError> {
        named(&self.kubeconfigs, &self.contexts)
    }
}

/// A kubeconfig on the command line: `FILE` or `FILE:CONTEXT`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KubeconfigArg {
    /// One file, or all files of KUBECONFIG.
    pub(crate) files: Vec<PathBuf>,
    pub(crate) context: Option<String>,
}

/// Why a kubeconfig is unusable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KubeconfigError {
    /// It is unreadable.
    #[error("cannot read the kubeconfig {file}")]
    Read {
        /// Its path.
        file: String,
        /// The error of the system.
        source: io::Error,
    },
    /// It is not a kubeconfig.
    #[error("the kubeconfig {file} is none: {problem}")]
    Invalid {
        /// Its path.
        file: String,
        /// What is wrong.
        problem: String,
    },
    /// No kubeconfig has the context.
    #[error("no context {context} in {files}, only {known}{meant}")]
    NoContext {
        /// The name.
        context: String,
        /// The searched kubeconfig.
        files: String,
        /// The existing contexts.
        known: String,
        /// A context with a similar name, as a question.
        meant: String,
    },
    /// There is no context to use.
    #[error("the kubeconfig {0} has no current context: name one")]
    NoCurrent(String),
    /// There is no kubeconfig.
    #[error("KUBECONFIG names no file, and there is no ~/.kube/config: give kubeconfigs")]
    None,
    /// No context leads to a cluster of a clusterset.
    #[error(
        "no context of the kubeconfig leads to a cluster with an id (ClusterProperty cluster.clusterset.k8s.io): name kubeconfigs or contexts"
    )]
    NoMember,
}

impl ClusterArgs {
    /// The clusters of known kubeconfigs.
    pub(crate) const fn of(kubeconfigs: Vec<KubeconfigArg>) -> Self {
        Self { kubeconfigs, contexts: Vec::new() }
    }

    /// The kubeconfigs of all named clusters.
    pub(crate) fn named(&self) -> Result<Vec<KubeconfigArg>, KubeconfigError> {
        named(&self.kubeconfigs, &self.contexts)
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "_@%+=:,./-".contains(letter);
    if word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The given kubeconfigs, and those of contexts.
pub(crate) fn named(
    kubeconfigs: &[KubeconfigArg],
    contexts: &[String],
) -> Result<Vec<KubeconfigArg>, KubeconfigError> {
    let mut all = kubeconfigs.to_vec();
    if !contexts.is_empty() {
        let files = default_files();
        for context in contexts {
            all.push(with_context(&files, context)?);
        }
    }
    Ok(all)
}

impl KubeconfigArg {
    /// The kubeconfig of the environment with its current context. `None`: there is none.
    pub(crate) fn of_environment() -> Result<Option<Self>, KubeconfigError> {
        let mut found = Self { files: default_files(), context: None };
        if found.files.is_empty() {
            return Ok(None);
        }
        found.context = found.read()?.current_context;
        Ok(Some(found))
    }

    /// Every context of the environment's kubeconfig, the current one first.
    pub(crate) fn of_all_contexts() -> Result<Vec<Self>, KubeconfigError> {
        let all = Self { files: default_files(), context: None };
        if all.files.is_empty() {
            return Ok(Vec::new());
        }
        let config = all.read()?;
        let is_current = |name: &String| config.current_context.as_ref() == Some(name);
        let mut names: Vec<_> = config.contexts.iter().map(|one| one.name.clone()).collect();
        names.sort_by_key(|name| !is_current(name));
        let with = |name| Self { files: all.files.clone(), context: Some(name) };
        Ok(names.into_iter().map(with).collect())
    }

    /// The name of the context.
    pub(crate) fn context_name(&self) -> Result<String, KubeconfigError> {
        if let Some(context) = &self.context {
            return Ok(context.clone());
        }
        let current = self.read()?.current_context;
        current.ok_or_else(|| KubeconfigError::NoCurrent(self.file_names()))
    }

    /// The flags that lead kubectl to this cluster, for a command that somebody pastes.
    pub(crate) fn flags(&self) -> Result<String, KubeconfigError> {
        let context = format!("--context {}", quoted(&self.context_name()?));
        Ok(match &*self.files {
            [file] => format!("{context} --kubeconfig {}", quoted(&file.display().to_string())),
            // They are those of KUBECONFIG.
            _ => context,
        })
    }

    /// The files and the context, as the library reads them.
    pub(crate) fn of_files(&self) -> KubeconfigFile {
        KubeconfigFile { paths: self.files.clone(), context: self.context.clone() }
    }

    fn read(&self) -> Result<Kubeconfig, KubeconfigError> {
        for file in &self.files {
            // kube repeats the error of a file.
            if let Err(source) = fs::File::open(file) {
                return Err(KubeconfigError::Read { file: file.display().to_string(), source });
            }
        }
        self.of_files().read().map_err(|error| KubeconfigError::Invalid {
            file: self.file_names(),
            problem: error.to_string(),
        })
    }

    fn file_names(&self) -> String {
        let files: Vec<_> = self.files.iter().map(|file| file.display().to_string()).collect();
        files.join(", ")
    }

    /// The API server in it.
    pub(crate) fn endpoint(&self) -> Result<Endpoint, KubeconfigError> {
        let file = self.file_names();
        let invalid = |problem: String| KubeconfigError::Invalid { file: file.clone(), problem };
        let config = self.read()?;
        let context = self.context.as_ref().or(config.current_context.as_ref());
        let context = context.ok_or_else(|| KubeconfigError::NoCurrent(file.clone()))?;
        let named = find(&config, context).ok_or_else(|| self.no_context(context, &config))?;
        let cluster = config.clusters.iter().find(|one| one.name == named.cluster);
        let cluster = cluster.and_then(|one| one.cluster.as_ref());
        let cluster = cluster.ok_or_else(|| {
            invalid(format!("it has no cluster {}, which context {context} names", named.cluster))
        })?;
        let authority = match (&cluster.certificate_authority_data, &cluster.certificate_authority)
        {
            (Some(data), _) => Some(data.clone()),
            (None, Some(path)) => {
                let bytes = fs::read(path)
                    .map_err(|source| KubeconfigError::Read { file: path.clone(), source })?;
                let text = serde_json::to_value(ByteString(bytes)).unwrap_or_default();
                text.as_str().map(str::to_owned)
            }
            (None, None) => None,
        };
        let server = cluster.server.clone();
        let server = server.ok_or_else(|| invalid("its cluster has no server".to_owned()))?;
        Ok(Endpoint { server, authority, server_name: cluster.tls_server_name.clone() })
    }

    fn no_context(&self, context: &str, config: &Kubeconfig) -> KubeconfigError {
        let known: Vec<_> = config.contexts.iter().map(|one| one.name.as_str()).collect();
        let meant = suggest::closest(context, known.iter().copied());
        KubeconfigError::NoContext {
            context: context.to_owned(),
            files: self.file_names(),
            known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
            meant: meant.map(|name| format!(": did you mean {name}?")).unwrap_or_default(),
        }
    }
}

impl FromStr for KubeconfigArg {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.rsplit_once(':') {
            Some((file, context)) if !context.contains('/') && !context.is_empty() => {
                Self { files: vec![file.into()], context: Some(context.to_owned()) }
            }
            _ => Self { files: vec![text.into()], context: None },
        })
    }
}

impl fmt::Display for KubeconfigArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&*self.files, &self.context) {
            ([file], Some(context)) => write!(f, "{}:{context}", file.display()),
            (_, Some(context)) => write!(f, "context {context}"),
            (_, None) => f.write_str(&self.file_names()),
        }
    }
}

/// An API server in a kubeconfig.
pub(crate) struct Endpoint {
    /// Its URL.
    pub(crate) server: String,
    /// The certificate of its authority, in base64.
    pub(crate) authority: Option<String>,
    /// The name in its certificate, if the URL has another.
    pub(crate) server_name: Option<String>,
}

/// The files that kubectl would use.
fn default_files() -> Vec<PathBuf> {
    if let Some(list) = env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) {
        // kubectl also skips missing files.
        return env::split_paths(&list).filter(|file| file.exists()).collect();
    }
    let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config"));
    home.filter(|file| file.exists()).into_iter().collect()
}

/// A context of the environment, or a kubeconfig if there is such a file.
pub(crate) fn context_or_file(text: &str) -> Result<KubeconfigArg, KubeconfigError> {
    let Ok(file) = text.parse::<KubeconfigArg>();
    if file.files.iter().all(|file| file.exists()) {
        return Ok(file);
    }
    with_context(&default_files(), text)
}

/// The current context of the merged files.
fn with_context(files: &[PathBuf], context: &str) -> Result<KubeconfigArg, KubeconfigError> {
    if files.is_empty() {
        return Err(KubeconfigError::None);
    }
    let named = KubeconfigArg { files: files.to_vec(), context: Some(context.to_owned()) };
    let config = named.read()?;
    find(&config, context).map(drop).ok_or_else(|| named.no_context(context, &config))?;
    Ok(named)
}

fn find<'a>(config: &'a Kubeconfig, context: &str) -> Option<&'a Context> {
    config.contexts.iter().find(|one| one.name == context)?.context.as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_to_paste_leads_to_the_cluster() {
        let arg = |files: &[&str], context: &str| KubeconfigArg {
            files: files.iter().map(PathBuf::from).collect(),
            context: Some(context.to_owned()),
        };
        let flags = |files, context| arg(files, context).flags().unwrap();
        assert_eq!(flags(&["a.conf"], "east"), "--context east --kubeconfig a.conf");
        assert_eq!(flags(&["a", "b"], "admin@east"), "--context admin@east");
        assert_eq!(flags(&[], "my east's"), r"--context 'my east'\''s'");
    }

    #[test]
    fn a_context_follows_the_file() {
        for (text, file, context) in [
            ("east.conf", "east.conf", None),
            ("/etc/east.conf:admin", "/etc/east.conf", Some("admin")),
            ("/etc/a:b/east.conf", "/etc/a:b/east.conf", None),
        ] {
            let Ok(argument) = text.parse::<KubeconfigArg>();
            assert_eq!(argument.files, [PathBuf::from(file)]);
            assert_eq!(argument.context.as_deref(), context);
            assert_eq!(argument.to_string(), text);
        }
    }

    /// Files in a directory, each with its own.
    fn files(of_each: &[(&str, &str)]) -> (tempfile::TempDir, Vec<PathBuf>) {
        let directory = tempfile::tempdir().unwrap();
        let write = |(name, text): &(&str, &str)| {
            let path = directory.path().join(name).join("config");
            fs::create_dir(path.parent().unwrap()).unwrap();
            fs::write(&path, format!("apiVersion: v1\nkind: Config\n{text}")).unwrap();
            path
        };
        let files = of_each.iter().map(write).collect();
        (directory, files)
    }

    #[test]
    fn contexts_are_found_in_a_list_of_files() {
        let text = |name: &str| {
            format!(
                "clusters: [{{name: {name}, cluster: {{server: 'https://{name}'}}}}]\n\
                 contexts: [{{name: {name}, context: {{cluster: {name}, user: u}}}}]\n"
            )
        };
        let (east, west) = (text("east"), text("west"));
        let (directory, files) = files(&[("east", &east), ("west", &west)]);
        let found = with_context(&files, "west").unwrap();
        assert_eq!(found.endpoint().unwrap().server, "https://west");
        let error = with_context(&files, "wset").unwrap_err().to_string();
        assert!(error.ends_with("only east, west: did you mean west?"), "{error}");
        let current = KubeconfigArg { files: vec![files[0].clone()], context: None };
        assert!(matches!(current.endpoint(), Err(KubeconfigError::NoCurrent(_))));
        let absent = KubeconfigArg { files: vec![directory.path().join("absent")], context: None };
        let error = anyhow::Error::from(absent.endpoint().err().unwrap());
        assert_eq!(format!("{error:#}").matches("No such file").count(), 1, "{error:#}");
    }

    /// Two files have cluster `c`, and its context is in the first, its authority beside the second.
    #[test]
    fn the_first_file_with_a_name_counts() {
        let one = "contexts: [{name: one, context: {cluster: c, user: u}}]\n";
        let two = "current-context: one\nclusters: [{name: c, cluster: {server: 'https://two', certificate-authority: ca.crt}}]\n";
        let three =
            "current-context: x\nclusters: [{name: c, cluster: {server: 'https://three'}}]\n";
        let (directory, files) = files(&[("one", one), ("two", two), ("three", three)]);
        fs::write(directory.path().join("two/ca.crt"), "A").unwrap();
        let argument = KubeconfigArg { files: files.clone(), context: None };
        assert_eq!(argument.context_name().unwrap(), "one");
        let Endpoint { server, authority, .. } = argument.endpoint().unwrap();
        assert_eq!((&*server, authority.as_deref()), ("https://two", Some("QQ==")));
        let alone =
            KubeconfigArg { files: vec![files[0].clone()], context: Some("one".to_owned()) };
        let error = alone.endpoint().err().unwrap().to_string();
        assert!(error.ends_with("it has no cluster c, which context one names"), "{error}");
        let listed = KubeconfigArg { files, context: Some("one".to_owned()) };
        assert_eq!(listed.to_string(), "context one");
    }
}
