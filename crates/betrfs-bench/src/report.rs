//! What is told of the results: medians and ratios.

use anyhow::Result;

use crate::Format;
use crate::measure::{Results, Sample, Samples};

/// From this ratio on docs/performance.md owes a reason.
const RATIO_SLOW: f64 = 3.0;

/// The median of what is asked of each round; 0 without any.
fn median(samples: &Samples, of: impl Fn(&Sample) -> f64) -> f64 {
    let mut values: Vec<f64> = samples.rounds.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.len() % 2, values.get(middle)) {
        (0, Some(upper)) => (upper + values[middle - 1]) / 2.0,
        (_, Some(value)) => *value,
        (_, None) => 0.0,
    }
}

fn spread(samples: &Samples) -> String {
    let seconds = || samples.rounds.iter().map(|sample| sample.seconds);
    let (least, most) = (seconds().fold(f64::INFINITY, f64::min), seconds().fold(0.0, f64::max));
    format!("{least:.2}–{most:.2}")
}

/// How much longer the second took than the first.
fn ratio(base: &Samples, other: &Samples) -> f64 {
    median(other, |sample| sample.seconds) / median(base, |sample| sample.seconds)
}

fn mib(samples: &Samples, of: impl Fn(&Sample) -> u64) -> f64 {
    median(samples, |sample| of(sample) as f64) / f64::from(1 << 20)
}

/// Prints results; those of the first contender are what the others are compared with.
pub fn print(results: &[Results], format: Format) -> Result<()> {
    match format {
        Format::Json => println!("{}", serde_json::to_string_pretty(results)?),
        Format::Text => {
            println!("Seconds until everything is durable: median, least–most. Unmounting comes after that.");
            results.iter().for_each(print_table);
        }
    }
    Ok(())
}

fn print_table(result: &Results) {
    println!(
        "\n{:<22}{:>9}{:>16}{:>9}{:>9}{:>12}{:>12}{:>12}{:>10}",
        result.workload, "seconds", "", "ratio", "unmount", "server CPU", "read MiB", "write MiB", "requests"
    );
    let Some(base) = result.contenders.first() else { return };
    for samples in &result.contenders {
        let ratio = ratio(base, samples);
        println!(
            "  {:<20}{:>9.2}{:>16}{ratio:>8.2}{}{:>9.2}{:>12.2}{:>12.1}{:>12.1}{:>10.0}",
            samples.contender,
            median(samples, |sample| sample.seconds),
            spread(samples),
            if ratio > RATIO_SLOW { "!" } else { " " },
            median(samples, |sample| sample.unmount_seconds),
            median(samples, |sample| sample.usage.server_cpu_seconds),
            mib(samples, |sample| sample.usage.device_read_bytes),
            mib(samples, |sample| sample.usage.device_write_bytes),
            median(samples, |sample| sample.usage.requests.values().sum::<u64>() as f64),
        );
    }
    for samples in &result.contenders {
        let Some(last) = samples.rounds.last() else { continue };
        if !last.younger_seconds.is_empty() {
            let younger: Vec<String> = last.younger_seconds.iter().map(|s| format!("{s:.2}")).collect();
            println!("  {} while it was younger: {}", samples.contender, younger.join(" "));
        }
        let mut kinds: Vec<_> = last.usage.requests.iter().collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        if !kinds.is_empty() {
            let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
            println!("  requests to {}: {}", samples.contender, kinds.join(", "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::Usage;

    fn samples(seconds: &[f64]) -> Samples {
        let sample = |seconds: &f64| Sample {
            seconds: *seconds,
            younger_seconds: Vec::new(),
            unmount_seconds: 0.0,
            usage: Usage::default(),
        };
        Samples { contender: "one", rounds: seconds.iter().map(sample).collect() }
    }

    #[test]
    fn the_median_is_in_the_middle() {
        let of = |seconds: &[f64]| median(&samples(seconds), |sample| sample.seconds);
        assert_eq!((of(&[3.0, 1.0, 2.0]), of(&[4.0, 1.0, 2.0, 3.0]), of(&[])), (2.0, 2.5, 0.0));
    }

    #[test]
    fn a_ratio_is_how_much_longer_it_took() {
        assert_eq!(ratio(&samples(&[2.0]), &samples(&[6.0, 7.0, 5.0])), 3.0);
        assert_eq!(spread(&samples(&[6.0, 7.0, 5.0])), "5.00–7.00");
    }
}
