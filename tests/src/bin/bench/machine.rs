//! What is measured on.

use std::{fmt, fs, thread};

use rustix::system::uname;
use serde::Serialize;

/// What figures depend on.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    /// UTC.
    date: String,
    kernel: String,
    processor: String,
    processors: usize,
}

impl Machine {
    /// This one, now.
    pub(crate) fn look_at() -> anyhow::Result<Self> {
        let kernel = uname().release().to_string_lossy().into_owned();
        let info = fs::read_to_string("/proc/cpuinfo")?;
        let processor = model(&info).unwrap_or("unknown").to_owned();
        let processors = thread::available_parallelism()?.get();
        Ok(Self {
            date: jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M").to_string(),
            kernel,
            processor,
            processors,
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { date, kernel, processor, processors } = self;
        write!(f, "{date} UTC, Linux {kernel}, {processors} x {processor}")
    }
}

/// The name of the first processor, in /proc/cpuinfo.
fn model(info: &str) -> Option<&str> {
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_has_a_name() {
        let info = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: Other\n";
        assert_eq!(model(info), Some("Some CPU @ 2 GHz"));
        assert_eq!(model("processor : 0"), None);
    }
}
