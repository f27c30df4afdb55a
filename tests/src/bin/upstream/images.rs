//! The images of the specs, under the names that the specs give them. Nothing is pulled.

use std::env;

use mcs_tests::{
    cluster::Programs,
    oci::{self, Content, Image},
    prelude::*,
};

/// The variable with the directory of the specs' programs.
const VARIABLE: &str = "MCS_UPSTREAM";

/// What the specs run in a shell of their images, from this machine. busybox has the rest.
const TOOLS: [&str; 11] =
    ["bash", "curl", "dig", "getent", "hostname", "ip", "nc", "ss", "timeout", "tr", "wget"];

/// A program of the specs.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    let directory = env::var_os(VARIABLE).map(PathBuf::from);
    let directory = directory
        .with_context(|| format!("{VARIABLE} is not set: run `cargo xtask test upstream`"))?;
    Ok(directory.join(name))
}

/// Writes an archive with the images that the network's specs use, of those that the specs name.
pub(crate) fn write(archive: &Path, programs: &Programs, names: &str) -> Result {
    let agnhost = program("agnhost")?;
    let tools = tools(programs)?;
    let with_tools = || {
        let mut files = vec![("agnhost".into(), Content::Program(agnhost.clone()))];
        files.extend(tools.iter().cloned());
        files
    };
    let sleep: &[&str] = &["/bin/sleep", "2147483647"];
    let boom = "regression-issue-74839";
    let mut images = Vec::new();
    for name in names.lines() {
        let last = name.rsplit('/').next().and_then(|last| last.split(':').next());
        let (entrypoint, arguments, files): (&[&str], &[&str], _) = match last.unwrap_or_default() {
            "agnhost" => (&["/agnhost"], &["pause"], with_tools()),
            "busybox" => (&[], &["sh"], with_tools()),
            "glibc-dns-testing" => (&[], &["bash"], with_tools()),
            "pause" => (sleep, &[], with_tools()),
            last if last == boom => (
                &["/regression-issue-74839"],
                &[],
                vec![(boom.into(), Content::Program(program(boom)?))],
            ),
            _ => continue,
        };
        images.push(Image { name, entrypoint, arguments, files, ..Image::default() });
    }
    oci::write(archive, &images)
}

/// A shell and what belongs to it, with the libraries of those programs that are not static.
fn tools(programs: &Programs) -> Result<Vec<(PathBuf, Content)>> {
    let mut files = BTreeMap::from([("tmp".into(), Content::Shared)]);
    let busybox = programs.find("busybox")?;
    for applet in process::run(Command::new(&busybox).arg("--list"), "")?.lines() {
        files.insert(Path::new("bin").join(applet), Content::Link("busybox".into()));
    }
    files.insert("bin/busybox".into(), Content::Program(busybox));
    for tool in TOOLS {
        let program = programs.find(tool)?;
        for library in libraries(&program)? {
            let path = library.strip_prefix("/")?.to_owned();
            files.insert(path, Content::Program(library));
        }
        files.insert(Path::new("bin").join(tool), Content::Program(program));
    }
    // The shell of busybox takes its own applets before programs.
    files.insert("bin/sh".into(), Content::Link("bash".into()));
    let directories: BTreeSet<_> =
        files.keys().flat_map(|file| file.ancestors().skip(1)).map(Path::to_owned).collect();
    let directories = directories.into_iter().filter(|path| !path.as_os_str().is_empty());
    // A directory sorts before what is in it.
    let directories = directories.map(|path| (path, Content::Directory));
    Ok(directories.chain(files).collect())
}

/// The libraries that a program is linked with, and what loads them.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let said = process::run(Command::new("ldd").arg(program), "")?;
    let path =
        |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    Ok(said.lines().filter_map(path).collect())
}
