//! The kubeconfigs and contexts on the command line, and what they say of API servers.

use std::{env, fmt, fs, io, path::PathBuf, str::FromStr};

use clap::Args;
use k8s_openapi::ByteString;
use kube::config::{Context, Kubeconfig};
use mcs_kube::{KubeconfigFile, program::suggest};

/// The clusters that a command is about.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    /// Kubeconfigs, one for each cluster: `FILE` or `FILE:CONTEXT`
    #[arg(value_name = "KUBECONFIG")]
    kubeconfigs: Vec<KubeconfigArg>,

    /// A context of a kubeconfig in KUBECONFIG, or of ~/.kube/config; repeatable
    #[arg(long = "context", value_name = "NAME")]
    contexts: Vec<String>,
}

/// A kubeconfig on the command line: `FILE` or `FILE:CONTEXT`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KubeconfigArg {
    pub(crate) file: PathBuf,
    pub(crate) context: Option<String>,
}

/// A kubeconfig that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KubeconfigError {
    /// It cannot be read.
    #[error("cannot read the kubeconfig {file}")]
    Read {
        /// Its path.
        file: String,
        /// The error of the system.
        source: io::Error,
    },
    /// It is no kubeconfig.
    #[error("the kubeconfig {file} is none: {problem}")]
    Invalid {
        /// Its path.
        file: String,
        /// What is wrong.
        problem: String,
    },
    /// Nobody has such a context.
    #[error("no context {context} in {files}, only {known}{meant}")]
    NoContext {
        /// The name.
        context: String,
        /// Where it was looked for.
        files: String,
        /// The contexts that are there.
        known: String,
        /// One with a similar name, as a question.
        meant: String,
    },
    /// There is no context to use.
    #[error("the kubeconfig {0} has no current context: name one")]
    NoCurrent(String),
    /// There is no kubeconfig.
    #[error("KUBECONFIG names no file, and there is no ~/.kube/config: give kubeconfigs")]
    None,
}

impl ClusterArgs {
    /// Those of kubeconfigs that are known.
    pub(crate) const fn of(kubeconfigs: Vec<KubeconfigArg>) -> Self {
        Self { kubeconfigs, contexts: Vec::new() }
    }

    /// The kubeconfigs of all clusters that are named.
    pub(crate) fn named(&self) -> Result<Vec<KubeconfigArg>, KubeconfigError> {
        let mut all = self.kubeconfigs.clone();
        if !self.contexts.is_empty() {
            let files = default_files();
            for context in &self.contexts {
                all.push(with_context(&files, context)?);
            }
        }
        Ok(all)
    }
}

impl KubeconfigArg {
    /// That of the environment with its current context. `None`: there is no kubeconfig.
    pub(crate) fn of_environment() -> Result<Option<Self>, KubeconfigError> {
        let files = default_files();
        for file in &files {
            if let Some(context) = read(file)?.current_context {
                return with_context(&files, &context).map(Some);
            }
        }
        Ok(files.first().map(|file| Self { file: file.clone(), context: None }))
    }

    /// The name of the context.
    pub(crate) fn context_name(&self) -> Result<String, KubeconfigError> {
        if let Some(context) = &self.context {
            return Ok(context.clone());
        }
        let current = read(&self.file)?.current_context;
        current.ok_or_else(|| KubeconfigError::NoCurrent(self.file.display().to_string()))
    }

    /// The file and the context, as the library reads them.
    pub(crate) fn of_file(&self) -> KubeconfigFile {
        KubeconfigFile { path: self.file.clone(), context: self.context.clone() }
    }

    /// What it says of the API server.
    pub(crate) fn endpoint(&self) -> Result<Endpoint, KubeconfigError> {
        let file = self.file.display().to_string();
        let invalid = |problem: String| KubeconfigError::Invalid { file: file.clone(), problem };
        let config = read(&self.file)?;
        let context = self.context.as_ref().or(config.current_context.as_ref());
        let context = context.ok_or_else(|| KubeconfigError::NoCurrent(file.clone()))?;
        let named = find(&config, context)
            .ok_or_else(|| no_context(context, &[&self.file], &names(&config)))?;
        let cluster = config.clusters.iter().find(|one| one.name == named.cluster);
        let cluster = cluster.and_then(|one| one.cluster.as_ref());
        let cluster = cluster.ok_or_else(|| {
            let name = &named.cluster;
            invalid(format!(
                "it has context {context} and no cluster {name}: a file has to have both"
            ))
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
}

impl FromStr for KubeconfigArg {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.rsplit_once(':') {
            Some((file, context)) if !context.contains('/') && !context.is_empty() => {
                Self { file: file.into(), context: Some(context.to_owned()) }
            }
            _ => Self { file: text.into(), context: None },
        })
    }
}

impl fmt::Display for KubeconfigArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.display().fmt(f)?;
        self.context.iter().try_for_each(|context| write!(f, ":{context}"))
    }
}

