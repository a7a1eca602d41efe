//! Changes of inputs: numbers at the borders of their types, lengths, parts that move, and mixes of two.

use seeded::Rng;

const NUMBERS: [u64; 12] =
    [0, 1, 2, 127, 255, 4096, 65_535, 1 << 31, u32::MAX as u64, 1 << 43, i64::MAX as u64, u64::MAX];
/// Inputs grow no longer than this.
const BYTES_MAX: usize = 64 << 10;

/// Another input, from one of the corpus.
pub fn mutate(rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
    if corpus.is_empty() {
        return Vec::new();
    }
    let mut bytes = rng.pick(corpus).clone();
    for _ in 0..rng.between(1, 6) {
        change(rng, &mut bytes, corpus);
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

fn change(rng: &mut Rng, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let at = rng.below(bytes.len() + 1);
    match rng.below(9) {
        0..=3 => {
            // Most numbers begin at a multiple of their length.
            let len = *rng.pick(&[1, 2, 4, 8]);
            let at = if rng.percent(60) { at - at % len } else { at };
            let number = if rng.percent(70) { *rng.pick(&NUMBERS) } else { rng.next_u64() };
            if let Some(place) = bytes.get_mut(at..at + len) {
                place.copy_from_slice(&number.to_le_bytes()[..len]);
            }
        }
        4 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << rng.below(8)),
        5 => bytes.truncate(at),
        6 => {
            let end = (at + rng.between(1, 64)).min(bytes.len());
            bytes.drain(at..end);
        }
        7 => {
            let end = (at + rng.between(1, 64)).min(bytes.len());
            let part = bytes[at..end].to_vec();
            bytes.splice(at..at, part);
        }
        _ => {
            let other = rng.pick(corpus);
            let from = rng.below(other.len() + 1);
            let to = (from + rng.between(1, 256)).min(other.len());
            bytes.splice(at..at, other[from..to].iter().copied());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_change_and_stay_within_their_bound() {
        let corpus = vec![vec![7; 100], vec![9; BYTES_MAX]];
        let mut rng = Rng::new(1);
        let all: Vec<Vec<u8>> = (0..500).map(|_| mutate(&mut rng, &corpus)).collect();
        assert!(all.iter().all(|input| input.len() <= BYTES_MAX));
        assert!(all.iter().filter(|input| corpus.contains(input)).count() < 100);
    }
}
