//! `betrfs kv FILE load`: puts pairs of a file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::{iter, mem};

use betree_store::Store;
use indicatif::ProgressBar;

use super::DictName;
use super::pairs::{Form, Pair, Pairs};
use crate::bar;
use crate::failure::{Failure, Outcome};
use crate::format::print;

/// A batch is committed when it has so many bytes.
const BATCH_BYTES: usize = 256 << 10;

#[derive(clap::Args)]
pub struct Load {
    /// The file with the pairs; standard input if this is not given
    input: Option<PathBuf>,
    /// The form of the pairs
    #[arg(long, value_enum, default_value_t)]
    form: Form,
    #[command(flatten)]
    dict: DictName,
}

impl Load {
    /// Puts all pairs, fastest where they are in order. What stands before a pair that is wrong is put.
    /// `open` opens the store, or makes one: only where there is something to read.
    pub fn run(&self, open: impl FnOnce() -> betree_store::Result<Store>) -> Outcome {
        // Drawn on standard error, and only if that is a terminal.
        let bar = ProgressBar::no_length();
        let (input, template): (Box<dyn BufRead>, _) = match &self.input {
            Some(path) => {
                let failed = |error| Failure::new(format!("cannot read {}: {error}", path.display()));
                let file = File::open(path).map_err(failed)?;
                bar.set_length(file.metadata().map_err(failed)?.len());
                (reader(bar.wrap_read(file)), "loading [{wide_bar}] {bytes}/{total_bytes} {eta}")
            }
            None => (reader(bar.wrap_read(io::stdin())), "loading {bytes} {bytes_per_sec}"),
        };
        let store = open()?;
        let bar = bar::styled(bar, template);
        let loaded = self.put_all(&store, input);
        bar.finish_and_clear();
        let loaded = loaded?;
        store.close()?;
        print(format_args!("loaded {loaded} pairs into {:?}", self.dict.name))
    }

    /// Puts what stands in order at the front as one ingest, and the rest in batches.
    fn put_all(&self, store: &Store, input: Box<dyn BufRead>) -> Result<u64, Failure> {
        let dict = store.dict(&self.dict.name)?;
        let mut pairs = Pairs::of(input, self.form);
        let (mut next, mut last) = (pairs.next(), None);
        let in_order = iter::from_fn(|| {
            let is_behind = |(key, _): &Pair| last.as_ref().is_none_or(|last| key > last);
            if !matches!(&next, Ok(Some(pair)) if is_behind(pair)) {
                return None;
            }
            let taken = mem::replace(&mut next, pairs.next()).ok().flatten();
            last = taken.as_ref().map(|(key, _)| key.clone());
            taken
        });
        let mut loaded = dict.ingest(in_order)?.pairs;
        let mut batch = store.batch();
        loop {
            if let Ok(Some((key, value))) = &next {
                batch.put(&dict, key, value)?;
                loaded += 1;
            }
            if batch.bytes() >= BATCH_BYTES || !matches!(next, Ok(Some(_))) {
                batch.commit()?;
                batch.clear();
            }
            match next {
                Ok(Some(_)) => next = pairs.next(),
                Ok(None) => return Ok(loaded),
                Err(why) => {
                    store.close()?;
                    let name = self
                        .input
                        .as_ref()
                        .map_or_else(|| "standard input".into(), |path| path.display().to_string());
                    return Err(Failure::new(format!(
                        "{name}, {why}; the {loaded} pairs before it are loaded"
                    )));
                }
            }
        }
    }
}

fn reader(input: impl Read + 'static) -> Box<dyn BufRead> {
    Box::new(BufReader::with_capacity(1 << 20, input))
}