/// What a kubeconfig says of an API server.
pub(crate) struct Endpoint {
    /// Its URL.
    pub(crate) server: String,
    /// The certificate of its authority, in base64.
    pub(crate) authority: Option<String>,
    /// The name in its certificate, if that is not the URL's.
    pub(crate) server_name: Option<String>,
}

/// The files that kubectl would use.
fn default_files() -> Vec<PathBuf> {
    if let Some(list) = env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) {
        // kubectl skips files that are not there too.
        return env::split_paths(&list).filter(|file| file.exists()).collect();
    }
    let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config"));
    home.filter(|file| file.exists()).into_iter().collect()
}

/// The first of these files that has the context.
fn with_context(files: &[PathBuf], context: &str) -> Result<KubeconfigArg, KubeconfigError> {
    let mut known = Vec::new();
    for file in files {
        let config = read(file)?;
        if find(&config, context).is_some() {
            return Ok(KubeconfigArg { file: file.clone(), context: Some(context.to_owned()) });
        }
        known.extend(names(&config));
    }
    if files.is_empty() {
        return Err(KubeconfigError::None);
    }
    Err(no_context(context, &files.iter().collect::<Vec<_>>(), &known))
}

fn no_context(context: &str, files: &[&PathBuf], known: &[String]) -> KubeconfigError {
    let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    let meant = suggest::closest(context, known.iter().map(String::as_str));
    KubeconfigError::NoContext {
        context: context.to_owned(),
        files: files.join(", "),
        known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
        meant: meant.map(|name| format!(": did you mean {name}?")).unwrap_or_default(),
    }
}

fn read(file: &PathBuf) -> Result<Kubeconfig, KubeconfigError> {
    let name = file.display().to_string();
    // kube tells the error of a file twice.
    if let Err(source) = fs::File::open(file) {
        return Err(KubeconfigError::Read { file: name, source });
    }
    let config = Kubeconfig::read_from(file);
    config.map_err(|error| KubeconfigError::Invalid { file: name, problem: error.to_string() })
}

fn find<'a>(config: &'a Kubeconfig, context: &str) -> Option<&'a Context> {
    config.contexts.iter().find(|one| one.name == context)?.context.as_ref()
}

fn names(config: &Kubeconfig) -> Vec<String> {
    config.contexts.iter().map(|one| one.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_follows_the_file() {
        for (text, file, context) in [
            ("east.conf", "east.conf", None),
            ("/etc/east.conf:admin", "/etc/east.conf", Some("admin")),
            ("/etc/a:b/east.conf", "/etc/a:b/east.conf", None),
        ] {
            let Ok(argument) = text.parse::<KubeconfigArg>();
            assert_eq!(argument.file, PathBuf::from(file));
            assert_eq!(argument.context.as_deref(), context);
            assert_eq!(argument.to_string(), text);
        }
    }

    #[test]
    fn contexts_are_found_in_a_list_of_files() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = directory.path().join(name);
            let text = format!(
                "apiVersion: v1\nkind: Config\nclusters: [{{name: {name}, cluster: {{server: 'https://{name}'}}}}]\n\
                 contexts: [{{name: {name}, context: {{cluster: {name}, user: u}}}}]\n"
            );
            fs::write(&path, text).unwrap();
            path
        };
        let files = [file("east"), file("west")];
        let west = with_context(&files, "west").unwrap();
        assert_eq!(west.file, files[1]);
        assert_eq!(west.endpoint().unwrap().server, "https://west");
        let error = with_context(&files, "wset").unwrap_err().to_string();
        assert!(error.ends_with("only east, west: did you mean west?"), "{error}");
        let current = KubeconfigArg { file: files[0].clone(), context: None };
        assert!(matches!(current.endpoint(), Err(KubeconfigError::NoCurrent(_))));
        let absent = KubeconfigArg { file: directory.path().join("absent"), context: None };
        let error = anyhow::Error::from(absent.endpoint().err().unwrap());
        assert_eq!(format!("{error:#}").matches("No such file").count(), 1, "{error:#}");
    }
}
