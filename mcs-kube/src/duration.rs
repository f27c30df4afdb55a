//! Durations as people write them.

use std::time::Duration;

/// Reads a duration such as `1m30s`.
pub fn duration(text: &str) -> Option<Duration> {
    let mut seconds: u64 = 0;
    let mut number = String::new();
    for c in text.chars() {
        let unit = match c {
            '0'..='9' => {
                number.push(c);
                continue;
            }
            's' => 1,
            'm' => 60,
            'h' => 3600,
            _ => return None,
        };
        let count: u64 = std::mem::take(&mut number).parse().ok()?;
        seconds = seconds.checked_add(count.checked_mul(unit)?)?;
    }
    (number.is_empty() && !text.is_empty()).then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, seconds) in [
            ("40s", Some(40)),
            ("1m30s", Some(90)),
            ("2h", Some(7200)),
            ("40", None),
            ("s", None),
            ("", None),
        ] {
            assert_eq!(duration(text), seconds.map(Duration::from_secs), "{text}");
        }
    }
}
