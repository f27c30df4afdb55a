//! Prints titles, progress and blocks of output for the person who runs a verb.

use std::{
    env,
    fmt::Display,
    io::{self, IsTerminal as _, Write as _},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

/// Standard output: titles, what happens and when, and blocks of what programs print.
pub(crate) struct Screen {
    start: Instant,
    styled: bool,
    /// Whether the last line written is empty.
    spaced: AtomicBool,
    printed: Mutex<Vec<Printed>>,
}

/// What was printed at once.
#[derive(Clone, Debug)]
pub(crate) struct Printed {
    /// Since the screen began.
    pub(crate) seconds: f64,
    pub(crate) text: String,
}

impl Screen {
    /// Begins to count the time. Titles are bold on a terminal.
    pub(crate) fn new() -> Self {
        let styled = io::stdout().is_terminal() && env::var_os("NO_COLOR").is_none();
        Self {
            start: Instant::now(),
            styled,
            spaced: AtomicBool::new(true),
            printed: Mutex::default(),
        }
    }

    /// Begins a part.
    pub(crate) fn title(&self, text: &str) {
        let (bold, plain) = if self.styled { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        self.space();
        self.write(&format!("{bold}{text}{plain}\n\n"));
    }

    /// Says what happens now, after the seconds that have gone by.
    pub(crate) fn progress(&self, text: impl Display) {
        self.write(&format!("{:>6.1} s  {text}\n", self.start.elapsed().as_secs_f64()));
    }

    /// Shows lines as they are, between empty lines.
    pub(crate) fn block(&self, text: &str) {
        self.space();
        let mut block = String::new();
        for line in text.trim_end().lines() {
            block.push_str(format!("    {line}").trim_end());
            block.push('\n');
        }
        self.write(&format!("{block}\n"));
    }

    /// All that was printed since the last call.
    pub(crate) fn take_printed(&self) -> Vec<Printed> {
        std::mem::take(&mut *self.printed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn space(&self) {
        if !self.spaced.swap(true, Ordering::Relaxed) {
            self.write("\n");
        }
    }

    /// A reader who has seen enough (`| head`) does not end the verb.
    fn write(&self, text: &str) {
        let printed =
            Printed { seconds: self.start.elapsed().as_secs_f64(), text: text.to_owned() };
        self.printed.lock().unwrap_or_else(PoisonError::into_inner).push(printed);
        let mut stdout = io::stdout().lock();
        let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
        self.spaced.store(text.ends_with("\n\n"), Ordering::Relaxed);
    }
}

/// Prints a line. A reader who has seen enough (`| head`) does not end the verb.
pub(crate) fn say(line: impl Display) {
    let _ = writeln!(io::stdout(), "{line}");
}
