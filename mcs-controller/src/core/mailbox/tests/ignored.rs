//! What is logged of objects that are ignored.

use super::*;
use crate::core::mailbox::ignored::Ignored;

/// What a function logs.
fn logged(work: impl FnOnce()) -> Vec<String> {
    #[derive(Clone, Default)]
    struct Log(Arc<std::sync::Mutex<Vec<u8>>>);
    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let written = Log::default();
    let writer = written.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, work);
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn objects_that_are_ignored_are_few_short_lines() {
    let mut view = known();
    let lines = logged(|| {
        for number in 0..100 {
            let mut object = object("a");
            object["metadata"]["name"] =
                json!(format!("x{number}\n\u{1b}[31m{}", "y".repeat(10_000)));
            view.apply(MailboxEvent::Services(ResourceEvent::Changed(decoded(object))));
        }
    });
    assert!(lines.len() <= 10, "{} lines", lines.len());
    assert!(lines.iter().all(|line| line.len() < 1000), "{} bytes", lines[0].len());
    assert_eq!(view.ignored(), 100);
}

#[test]
fn objects_that_are_ignored_have_ten_lines_a_minute() {
    let begin = std::time::Instant::now();
    let mut ignored = Ignored::new(begin);
    let mut lines = |after| {
        let now = begin + std::time::Duration::from_secs(after);
        let key = mcs_kube::ObjectKey { namespace: MAILBOX.into(), name: "x".into() };
        let cluster = "east".parse().unwrap();
        let note = |_| ignored.note(&cluster, ("ExportedService", &key), "it is broken", now);
        logged(|| (0..10_000).for_each(note))
    };
    assert_eq!(lines(0).len(), 10);
    assert_eq!(lines(59), [""; 0]);
    let lines = lines(60);
    assert_eq!(lines.len(), 11);
    assert!(lines[0].contains("19990 more objects"), "{}", lines[0]);
}
