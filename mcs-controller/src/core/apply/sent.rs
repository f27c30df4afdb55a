//! Sends the writes of a plan one after the other, and tells how they have ended.

use mcs_kube::ApiAccess;

use super::{ApplyError, Request};
use crate::core::plan::{Ending, Ordered, Sending};

/// How the writes of a plan have ended.
#[derive(Debug)]
pub struct Sent<W> {
    /// The error of the first write that failed for another reason than a refusal, or else of the first refused one.
    pub failure: Option<ApplyError>,
    /// The successful writes.
    pub made: Vec<W>,
    /// The writes that the API server refuses, with its answers.
    pub refused: Vec<(W, String)>,
    /// The writes that were not sent, because an earlier write failed or another replica leads.
    pub unsent: Vec<W>,
}

impl<W> Default for Sent<W> {
    fn default() -> Self {
        Self { failure: None, made: vec![], refused: vec![], unsent: vec![] }
    }
}

/// Sends while this replica `leads`. After a failure it sends only the writes that do not depend on the failed one.
/// `is_forgiven`: whether a write counts as made although it has failed so.
pub async fn send_plan<W: Ordered + Clone>(
    access: &ApiAccess,
    leads: impl Fn() -> bool,
    mut sending: Sending<W>,
    requests: &[Request],
    mut is_forgiven: impl FnMut(&W, &ApplyError) -> bool,
) -> Sent<W> {
    let mut sent = Sent::default();
    let mut has_broken_off = false;
    while leads()
        && let Some(index) = sending.next_index()
        && let Some(request) = requests.get(index)
        && let Some(write) = sending.write(index).cloned()
    {
        let error = match request.send(access).await {
            Err(error) if !is_forgiven(&write, &error) => error,
            _ => {
                sending.end(index, Ending::Done);
                continue;
            }
        };
        let is_refusal = error.is_refusal();
        let ending = match (error.is_of_quota(), is_refusal) {
            (true, _) => Ending::NoRoom,
            (_, true) => Ending::Refused,
            _ => Ending::Failed,
        };
        sending.end(index, ending);
        if !sending.has_failed(index) {
            continue;
        }
        if is_refusal {
            sent.refused.push((write, error.to_string()));
        }
        if sent.failure.is_none() || !is_refusal && !has_broken_off {
            sent.failure = Some(error);
        }
        has_broken_off |= !is_refusal;
    }
    (sent.made, sent.unsent) = sending.finish();
    sent
}
