//! What is told of the engines: rates, ratios and write amplification.

use anyhow::Result;

use super::child::Sample;
use super::{Results, Samples};
use crate::Format;
use crate::output;

const MIB: f64 = (1 << 20) as f64;

/// The median of what is asked of each round; 0 without any.
fn median(samples: &Samples, of: impl Fn(&Sample) -> f64) -> f64 {
    let mut values: Vec<f64> = samples.rounds.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2).copied().unwrap_or(0.0);
    let lower = values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0.0);
    (lower + upper) / 2.0
}

fn rate(sample: &Sample) -> f64 {
    sample.operations as f64 / sample.seconds
}

/// Bytes written to the device for each that the user wrote.
fn amplification(sample: &Sample) -> f64 {
    sample.device_write_bytes as f64 / sample.user_bytes as f64
}

/// Prints results; those of the first engine are what the others are compared with.
pub fn print(results: &[Results], format: Format) -> Result<()> {
    match format {
        Format::Json => output::print(serde_json::to_string_pretty(results)?),
        Format::Text => results.iter().try_for_each(print_table),
    }
}

fn print_table(result: &Results) -> Result<()> {
    let unlimited = if result.memory_bytes.is_none() { " (memory not limited)" } else { "" };
    output::print(format_args!("\n{}: {}{unlimited}", result.workload, result.about))?;
    output::print(format_args!(
        "  {:<14}{:>11}{:>22}{:>8}{:>10}{:>10}{:>10}{:>10}{:>8}{:>8}",
        "",
        "ops/s",
        "least–most",
        "ratio",
        "read MiB",
        "write MiB",
        "amplif.",
        "close MiB",
        "CPU s",
        "RSS MiB"
    ))?;
    let Some(base) = result.contenders.first() else { return Ok(()) };
    for samples in &result.contenders {
        if let Some(failure) = &samples.failure {
            output::print(format_args!("  {:<14}{failure}", samples.contender))?;
            continue;
        }
        let rates = || samples.rounds.iter().map(rate);
        let spread =
            format!("{:.0}–{:.0}", rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
        let mib = |of: fn(&Sample) -> u64| median(samples, |sample| of(sample) as f64) / MIB;
        let amplification = median(samples, amplification);
        output::print(format_args!(
            "  {:<14}{:>11.0}{spread:>22}{:>8.2}{:>10.1}{:>10.1}{:>10}{:>10.1}{:>8.2}{:>8.1}{}",
            samples.contender,
            median(samples, rate),
            median(samples, rate) / median(base, rate),
            mib(|sample| sample.device_read_bytes),
            mib(|sample| sample.device_write_bytes),
            if amplification.is_finite() { format!("{amplification:.2}") } else { "-".into() },
            mib(|sample| sample.close_write_bytes),
            median(samples, |sample| sample.cpu_seconds),
            mib(|sample| sample.peak_rss_bytes),
            cut(samples, result.operations),
        ))?;
    }
    Ok(())
}

/// Says of a workload that was cut short how far it came: what memory still held made it faster than
/// the whole would have been.
fn cut(samples: &Samples, operations: u64) -> String {
    let done = median(samples, |sample| sample.operations as f64 / operations as f64);
    if done < 1.0 { format!("  (time over after {:.0} %)", done * 100.0) } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_of_two_lies_between_them() {
        let of = |seconds: &[f64]| {
            let sample = |seconds: &f64| Sample { seconds: *seconds, ..Sample::default() };
            let rounds = seconds.iter().map(sample).collect();
            median(&Samples { contender: String::new(), rounds, failure: None }, |sample| sample.seconds)
        };
        assert_eq!((of(&[3.0, 1.0, 2.0]), of(&[4.0, 1.0]), of(&[])), (2.0, 2.5, 0.0));
    }
}
