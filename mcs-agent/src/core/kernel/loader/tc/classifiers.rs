//! The programs of the packet path. The kernel gets each when the first device needs it.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
};

use aya::{
    Ebpf,
    programs::{ProgramError, SchedClassifier},
};

use super::{TcError, TcHook};
use crate::core::kernel::{devices::LinkType, loader::LoadError};

/// A loaded program.
#[derive(Debug)]
pub(crate) struct Classifier {
    pub(crate) program: OwnedFd,
    pub(crate) id: u32,
}

/// What the kernel said of a program: it takes it, or refuses it for good.
type Verdict = Result<Arc<Classifier>, String>;

/// The programs of the packet path, of one object.
#[derive(Debug, Default)]
pub struct Classifiers {
    /// None in tests, which have no more than what is loaded.
    object: Option<Arc<Mutex<Ebpf>>>,
    verdicts: Mutex<BTreeMap<&'static str, Verdict>>,
}

impl Classifiers {
    /// The programs of an object, of which these are loaded.
    pub(crate) fn new(
        object: Arc<Mutex<Ebpf>>,
        needed: &[&'static str],
    ) -> Result<Self, LoadError> {
        let load = |name: &&'static str| {
            let loaded = load(&object, name);
            let error = |source| LoadError::Program { program: name, source };
            Ok((*name, Ok(Arc::new(loaded.map_err(error)?))))
        };
        let verdicts = needed.iter().map(load).collect::<Result<_, LoadError>>()?;
        Ok(Self { object: Some(object), verdicts: Mutex::new(verdicts) })
    }

    /// The program for a hook of a device.
    pub(super) fn get(
        &self,
        hook: TcHook,
        link_type: &LinkType,
    ) -> Result<Arc<Classifier>, TcError> {
        let program = hook.program(link_type);
        let mut verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        let verdict = match verdicts.get(program) {
            Some(verdict) => verdict,
            None => verdicts.entry(program).or_insert(self.ask(program)?),
        };
        verdict.clone().map_err(|said| TcError::Refused { program, said })
    }

    fn ask(&self, program: &'static str) -> Result<Verdict, TcError> {
        let object = self.object.as_ref().ok_or(TcError::NotLoaded { program })?;
        match load(object, program) {
            Ok(classifier) => Ok(Ok(Arc::new(classifier))),
            Err(ProgramError::LoadError { io_error, verifier_log })
                if is_of_verifier(&io_error) =>
            {
                tracing::warn!(
                    "the kernel does not take the program {program}, and the devices that need it get none: \
                     {io_error}: {}",
                    last_lines(&verifier_log.to_string())
                );
                Ok(Err(io_error.to_string()))
            }
            Err(error) => {
                Err(TcError::bpf(format!("load the program {program}"), io::Error::other(error)))
            }
        }
    }

    /// The programs that the kernel has taken.
    pub(crate) fn loaded(&self) -> Vec<&'static str> {
        let verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        verdicts.iter().filter(|(_, verdict)| verdict.is_ok()).map(|(name, _)| *name).collect()
    }
}

fn load(object: &Mutex<Ebpf>, name: &str) -> Result<Classifier, ProgramError> {
    let mut object = object.lock().unwrap_or_else(PoisonError::into_inner);
    let program: &mut SchedClassifier =
        object.program_mut(name).ok_or(ProgramError::NotLoaded)?.try_into()?;
    program.load()?;
    let id = program.info()?.id();
    let program = program.fd()?.as_fd().try_clone_to_owned().map_err(ProgramError::IOError)?;
    Ok(Classifier { program, id })
}

/// Whether an error is about this program, and stays. With others, such as ENOMEM, EMFILE and EPERM, no program loads, or
/// another attempt may succeed.
fn is_of_verifier(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EINVAL | libc::E2BIG))
}

/// The end of a log, which says why the verifier refuses a program. The rest is thousands of lines.
fn last_lines(log: &str) -> &str {
    const LINES: usize = 20;
    let start = log.rmatch_indices('\n').nth(LINES).map_or(0, |(newline, _)| newline + 1);
    &log[start..]
}

#[cfg(test)]
impl Classifiers {
    /// `from_pod`, with the id 7, and `from_pod_bare`, which the kernel refuses.
    pub(crate) fn taken_and_refused() -> Self {
        let program = std::fs::File::open("/dev/null").unwrap().into();
        let verdicts = BTreeMap::from([
            ("from_pod", Ok(Arc::new(Classifier { program, id: 7 }))),
            ("from_pod_bare", Err("too large".to_owned())),
        ]);
        Self { object: None, verdicts: Mutex::new(verdicts) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_the_kernel_refuses_is_missing_for_its_devices_alone() {
        let classifiers = Classifiers::taken_and_refused();
        assert_eq!(classifiers.loaded(), ["from_pod"]);
        let get = |hook, link_type| classifiers.get(hook, &link_type).map(|found| found.id);
        assert_eq!(get(TcHook::FromPod, LinkType::Ethernet).unwrap(), 7);
        let refused = get(TcHook::FromPod, LinkType::Bare).unwrap_err().to_string();
        assert!(refused.contains("from_pod_bare") && refused.contains("too large"), "{refused}");
        assert!(matches!(
            get(TcHook::ToPod, LinkType::Ethernet),
            Err(TcError::NotLoaded { program: "to_pod" })
        ));
    }

    #[test]
    fn a_shortage_says_nothing_about_a_program() {
        let is_of_verifier = |errno| is_of_verifier(&io::Error::from_raw_os_error(errno));
        assert!([libc::EACCES, libc::EINVAL, libc::E2BIG].into_iter().all(is_of_verifier));
        assert!(![libc::ENOMEM, libc::EMFILE, libc::EPERM].into_iter().any(is_of_verifier));
    }

    #[test]
    fn the_end_of_a_log_is_told() {
        assert_eq!(last_lines("a\nb"), "a\nb");
        assert_eq!(last_lines(""), "");
        let log = (0..30).fold(String::new(), |log, line| log + &line.to_string() + "\n");
        let told = last_lines(&log);
        assert!(told.starts_with("10\n") && told.ends_with("29\n"), "{told}");
    }
}
