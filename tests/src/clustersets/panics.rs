//! Panics of all tasks of a thread: that of a task for which nobody waits is seen nowhere else.

use std::{cell::RefCell, panic};

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Runs something, and notes each panic meanwhile.
pub(super) fn noting<T>(run: impl FnOnce() -> T) -> T {
    take();
    let former = panic::take_hook();
    panic::set_hook(Box::new(|info| PANICS.with_borrow_mut(|all| all.push(info.to_string()))));
    let done = run();
    panic::set_hook(former);
    done
}

/// The panics since the last call.
pub(super) fn take() -> Vec<String> {
    PANICS.take()
}
