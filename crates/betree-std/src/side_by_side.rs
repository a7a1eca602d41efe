//! Work on several things at the same time, by threads that end with the call.

use std::thread;

use parking_lot::Mutex;

/// Calls `work` with each item, up to `threads_max` at the same time, the caller's thread among them. A
/// thread that cannot be started leaves its share to those that run.
pub(crate) fn side_by_side<T: Send>(
    items: impl ExactSizeIterator<Item = T> + Send,
    threads_max: usize,
    work: impl Fn(T) + Sync,
) {
    let threads = items.len().min(threads_max);
    let waiting = Mutex::new(items);
    let next = || waiting.lock().next();
    let work = &|| {
        while let Some(item) = next() {
            work(item);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Condvar;

    use super::*;

    /// How many of `items` pieces of work are under way together at most, if each waits for `wanted`.
    fn together(items: usize, threads_max: usize, wanted: usize) -> usize {
        let (under_way, more) = (Mutex::new((0, 0)), Condvar::new());
        side_by_side(0..items, threads_max, |_| {
            let mut now = under_way.lock();
            now.0 += 1;
            now.1 = now.1.max(now.0);
            more.notify_all();
            // Ends at once where all have come.
            more.wait_while_for(&mut now, |now| now.1 < wanted, Duration::from_secs(10));
            now.0 -= 1;
        });
        under_way.into_inner().1
    }

    #[test]
    fn as_many_are_under_way_as_are_allowed() {
        assert_eq!(together(4, 4, 4), 4);
        assert_eq!(together(9, 3, 3), 3);
        assert_eq!(together(5, 1, 1), 1);
        assert_eq!(together(0, 4, 1), 0);
    }

    #[test]
    fn each_is_worked_on_once() {
        let seen = Mutex::new(Vec::new());
        side_by_side(0..100, 8, |item| seen.lock().push(item));
        let mut seen = seen.into_inner();
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
    }
}
