//! Ctrl-C during the work of `mcs up`: nothing else begins, and what has begun ends.

use anyhow::anyhow;
use tokio::{signal::ctrl_c, sync::watch};

/// Whether somebody has pressed Ctrl-C. The first listener of a process takes the default handler away for good, so there is one
/// for the whole of the work.
#[derive(Clone)]
pub(super) struct Interrupt(watch::Receiver<bool>);

impl Interrupt {
    /// Listens from now on.
    pub(super) fn listen() -> Self {
        let (sender, receiver) = watch::channel(false);
        tokio::spawn(async move {
            if ctrl_c().await.is_ok() {
                eprintln!("mcs: it was interrupted: what has begun ends, and nothing else begins");
                sender.send_replace(true);
            }
            // The receivers wait for ever, and not for a sender that is gone.
            sender.closed().await;
        });
        Self(receiver)
    }

    pub(super) fn has_come(&self) -> bool {
        *self.0.borrow()
    }

    /// Does the work unless it is interrupted.
    ///
    /// # Errors
    /// The work fails, or is interrupted.
    pub(super) async fn or_work<T>(
        &self,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        let mut receiver = self.0.clone();
        tokio::select! {
            result = work => result,
            Ok(_) = receiver.wait_for(|has_come| *has_come) => Err(anyhow!("it was interrupted")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn work_ends_when_it_is_interrupted() {
        let (sender, receiver) = watch::channel(false);
        let interrupt = Interrupt(receiver);
        assert_eq!(interrupt.or_work(ready(Ok(1))).await.unwrap(), 1);
        assert!(!interrupt.has_come());
        sender.send_replace(true);
        assert!(interrupt.has_come());
        let ended = interrupt.or_work(pending::<anyhow::Result<()>>()).await.unwrap_err();
        assert_eq!(ended.to_string(), "it was interrupted");
    }
}
