//! Health, metrics and what features serve, over HTTP.

mod metrics;
mod published;

use http::{StatusCode, Uri};
use mcs_kube::{
    program::http::{Answer, Serve, Serves},
    reach::source,
};
use prometheus::TEXT_FORMAT;

pub use self::{
    metrics::{Metrics, PeerBounds},
    published::Published,
};

impl Serve for Published {
    /// Each address serves all paths.
    fn answer(&self, serves: Serves, uri: &Uri) -> Answer {
        if let Some(answer) = self.answers.iter().find_map(|answer| answer(serves, uri)) {
            return answer;
        }
        let health = |problem: Option<String>| match problem {
            None => Answer::text(StatusCode::OK, "ok\n"),
            Some(problem) => Answer::text(StatusCode::SERVICE_UNAVAILABLE, problem + "\n"),
        };
        match uri.path() {
            "/livez" => health(self.stuck()),
            "/readyz" => health(self.not_ready()),
            "/metrics" => match self.metrics.text() {
                Ok(body) => Answer { status: StatusCode::OK, content: TEXT_FORMAT, body },
                Err(error) => Answer::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
            },
            // `mcs check` and `mcs up` ask from another cluster, to tell whether addresses are masqueraded on the way.
            source::PATH => {
                let client = serves.client.map_or_else(String::new, |client| client.to_string());
                let is_large = uri.query() == Some(source::LARGE);
                let padding = if is_large { " ".repeat(source::PADDING) } else { String::new() };
                Answer::text(StatusCode::OK, client + &padding + "\n")
            }
            _ => Answer::text(
                StatusCode::NOT_FOUND,
                "there are /livez, /readyz, /source and /metrics\n",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_follow_the_state() {
        let published = Published::new().unwrap();
        let serves = Serves { health: true, metrics: true, local: true, client: None };
        let status = |path: &str| published.answer(serves, &path.parse().unwrap()).status.as_u16();
        published.life.beat();
        assert_eq!((status("/livez"), status("/readyz"), status("/")), (200, 503, 404));
        published.set_synced();
        assert_eq!(status("/readyz"), 200);
        published.life.stop();
        assert_eq!((status("/livez"), status("/readyz")), (200, 503));
        assert_eq!(status("/metrics"), 200);
        let length = |path: &str| published.answer(serves, &path.parse().unwrap()).body.len();
        assert_eq!((length("/source"), length("/source?large")), (1, 1 + source::PADDING));
    }
}
