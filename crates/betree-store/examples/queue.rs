//! A queue that survives its program: jobs are put at one end and taken from the other, each by one worker,
//! and what a job did is stored together with its removal.
//!
//!     cargo run -p betree-store --example queue -- /tmp/queue.betree

use std::error::Error;
use std::io::Write;
use std::path::Path;

use betree_store::{Dict, Durability, Store};

/// Puts a job at the end of the queue. Keys are numbers in the order of their bytes.
fn push(jobs: &Dict, job: &str) -> betree_store::Result<()> {
    let last = jobs.last()?.and_then(|(key, _)| key.first_chunk().copied());
    let next = last.map_or(0, u64::from_be_bytes) + 1;
    jobs.put(next.to_be_bytes(), job)
}

/// Does the first job: its result is stored, and the job gone, in one batch. `false` if there is none.
fn work(store: &Store, jobs: &Dict, results: &Dict) -> betree_store::Result<bool> {
    let Some((key, job)) = jobs.first()? else { return Ok(false) };
    let mut batch = store.batch();
    batch.put(results, &job, job.to_ascii_uppercase())?;
    batch.delete(jobs, &key)?;
    batch.commit()?;
    Ok(true)
}

/// Does it all on a new store at `path`, and reports to `out`.
pub fn run(path: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let store = Store::options().durability(Durability::PerCommit).open(path)?;
    let jobs = store.dict("jobs")?;
    for job in ["sweep", "mop", "polish"] {
        push(&jobs, job)?;
    }
    let results = store.dict("results")?;
    work(&store, &jobs, &results)?;
    // The program ends without a word, and begins anew.
    store.abandon();
    drop((store, jobs, results));

    let store = Store::open(path)?;
    let (jobs, results) = (store.open_dict("jobs")?, store.open_dict("results")?);
    writeln!(out, "done before the crash: {:?}", results.first()?.map(|(job, _)| job))?;
    while work(&store, &jobs, &results)? {}
    writeln!(out, "results: {}, jobs left: {}", results.iter().count(), jobs.iter().count())?;
    store.close()?;
    Ok(())
}

/// Takes the path of a file that does not exist yet.
#[cfg(not(test))]
fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("which file? It is made.")?;
    run(path.as_ref(), &mut std::io::stdout())
}
