//! The generator of the workloads' data, and the sizes of files.

use seeded::SplitMix64;

/// A generator with many independent streams.
pub type Rng = seeded::Rng<SplitMix64>;

/// A size by the gamma distribution of shape 1.5, which is filebench's for files; at least 1.
pub fn gamma_size(rng: &mut Rng, mean: u64) -> u64 {
    // Gamma(1.5) is the sum of Gamma(1), an exponential, and Gamma(0.5), half a squared normal.
    let exponential = -rng.unit().ln();
    let normal = (-2.0 * rng.unit().ln()).sqrt() * (std::f64::consts::TAU * rng.unit()).cos();
    let shape = 1.5;
    ((exponential + normal * normal / 2.0) * mean as f64 / shape).max(1.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_their_mean() {
        let mut rng = Rng::of_stream(3, 3);
        let total: u64 = (0..100_000).map(|_| gamma_size(&mut rng, 1 << 17)).sum();
        let mean = total as f64 / 100_000.0;
        assert!((mean / f64::from(1 << 17) - 1.0).abs() < 0.02, "{mean}");
    }
}
