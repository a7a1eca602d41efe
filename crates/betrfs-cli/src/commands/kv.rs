//! `betrfs kv`: pairs of a store file (`betree-store`).

mod dicts;
mod expiry;
mod load;
pub mod pairs;
mod stat;
mod upsert;
mod whole;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::ops::Bound;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use betree_store::{Dict, MissingMerges, Store, StoreOptions, VALUE_BYTES_MAX};

use crate::failure::{Failure, Outcome};
use crate::format::{Format, print};
use crate::replay;
use expiry::Lifetime;
use pairs::{Form, write_fields, write_pair};

/// Read and change the pairs of a store file, which programs make with the crate betree-store
#[derive(clap::Args)]
#[command(after_help = "\
A store holds named dictionaries of pairs. `put` and `load` make the file, and the dictionary, if there is none. \
The file must not be open in another program; to read it, others may read it too. A dictionary may have a merge, by \
which `upsert` changes values without reading them. The store's own are betree.add_u64, betree.add_i64, betree.max, \
betree.append and betree.union_set. Where a program has registered another, its name is told if a value cannot be \
read without it; all else works.

Forms of pairs: csv is one pair a line, key and value separated by a comma, in quotes where they hold commas, \
quotes (doubled) or line ends; framed is for any bytes: the length of the key (4 bytes, little-endian), the key, \
and the value in the same way.

Examples:
  betrfs kv users.betree put ada 1815
  betrfs kv users.betree scan --prefix a
  betrfs kv users.betree load people.csv
  betrfs kv users.betree dicts create visits --merge betree.add_u64
  betrfs kv users.betree upsert --dict visits /index 1 --form u64
  betrfs kv users.betree put --dict sessions ada token --for 30min
  betrfs kv users.betree scan --dict sessions --expiry
  betrfs kv users.betree backup users.copy
  betrfs kv users.betree dump --form framed > people.pairs")]
pub struct Arguments {
    /// The store's file
    file: PathBuf,
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Print the value of a key
    Get {
        /// The key
        key: OsString,
        /// Print the time at which the value expires in its place: an empty line if it never does
        #[arg(long)]
        expiry: bool,
        #[command(flatten)]
        dict: DictName,
    },
    /// Set the value of a key
    Put {
        /// The key
        key: OsString,
        /// The value; it is read from standard input if this is not given
        value: Option<OsString>,
        #[command(flatten)]
        lifetime: Lifetime,
        #[command(flatten)]
        dict: DictName,
    },
    /// Remove keys
    Del {
        /// The keys
        #[arg(required_unless_present = "prefix")]
        keys: Vec<OsString>,
        /// Remove all keys that begin with this
        #[arg(long)]
        prefix: Option<OsString>,
        #[command(flatten)]
        dict: DictName,
    },
    /// Change the value of a key by the dictionary's merge
    Upsert(upsert::Upsert),
    /// Print pairs in the order of their keys
    Scan(Scan),
    /// Put the pairs of a file, or of standard input; sorted ones take a fraction of the time
    Load(load::Load),
    /// Print all pairs of a dictionary
    Dump {
        /// The form of the pairs
        #[arg(long, value_enum, default_value_t)]
        form: Form,
        #[command(flatten)]
        dict: DictName,
    },
    /// Rewrite pairs in the order of their keys: less space, and scans that read large pieces
    Compact {
        /// Only keys from this one on
        #[arg(long, value_name = "KEY")]
        from: Option<OsString>,
        /// Only keys before this one
        #[arg(long, value_name = "KEY")]
        until: Option<OsString>,
        #[command(flatten)]
        dict: DictName,
    },
    /// List, make, rename, clone and remove dictionaries
    #[command(subcommand)]
    Dicts(dicts::Dicts),
    /// Copy the store into a new file, without the room that clones and deletes take
    Backup {
        /// The new file
        to: PathBuf,
    },
    /// Look for damage: read everything, compare checksums and references
    Check,
    /// List the dictionaries, and the space that they take
    Stat {
        /// How to print the result
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
}

#[derive(clap::Args)]
struct DictName {
    /// The dictionary
    #[arg(long = "dict", value_name = "NAME", default_value = "main")]
    name: String,
}

#[derive(clap::Args)]
struct Scan {
    /// Only keys that begin with this
    #[arg(long, conflicts_with_all = ["from", "until"])]
    prefix: Option<OsString>,
    /// Only keys from this one on
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// Only keys before this one
    #[arg(long, value_name = "KEY")]
    until: Option<OsString>,
    /// From the last key to the first
    #[arg(long)]
    reverse: bool,
    /// No more pairs than this
    #[arg(long, value_name = "PAIRS", default_value_t = usize::MAX, hide_default_value = true)]
    limit: usize,
    /// The form of the pairs
    #[arg(long, value_enum, default_value_t)]
    form: Form,
    /// Print behind each value the time at which it expires: nothing there if it never does
    #[arg(long, conflicts_with = "form")]
    expiry: bool,
    #[command(flatten)]
    dict: DictName,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let path = &arguments.file;
    match &arguments.action {
        Action::Get { key, expiry, dict } => get(&open_dict(path, dict)?, key.as_bytes(), *expiry),
        Action::Put { key, value, lifetime, dict } => {
            let value = value.clone().map_or_else(value_of_input, |value| Ok(value.into_vec()))?;
            let store = changing().open(path)?;
            lifetime.put(&store, &dict.name, key, value)?;
            Ok(store.close()?)
        }
        Action::Del { keys, prefix, dict } => {
            let store = changing().create(false).open(path)?;
            let dict = store.open_dict(&dict.name)?;
            let mut batch = store.batch();
            keys.iter().try_for_each(|key| batch.delete(&dict, key.as_bytes()))?;
            prefix.iter().try_for_each(|prefix| batch.delete_prefix(&dict, prefix.as_bytes()))?;
            batch.commit()?;
            Ok(store.close()?)
        }
        Action::Scan(scan) => scan.run(&open_dict(path, &scan.dict)?),
        Action::Upsert(upsert) => upsert.run(path),
        Action::Load(load) => load.run(|| changing().open(path)),
        Action::Dump { form, dict } => print_pairs(*form, open_dict(path, dict)?.iter()),
        Action::Compact { from, until, dict } => {
            let from = from.as_ref().map_or(Bound::Unbounded, |key| Bound::Included(key.as_bytes()));
            let until = until.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_bytes()));
            whole::compact(&changing().create(false).open(path)?, &dict.name, (from, until))
        }
        Action::Dicts(dicts) => dicts.run(path),
        Action::Backup { to } => whole::backup(path, to),
        Action::Check => whole::check(path),
        Action::Stat { format } => stat::run(&reading().open(path)?, *format),
    }
}

