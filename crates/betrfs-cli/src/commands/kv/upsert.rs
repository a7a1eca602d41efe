//! `betrfs kv FILE upsert`: changes of values by the merge of their dictionary.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use betree_store::merges::UnionSet;

use super::{DictName, changing};
use crate::failure::{Failure, Outcome};

/// The forms of deltas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// The bytes as they are
    #[default]
    Bytes,
    /// A number from 0 on, for the merge betree.add_u64
    U64,
    /// A number, for the merge betree.add_i64
    I64,
    /// A member of a set, for the merge betree.union_set
    Member,
}

#[derive(clap::Args)]
pub struct Upsert {
    /// The key
    key: OsString,
    /// The change of the value
    #[arg(allow_hyphen_values = true)]
    delta: OsString,
    /// The form of the change
    #[arg(long, value_enum, default_value_t)]
    form: Form,
    #[command(flatten)]
    dict: DictName,
}

impl Upsert {
    /// Runs the command.
    pub fn run(&self, path: &Path) -> Outcome {
        let delta = self.delta()?;
        let store = changing().create(false).open(path)?;
        store.open_dict(&self.dict.name)?.upsert(self.key.as_bytes(), delta)?;
        Ok(store.close()?)
    }

    fn delta(&self) -> Result<Vec<u8>, Failure> {
        let bytes = self.delta.as_bytes();
        let text = || self.delta.to_string_lossy();
        match self.form {
            Form::Bytes => Ok(bytes.to_vec()),
            Form::Member => Ok(UnionSet::of([bytes])),
            Form::U64 => match text().parse::<u64>() {
                Ok(number) => Ok(number.to_le_bytes().to_vec()),
                Err(error) => Err(Failure::new(format!("{:?} is no number from 0 on: {error}", text()))),
            },
            Form::I64 => match text().parse::<i64>() {
                Ok(number) => Ok(number.to_le_bytes().to_vec()),
                Err(error) => Err(Failure::new(format!("{:?} is no number: {error}", text()))),
            },
        }
    }
}
