//! Why a list or a watch ended, and what the error of an API server says.

use std::{error::Error, io, time::Duration};

use thiserror::Error;

use super::pieces::Unreadable;
use crate::one_line;

/// The longest `Retry-After` that a watch respects.
pub(super) const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);
/// The cause of the error of a server that has not reached the requested resource version.
const VERSION_TOO_LARGE: &str = "ResourceVersionTooLarge";

/// The receiver of the events was dropped.
#[derive(Debug, Error)]
#[error("the receiver was dropped")]
pub(super) struct ReceiverDropped;

/// The reason why a list or a watch ended.
#[derive(Debug, Error)]
pub(super) enum WatchError {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("the API server sends nothing")]
    Silent,
    #[error("the API server ended the list before it was complete")]
    ListCut,
    #[error("the API server ends watches at once")]
    WatchCut,
    #[error("the API server sends neither events nor bookmarks")]
    Quiet,
    #[error("the kubeconfig was replaced")]
    Replaced,
    #[error("another watch found the connection to the API server broken")]
    Renewed,
    #[error(transparent)]
    ReceiverDropped(#[from] ReceiverDropped),
}

impl WatchError {
    /// Whether a plain list may succeed where a streamed one has failed.
    pub(super) fn may_be_of_streams(&self) -> bool {
        match self {
            Self::Silent | Self::ListCut => true,
            Self::Api(error) => {
                code(error).is_some_and(|code| code >= 500) && !lacks_version(error)
            }
            _ => false,
        }
    }

    /// Whether JSON may succeed where protobuf has failed.
    pub(super) fn may_be_of_messages(&self) -> bool {
        matches!(self, Self::Api(kube::Error::ReadEvents(error)) if is_unreadable(error))
    }
}

/// The status code of the API server's answer; `None` if there was no answer.
pub(super) fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Whether the API server lacks the requested resource version, because it is too old or too new. A new one is a 504 with a
/// cause; without the cause, a 504 is a timeout.
pub(super) fn lacks_version(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let mut causes = causes.map(|cause| &*cause.reason);
    status.code == 410 || causes.any(|cause| cause == VERSION_TOO_LARGE)
}

/// The delay that an overloaded server requests (`Retry-After`).
pub(super) fn retry_after(error: &kube::Error) -> Duration {
    let details = match error {
        kube::Error::Api(status) => status.details.as_ref(),
        _ => None,
    };
    let seconds = details.map_or(0, |details| details.retry_after_seconds);
    Duration::from_secs(seconds.into()).min(LONGEST_RETRY_AFTER)
}

/// Whether the content of an answer was at fault.
fn is_unreadable(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn Error + Send + Sync>::is::<Unreadable>)
}

/// The error in one line, without kube's repetitions.
pub(super) fn describe(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => one_line(&status.message),
        kube::Error::Service(error) => chain(&*error),
        kube::Error::HyperError(error) => chain(&error),
        kube::Error::ReadEvents(error) if is_unreadable(&error) => error.to_string(),
        kube::Error::ReadEvents(error) => {
            tracing::debug!("{}", chain(&error));
            "the connection was lost".to_owned()
        }
        other => chain(&other),
    }
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let part = error.to_string();
        if !text.ends_with(&part) {
            text = format!("{text}: {part}");
        }
        source = error.source();
    }
    text
}
