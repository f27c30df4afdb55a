//! The log of the programs: they write to a ring buffer, a task copies it to the log of this process.

use aya::Ebpf;
use aya_log::EbpfLogger;
use thiserror::Error;
use tokio::{
    io::{Interest, unix::AsyncFd},
    task::JoinHandle,
};

/// Why the log of the programs cannot be followed.
#[derive(Debug, Error)]
pub enum ProgramLogError {
    /// The object has no ring buffer for it.
    #[error("cannot read the log of the programs")]
    Read(#[from] aya_log::Error),
    /// The runtime cannot wait for the ring buffer.
    #[error("cannot wait for the log of the programs")]
    Wait(#[source] std::io::Error),
}

/// The task that copies the log. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct ProgramLog(JoinHandle<()>);

impl ProgramLog {
    /// Starts the task in the current runtime.
    pub(super) fn follow(ebpf: &mut Ebpf) -> Result<Self, ProgramLogError> {
        let logger = EbpfLogger::init(ebpf)?;
        #[expect(unsafe_code, reason = "tokio has no safe call that waits for a descriptor")]
        // SAFETY: the logger owns its ring buffer's descriptor, and keeps it until it is dropped.
        let logger = unsafe { AsyncFd::register_with_interest(logger, Interest::READABLE) };
        let mut logger = logger.map_err(|error| ProgramLogError::Wait(error.into()))?;
        Ok(Self(tokio::spawn(async move {
            while let Ok(mut guard) = logger.readable_mut().await {
                guard.get_inner_mut().flush();
                guard.clear_ready();
            }
        })))
    }
}

impl Drop for ProgramLog {
    fn drop(&mut self) {
        self.0.abort();
    }
}
