//! Shrinking of failing histories.

use std::time::{Duration, Instant};

use crate::step::Step;

/// Removes elements from a failing list as long as it still fails (delta debugging), until none can go or the
/// time is up.
pub fn shrink<T: Clone>(failing: &[T], time: Duration, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let start = Instant::now();
    let mut list = failing.to_vec();
    let mut parts = 2;
    while list.len() > 1 && start.elapsed() < time {
        let size = list.len().div_ceil(parts);
        let shorter = (0..list.len()).step_by(size).find_map(|at| {
            let end = list.len().min(at + size);
            let candidate = [&list[..at], &list[end..]].concat();
            (start.elapsed() < time && fails(&candidate)).then_some(candidate)
        });
        match shorter {
            Some(shorter) => {
                list = shorter;
                parts = (parts - 1).max(2);
            }
            None if size == 1 => break,
            None => parts = (parts * 2).min(list.len()),
        }
    }
    list
}

/// [`shrink`] for steps; then shrinks the batches of the remaining steps.
pub fn shrink_steps(failing: &[Step], time: Duration, mut fails: impl FnMut(&[Step]) -> bool) -> Vec<Step> {
    let start = Instant::now();
    let mut steps = shrink(failing, time, &mut fails);
    for at in 0..steps.len() {
        let Step::Commit(changes) = &steps[at] else { continue };
        let with = |changes: &[_]| {
            let mut steps = steps.clone();
            steps[at] = Step::Commit(changes.to_vec());
            steps
        };
        let shorter = shrink(changes, time.saturating_sub(start.elapsed()), |changes| fails(&with(changes)));
        steps = with(&shorter);
    }
    steps
}

#[cfg(test)]
mod tests {
    use betree::DictId;

    use super::*;
    use crate::model::Edit;

    #[test]
    fn only_what_the_failure_needs_is_left() {
        let all: Vec<u32> = (0..200).collect();
        let needed = [3, 77, 78, 199];
        let fails = |list: &[u32]| needed.iter().all(|n| list.contains(n));
        assert_eq!(shrink(&all, Duration::from_secs(60), fails), needed);
        assert_eq!(shrink(&all, Duration::ZERO, fails), all);
    }

    #[test]
    fn batches_are_shortened_too() {
        let put = |key: u8| Edit::Put(DictId(0), vec![key], Vec::new());
        let steps = vec![Step::Sync, Step::Commit((0..50).map(put).collect()), Step::Sync];
        let fails = |steps: &[Step]| {
            steps.iter().any(|step| matches!(step, Step::Commit(changes) if changes.contains(&put(33))))
        };
        let short = shrink_steps(&steps, Duration::from_secs(60), fails);
        assert_eq!(format!("{short:?}"), format!("{:?}", [Step::Commit(vec![put(33)])]));
    }
}
