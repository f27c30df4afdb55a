//! The open connections of one address. Their number is limited, and the limit never keeps a new
//! client waiting.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use tokio::task::JoinHandle;

/// Connections of one address at a time.
const CONNECTIONS: usize = 16;

/// Whether the client of a connection has sent a complete request.
#[derive(Clone, Debug, Default)]
pub(super) struct HasRequest(Arc<AtomicBool>);

impl HasRequest {
    pub(super) fn set(&self) {
        self.0.store(true, Relaxed);
    }
}

#[derive(Debug)]
struct Connection {
    task: JoinHandle<()>,
    has_request: HasRequest,
}

/// The open connections, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Connections(VecDeque<Connection>);

impl Connections {
    /// Adds a connection, which this task serves. If there are too many then, the oldest one without
    /// a complete request is closed. If all have one, the oldest is closed.
    pub(super) fn add(&mut self, task: JoinHandle<()>, has_request: HasRequest) {
        self.0.retain(|connection| !connection.task.is_finished());
        if self.0.len() >= CONNECTIONS {
            let oldest = self.0.iter().position(|one| !one.has_request.0.load(Relaxed));
            if let Some(connection) = self.0.remove(oldest.unwrap_or(0)) {
                connection.task.abort();
            }
        }
        self.0.push_back(Connection { task, has_request });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Connections {
        fn add_silent(&mut self) -> HasRequest {
            let has_request = HasRequest::default();
            self.add(tokio::spawn(std::future::pending()), has_request.clone());
            has_request
        }

        /// Which of the connections are open, as they were added.
        async fn open(&self, all: &[HasRequest]) -> Vec<usize> {
            tokio::task::yield_now().await;
            let is_open = |one: &HasRequest| {
                self.0.iter().any(|connection| {
                    Arc::ptr_eq(&connection.has_request.0, &one.0) && !connection.task.is_finished()
                })
            };
            (0..all.len()).filter(|index| is_open(&all[*index])).collect()
        }
    }

    #[tokio::test]
    async fn the_oldest_connection_without_a_request_makes_room() {
        let mut connections = Connections::default();
        let mut all: Vec<_> = (0..CONNECTIONS).map(|_| connections.add_silent()).collect();
        assert_eq!(connections.open(&all).await, (0..CONNECTIONS).collect::<Vec<_>>());
        all[0].set();
        all.push(connections.add_silent());
        let open: Vec<_> = (0..=CONNECTIONS).filter(|index| *index != 1).collect();
        assert_eq!(connections.open(&all).await, open);
    }

    #[tokio::test]
    async fn the_oldest_makes_room_if_all_have_a_request() {
        let mut connections = Connections::default();
        let mut all: Vec<_> = (0..CONNECTIONS).map(|_| connections.add_silent()).collect();
        all.iter().for_each(HasRequest::set);
        all.push(connections.add_silent());
        assert_eq!(connections.open(&all).await, (1..=CONNECTIONS).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_connection_that_has_ended_takes_no_room() {
        let mut connections = Connections::default();
        let mut all: Vec<_> = (1..CONNECTIONS).map(|_| connections.add_silent()).collect();
        connections.add(tokio::spawn(async {}), HasRequest::default());
        tokio::task::yield_now().await;
        all.push(connections.add_silent());
        assert_eq!(connections.open(&all).await, (0..CONNECTIONS).collect::<Vec<_>>());
    }
}