/// For changes. What a merge of another program is needed for waits for that.
fn changing() -> StoreOptions {
    let options = Store::options().missing_merges(MissingMerges::Keep);
    match replay::on_terminal() {
        Some(hear) => options.replay_progress(move |done, all| hear(done, all)),
        None => options,
    }
}

/// For reading, also beside other readers.
fn reading() -> StoreOptions {
    changing().read_only(true)
}

/// A dictionary of a store that is opened for reading.
fn open_dict(path: &Path, dict: &DictName) -> Result<Dict, Failure> {
    Ok(reading().open(path)?.open_dict(&dict.name)?)
}

/// The value on standard input.
fn value_of_input() -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    // One byte more than is allowed, so that the store refuses it.
    io::stdin().lock().take(VALUE_BYTES_MAX as u64 + 1).read_to_end(&mut value)?;
    Ok(value)
}

fn get(dict: &Dict, key: &[u8], expiry: bool) -> Outcome {
    let Some(value) = dict.get(key)? else {
        return Err(Failure::new(format!(
            "dictionary {:?} has no key \"{}\"",
            dict.name(),
            key.escape_ascii()
        )));
    };
    if expiry {
        return print(format_args!("{}", expiry::shown(dict, key)?));
    }
    unless_closed(io::stdout().lock().write_all(&value))
}

impl Scan {
    fn run(&self, dict: &Dict) -> Outcome {
        let bytes = |key: &Option<OsString>| key.as_ref().map(|key| key.as_bytes().to_vec());
        let pairs = match (&self.prefix, bytes(&self.from), bytes(&self.until)) {
            (Some(prefix), ..) => dict.prefix(prefix.as_bytes()),
            (None, from, Some(until)) => dict.range(from.unwrap_or_default()..until),
            (None, from, None) => dict.range(from.unwrap_or_default()..),
        };
        let pairs: Box<dyn Iterator<Item = Pair>> = match self.reverse {
            false => Box::new(pairs.take(self.limit)),
            true => Box::new(pairs.rev().take(self.limit)),
        };
        match self.expiry {
            false => print_pairs(self.form, pairs),
            true => print_with_expiry(dict, pairs),
        }
    }
}

type Pair = betree_store::Result<(betree_store::Key, betree_store::Value)>;

fn print_pairs(form: Form, pairs: impl Iterator<Item = Pair>) -> Outcome {
    // A file, so that its buffer is not one of lines.
    let mut out = BufWriter::new(File::from(rustix::io::dup(rustix::stdio::stdout())?));
    for pair in pairs {
        let (key, value) = pair?;
        if let Err(error) = write_pair(form, &key, &value, &mut out) {
            return unless_closed(Err(error));
        }
    }
    unless_closed(out.flush())
}

fn print_with_expiry(dict: &Dict, pairs: impl Iterator<Item = Pair>) -> Outcome {
    let mut out = BufWriter::new(File::from(rustix::io::dup(rustix::stdio::stdout())?));
    for pair in pairs {
        let (key, value) = pair?;
        let expires = expiry::shown(dict, &key)?;
        if let Err(error) = write_fields(&[&key, &value, expires.as_bytes()], &mut out) {
            return unless_closed(Err(error));
        }
    }
    unless_closed(out.flush())
}

/// A reader of the output that has enough is no failure.
fn unless_closed(written: io::Result<()>) -> Outcome {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::new(format!("cannot write to standard output: {error}"))),
        Ok(()) => Ok(()),
    }
}
