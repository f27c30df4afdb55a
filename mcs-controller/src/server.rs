//! Health, metrics and the page over HTTP.

mod metrics;
mod page;
mod published;

use http::{StatusCode, Uri};
use mcs_kube::{
    program::{
        http::{Answer, Serve, Serves},
        page as page_of_program,
    },
    reach::source,
};
use prometheus::TEXT_FORMAT;

pub use self::{
    metrics::{Metrics, PeerBounds},
    page::{ImportView, PageData, View},
    published::Published,
};

impl Serve for Published {
    /// Each address serves all paths.
    fn answer(&self, serves: Serves, uri: &Uri) -> Answer {
        if let Some(data) = &self.page
            && let Some(answer) = page_of_program::answer(serves, uri, |query| data.page(query))
        {
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
                Answer::text(StatusCode::OK, client + "\n")
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
        let published = Published::new(false).unwrap();
        let serves = Serves { health: true, metrics: true, local: true, client: None };
        let status = |path: &str| published.answer(serves, &path.parse().unwrap()).status.as_u16();
        published.life.beat();
        assert_eq!((status("/livez"), status("/readyz"), status("/")), (200, 503, 404));
        published.set_synced();
        assert_eq!(status("/readyz"), 200);
        published.life.stop();
        assert_eq!((status("/livez"), status("/readyz")), (200, 503));
        assert_eq!(status("/metrics"), 200);
    }
}
