//! The Zipfian distribution: the rank `r` comes about `1 / (r + 1)^0.99` times as often as the first.
//!
//! As in YCSB (Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010), drawn by the method
//! of Gray et al., "Quickly Generating Billion-Record Synthetic Databases", SIGMOD 1994, section 3.

use seeded::{Rng, Source};

/// YCSB's constant.
const THETA: f64 = 0.99;

/// Draws ranks below a number.
#[derive(Clone, Copy, Debug)]
pub struct Zipfian {
    ranks: u64,
    /// The sum of `1 / r^THETA` over all ranks, counted from 1.
    zeta: f64,
    /// The same sum over the first two.
    zeta_of_two: f64,
    alpha: f64,
    eta: f64,
}

impl Zipfian {
    /// The distribution over `ranks` ranks, at least one. Takes time in proportion to their number.
    pub fn new(ranks: u64) -> Zipfian {
        let ranks = ranks.max(1);
        let zeta_of = |ranks: u64| (1..=ranks).map(|rank| (rank as f64).powf(-THETA)).sum::<f64>();
        let (zeta, zeta_of_two) = (zeta_of(ranks), zeta_of(2));
        let eta = (1.0 - (2.0 / ranks as f64).powf(1.0 - THETA)) / (1.0 - zeta_of_two / zeta);
        Zipfian { ranks, zeta, zeta_of_two, alpha: 1.0 / (1.0 - THETA), eta }
    }

    /// A rank, the first of which is 0.
    pub fn draw<S: Source>(&self, rng: &mut Rng<S>) -> u64 {
        let unit = rng.unit();
        let scaled = unit * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < self.zeta_of_two {
            return 1.min(self.ranks - 1);
        }
        let rank = self.ranks as f64 * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.ranks - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_come_as_often_as_the_distribution_says() {
        const DRAWS: u64 = 400_000;
        let (ranks, mut rng) = (1000, Rng::new(1));
        let zipfian = Zipfian::new(ranks);
        let mut counts = vec![0_u64; ranks as usize];
        (0..DRAWS).for_each(|_| counts[zipfian.draw(&mut rng) as usize] += 1);
        let zeta: f64 = (1..=ranks).map(|rank| (rank as f64).powf(-0.99)).sum();
        let share_of = |part: &[u64]| part.iter().sum::<u64>() as f64 / DRAWS as f64;
        let expected = |part: std::ops::RangeInclusive<u64>| {
            part.map(|rank| (rank as f64).powf(-0.99)).sum::<f64>() / zeta
        };
        // The method is exact for the first two ranks, and close for the others.
        for (part, of) in [(&counts[..1], 1..=1), (&counts[1..2], 2..=2)] {
            assert!((share_of(part) / expected(of) - 1.0).abs() < 0.03, "{}", share_of(part));
        }
        for (part, of) in
            [(&counts[2..10], 3..=10), (&counts[10..100], 11..=100), (&counts[100..], 101..=1000)]
        {
            assert!((share_of(part) / expected(of) - 1.0).abs() < 0.15, "{}", share_of(part));
        }
    }

    #[test]
    fn few_ranks_are_drawn_from_too() {
        let mut rng = Rng::new(2);
        for ranks in 0..4 {
            let zipfian = Zipfian::new(ranks);
            assert!((0..1000).all(|_| zipfian.draw(&mut rng) < ranks.max(1)), "{ranks}");
        }
    }
}
