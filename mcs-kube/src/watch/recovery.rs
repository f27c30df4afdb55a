//! What a watch does after an error: it reports the error, and waits before the next attempt.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use tokio::time::sleep;

use super::{
    ListForm, ResourceEvent, ResourceWatch,
    errors::{ReceiverDropped, WatchError, code, describe, lacks_version, retry_after},
};
use crate::{
    access::{AccessError, ApiConnection},
    decoder::Decoder,
    one_line,
};

/// The delays between attempts: 0.25 to 0.5 s first, twice as long each time, and 7.5 to 15 s at most.
/// backon adds a random part, so programs that failed together do not retry together.
pub(super) const BACKOFF: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(250))
    .with_max_delay(Duration::from_millis(7_500))
    .with_jitter()
    .without_max_times();

/// The kind of failure that keeps the resource from being read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outage {
    /// The API server answers with another error.
    ErrorAnswer,
    /// The program lacks the right.
    Forbidden,
    /// The API server does not answer.
    NoAnswer,
}

impl<D: Decoder, U> ResourceWatch<'_, D, U> {
    /// Reports an error, and waits until the next attempt.
    pub(super) async fn recover(
        &mut self,
        error: WatchError,
        connection: &ApiConnection,
    ) -> Result<(), ReceiverDropped> {
        let was_listing = !self.listed;
        self.json_once |= error.may_be_of_messages();
        let mut asked_for = Duration::ZERO;
        match error {
            WatchError::ReceiverDropped(dropped) => return Err(dropped),
            WatchError::Api(error) => match code(&error) {
                Some(400 | 422) if was_listing && self.lists != ListForm::Plain => {
                    let error = describe(error);
                    tracing::debug!(error, "the API server does not stream lists");
                    self.lists = ListForm::Plain;
                    return Ok(());
                }
                Some(404) => {
                    self.listed = false;
                    self.version = (self.version + 1) % self.target.versions.len();
                    if self.version > 0 {
                        return Ok(());
                    }
                    self.outage = Some(Outage::ErrorAnswer);
                    self.send(ResourceEvent::NotServed { last_heard: self.last_heard }).await?;
                }
                // A quorum read needs no version, so this error is like any other.
                _ if lacks_version(&error) && !self.needs_quorum_read => {
                    let error = describe(error);
                    tracing::debug!(error, "the resource version is not available: listing again");
                    // After a watch, a list at the version may still succeed.
                    self.needs_quorum_read = was_listing;
                    self.listed = false;
                    self.backoff = BACKOFF.build();
                }
                code => {
                    let outage = match code {
                        None => Outage::NoAnswer,
                        Some(403) => Outage::Forbidden,
                        Some(_) => Outage::ErrorAnswer,
                    };
                    if self.outage == Some(Outage::NoAnswer) && outage != Outage::NoAnswer {
                        // The API server is starting and will soon serve everything.
                        self.backoff = BACKOFF.build();
                    }
                    asked_for = retry_after(&error);
                    match code {
                        None | Some(401) => self.renew(connection, outage, describe(error)).await?,
                        Some(_) => self.fail(outage, describe(error)).await?,
                    }
                }
            },
            WatchError::Replaced | WatchError::Renewed => return Ok(()),
            WatchError::Quiet => {
                tracing::debug!("{error}: listing again");
                self.needs_quorum_read = true;
                self.listed = false;
                return Ok(());
            }
            WatchError::Silent | WatchError::ListCut | WatchError::WatchCut => {
                self.renew(connection, Outage::NoAnswer, error.to_string()).await?;
            }
        }
        let delay = self.backoff.next().unwrap_or_default();
        self.pause(delay + asked_for).await;
        Ok(())
    }

    /// Waits for this time, or until the kubeconfig changes.
    async fn pause(&mut self, delay: Duration) {
        tokio::select! {
            biased;
            () = sleep(delay) => {}
            () = self.access.replaced(self.kubeconfig.as_ref()) => self.backoff = BACKOFF.build(),
        }
    }

    /// Reports that there is no connection, and waits until the next attempt.
    pub(super) async fn wait_for_access(
        &mut self,
        error: AccessError,
    ) -> Result<(), ReceiverDropped> {
        self.fail(Outage::NoAnswer, format!("{:#}", anyhow::Error::new(error))).await?;
        let delay = self.backoff.next().unwrap_or_default();
        self.pause(delay).await;
        Ok(())
    }

    /// Reports an error and renews the connection. An exec plugin may take long, so the first report of an outage precedes
    /// it.
    async fn renew(
        &mut self,
        connection: &ApiConnection,
        outage: Outage,
        message: String,
    ) -> Result<(), ReceiverDropped> {
        let is_first = self.outage.is_none();
        if is_first {
            self.fail(outage, message.clone()).await?;
        }
        match self.access.renew(connection).await {
            Ok(()) if is_first => Ok(()),
            Ok(()) => self.fail(outage, message).await,
            Err(error) => {
                let error = anyhow::Error::new(error);
                self.fail(outage, format!("{message}; {error:#}")).await
            }
        }
    }

    async fn fail(&mut self, outage: Outage, reason: String) -> Result<(), ReceiverDropped> {
        self.outage = Some(outage);
        let reason = one_line(&reason);
        let (is_forbidden, last_heard) = (outage == Outage::Forbidden, self.last_heard);
        self.send(ResourceEvent::Failing { reason, is_forbidden, last_heard }).await
    }
}
