//! The tables of results: rates, ratios and write amplification.

use anyhow::Result;
use bench_harness::output;
use bench_harness::scale::Format;

use crate::sample::{Results, Sample, Samples};

const MIB: f64 = (1 << 20) as f64;

fn median(samples: &Samples, of: impl Fn(&Sample) -> f64) -> f64 {
    bench_harness::median::median(samples.rounds.iter().map(of))
}

fn rate(sample: &Sample) -> f64 {
    sample.operations as f64 / sample.seconds
}

/// Write amplification: bytes written to the device for each byte that the user wrote.
fn amplification(sample: &Sample) -> f64 {
    sample.device_write_bytes as f64 / sample.user_bytes as f64
}

/// Prints results; ratios are to the first engine.
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
    let Some(base) = result.engines.first() else { return Ok(()) };
    for samples in &result.engines {
        if let Some(failure) = &samples.failure {
            output::print(format_args!("  {:<14}{failure}", samples.engine))?;
            continue;
        }
        let rates = || samples.rounds.iter().map(rate);
        let spread =
            format!("{:.0}–{:.0}", rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
        let mib = |of: fn(&Sample) -> u64| median(samples, |sample| of(sample) as f64) / MIB;
        let amplification = median(samples, amplification);
        let is_closed = samples.rounds.iter().any(|sample| sample.close_write_bytes.is_some());
        let close = if is_closed {
            format!("{:.1}", mib(|sample| sample.close_write_bytes.unwrap_or(0)))
        } else {
            "-".into()
        };
        output::print(format_args!(
            "  {:<14}{:>11.0}{spread:>22}{:>8.2}{:>10.1}{:>10.1}{:>10}{:>10}{:>8.2}{:>8.1}{}",
            samples.engine,
            median(samples, rate),
            median(samples, rate) / median(base, rate),
            mib(|sample| sample.device_read_bytes),
            mib(|sample| sample.device_write_bytes),
            if amplification.is_finite() { format!("{amplification:.2}") } else { "-".into() },
            close,
            median(samples, |sample| sample.cpu_seconds),
            mib(|sample| sample.peak_rss_bytes),
            cut(samples, result.operations),
        ))?;
    }
    Ok(())
}

/// The part done of a workload that was cut short. Its rate is too good: more of its data was still in memory
/// than at the end of a whole run.
fn cut(samples: &Samples, operations: Option<u64>) -> String {
    let Some(operations) = operations else { return String::new() };
    let done = median(samples, |sample| sample.operations as f64 / operations as f64);
    if done < 1.0 { format!("  (time over after {:.0} %)", done * 100.0) } else { String::new() }
}
