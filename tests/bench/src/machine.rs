//! Describes the machine that the bench runs on.

use rustix::system::uname;

use crate::prelude::*;

/// What figures depend on.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    /// UTC.
    date: String,
    kernel: String,
    processor: String,
    processors: usize,
    /// Of the processors' time since then, what the hypervisor gave to others.
    stolen_percent: f64,
    #[serde(skip)]
    begin: Ticks,
}

/// CPU time since the machine started, of all processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ticks {
    all: u32,
    /// What a hypervisor gave to others while they had work to do.
    stolen: u32,
}

impl Machine {
    /// This one, now.
    pub(crate) fn look_at() -> Result<Self> {
        let kernel = uname().release().to_string_lossy().into_owned();
        let info = fs::read_to_string("/proc/cpuinfo")?;
        let processor = model(&info).unwrap_or("unknown").to_owned();
        let processors = thread::available_parallelism()?.get();
        Ok(Self {
            date: jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M").to_string(),
            kernel,
            processor,
            processors,
            stolen_percent: 0.0,
            begin: Ticks::now()?,
        })
    }

    /// The same, where everything has been measured.
    pub(crate) fn at_the_end(self) -> Result<Self> {
        let now = Ticks::now()?;
        let all = f64::from(now.all.wrapping_sub(self.begin.all).max(1));
        let stolen = f64::from(now.stolen.wrapping_sub(self.begin.stolen));
        Ok(Self { stolen_percent: (stolen / all * 1000.0).round() / 10.0, ..self })
    }
}

impl Ticks {
    fn now() -> Result<Self> {
        Self::parse(&fs::read_to_string("/proc/stat")?).context("/proc/stat is not understood")
    }

    /// The line `cpu` of /proc/stat, as in `proc_stat(5)`.
    fn parse(stat: &str) -> Option<Self> {
        /// From `user` to `steal`; what guests got is in the first two of them.
        const FIELDS: usize = 8;

        let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(FIELDS);
        // Differences are looked at alone, and they are far smaller.
        #[expect(clippy::cast_possible_truncation, reason = "wraps around")]
        let fields: Vec<u32> =
            fields.map(|field| Some(field.parse::<u64>().ok()? as u32)).collect::<Option<_>>()?;
        let all = fields.iter().fold(0_u32, |sum, field| sum.wrapping_add(*field));
        Some(Self { all, stolen: *fields.get(FIELDS - 1)? })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { date, kernel, processor, processors, stolen_percent, begin: _ } = self;
        write!(
            f,
            "{date} UTC, Linux {kernel}, {processors} x {processor}, {stolen_percent} % of their time \
             went to others on the host"
        )
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

    #[test]
    fn what_others_got_is_told_apart() {
        let stat = "cpu  10 20 30 40 5 6 7 8 9 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n";
        assert_eq!(Ticks::parse(stat), Some(Ticks { all: 126, stolen: 8 }));
        assert_eq!(Ticks::parse("cpu  10 20 30"), None);
        assert_eq!(Ticks::parse("intr 1"), None);
    }
}
