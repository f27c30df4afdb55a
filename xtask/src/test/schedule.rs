//! Which suites run when: some alone, the others side by side.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use super::suites::Company;

/// How often it is said what runs while nothing ends.
const INTERVAL: Duration = Duration::from_mins(1);

/// Something to run.
pub(super) struct Job<T> {
    pub(super) name: &'static str,
    pub(super) company: Company,
    /// How long it is thought to take.
    pub(super) time: Duration,
    pub(super) work: T,
}

/// What happens while jobs run.
pub(super) enum Event<'a, R> {
    /// A job has begun, and whether others may run meanwhile.
    Begun(&'static str, bool),
    /// Nothing has ended for a while.
    Waiting(&'a [&'static str]),
    /// A job has ended, and these still run.
    Ended(&'static str, &'a R, &'a [&'static str]),
}

/// Runs jobs, `width` of neighbours in company at once and the longest first. Returns what came of them in their order.
///
/// `run` is given the work and whether others may run meanwhile. Events come one at a time.
pub(super) fn run_all<T: Sync, R: Send>(
    jobs: &[Job<T>],
    width: usize,
    run: impl Fn(&T, bool) -> R + Sync,
    mut see: impl FnMut(Event<'_, R>),
) -> Vec<R> {
    let mut results: Vec<Option<R>> = jobs.iter().map(|_| None).collect();
    let mut first = 0;
    for group in jobs.chunk_by(|a, b| a.company == Company::Others && b.company == a.company) {
        let crowd = group.len() > 1 && width > 1;
        let ended = run_group(group, if crowd { width } else { 1 }, crowd, &run, &mut see);
        for (index, result) in ended {
            results[first + index] = Some(result);
        }
        first += group.len();
    }
    results.into_iter().flatten().collect()
}

fn run_group<T: Sync, R: Send>(
    group: &[Job<T>],
    width: usize,
    crowd: bool,
    run: &(impl Fn(&T, bool) -> R + Sync),
    see: &mut impl FnMut(Event<'_, R>),
) -> Vec<(usize, R)> {
    enum Message<R> {
        Begun(usize),
        Ended(usize, R),
    }

    let mut order: Vec<_> = (0..group.len()).collect();
    if crowd {
        order.sort_by_key(|index| std::cmp::Reverse(group[*index].time));
    }
    let queue = Mutex::new(VecDeque::from(order));
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let (sender, receiver) = mpsc::channel();
    let mut results = Vec::new();
    thread::scope(|scope| {
        for _ in 0..width.min(group.len()) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some(index) = next() {
                    let _ = sender.send(Message::Begun(index));
                    let _ = sender.send(Message::Ended(index, run(&group[index].work, crowd)));
                }
            });
        }
        drop(sender);
        let mut running: Vec<&'static str> = Vec::new();
        loop {
            match receiver.recv_timeout(INTERVAL) {
                Ok(Message::Begun(index)) => {
                    running.push(group[index].name);
                    see(Event::Begun(group[index].name, crowd));
                }
                Ok(Message::Ended(index, result)) => {
                    running.retain(|name| *name != group[index].name);
                    see(Event::Ended(group[index].name, &result, &running));
                    results.push((index, result));
                }
                Err(mpsc::RecvTimeoutError::Timeout) if crowd => see(Event::Waiting(&running)),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
    });
    results
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn job(name: &'static str, company: Company, seconds: u64) -> Job<&'static str> {
        Job { name, company, time: Duration::from_secs(seconds), work: name }
    }

    #[test]
    fn only_neighbours_in_company_run_at_once() {
        let jobs = [
            job("first", Company::Alone, 1),
            job("short", Company::Others, 1),
            job("long", Company::Others, 9),
            job("middle", Company::Others, 5),
            job("last", Company::Alone, 1),
        ];
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = |name: &&'static str, crowd: bool| {
            let running = now.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(running, Ordering::SeqCst);
            assert!(crowd || running == 1, "{name} is not alone");
            thread::sleep(Duration::from_millis(100));
            now.fetch_sub(1, Ordering::SeqCst);
            name.to_uppercase()
        };
        let mut begun = Vec::new();
        let results = run_all(&jobs, 2, work, |event| {
            if let Event::Begun(name, _) = event {
                begun.push(name);
            }
        });
        assert_eq!(results, ["FIRST", "SHORT", "LONG", "MIDDLE", "LAST"]);
        assert_eq!(most.into_inner(), 2);
        assert_eq!((begun[0], begun[3], begun[4]), ("first", "short", "last"));
    }

    #[test]
    fn with_a_width_of_one_all_run_in_their_order() {
        let jobs = [job("short", Company::Others, 1), job("long", Company::Others, 9)];
        let mut ended = Vec::new();
        run_all(
            &jobs,
            1,
            |_, crowd| assert!(!crowd),
            |event| {
                if let Event::Ended(name, (), still) = event {
                    assert!(still.is_empty());
                    ended.push(name);
                }
            },
        );
        assert_eq!(ended, ["short", "long"]);
    }
}
