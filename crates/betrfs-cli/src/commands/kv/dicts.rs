//! `betrfs kv FILE dicts`: the dictionaries of a store by their names.

use std::path::Path;

use betree_store::DictOptions;

use super::{changing, reading};
use crate::failure::Outcome;
use crate::format::print;

#[derive(clap::Subcommand)]
pub enum Dicts {
    /// Print the names
    List,
    /// Make a dictionary
    Create {
        /// The name
        name: String,
        /// The merge that its values are changed by: one of the store's own, such as betree.add_u64
        #[arg(long, value_name = "NAME")]
        merge: Option<String>,
        /// Let its values expire: see `put --for`
        #[arg(long)]
        expiring: bool,
    },
    /// Give a dictionary another name
    Rename {
        /// The name
        name: String,
        /// The new name
        to: String,
    },
    /// Make a dictionary that holds what another one holds
    Clone {
        /// The name
        name: String,
        /// The new dictionary's name
        to: String,
    },
    /// Remove a dictionary with all that it holds
    Drop {
        /// The name
        name: String,
    },
}

impl Dicts {
    /// Runs the command.
    pub fn run(&self, path: &Path) -> Outcome {
        match self {
            Dicts::List => {
                let names = reading().open(path)?.dicts();
                return names.iter().try_for_each(|name| print(format_args!("{name}")));
            }
            Dicts::Create { name, merge, expiring } => {
                let options = DictOptions::new();
                let options = if *expiring { options.expiring() } else { options };
                let options = merge.iter().fold(options, |options, merge| options.merge(merge));
                let store = changing().open(path)?;
                store.create(name, &options)?;
                store.close()?;
            }
            Dicts::Rename { name, to } => {
                let store = changing().create(false).open(path)?;
                store.rename_dict(name, to)?;
                store.close()?;
            }
            Dicts::Clone { name, to } => {
                let store = changing().create(false).open(path)?;
                store.clone_dict(name, to)?;
                store.close()?;
            }
            Dicts::Drop { name } => {
                let store = changing().create(false).open(path)?;
                store.drop_dict(name)?;
                store.close()?;
            }
        }
        Ok(())
    }
}
