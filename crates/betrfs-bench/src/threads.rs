//! Clients in threads.

use std::thread;

use anyhow::Result;

/// Runs `work` in a number of threads at once, with the number of each.
///
/// # Errors
/// That of the lowest thread that failed.
pub fn in_threads(threads: u64, work: impl Fn(u64) -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        running
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn each_thread_is_told_its_number_and_an_error_comes_back() {
        let told = Mutex::new(Vec::new());
        let result = in_threads(4, |thread| {
            told.lock().unwrap().push(thread);
            anyhow::ensure!(thread != 2, "the third");
            Ok(())
        });
        assert_eq!(result.unwrap_err().to_string(), "the third");
        let mut told = told.into_inner().unwrap();
        told.sort_unstable();
        assert_eq!(told, [0, 1, 2, 3]);
    }
}
