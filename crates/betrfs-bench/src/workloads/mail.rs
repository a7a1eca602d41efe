//! A mail server's load on a Maildir: clients that read, flag, move, deliver and delete messages.
//!
//! The operations are Dovecot's. A message is a file with its flags in its name: flagging and moving it are
//! renames. A new message is written to `tmp`, synced, renamed to `new` and then to `cur`, whose directory is
//! synced. Each change of a folder writes a new index beside the old one and renames it over that.

mod plan;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use self::plan::{Client, Message, Operation};
use super::Workload;
use crate::data::bytes;
use crate::threads::in_threads;

const INDEX: &str = "index";
/// An index begins with the seed of the rest.
const INDEX_HEADER_BYTES: usize = 8;
/// The bytes of an index for each message.
const INDEX_BYTES_PER_MESSAGE: u64 = 16;

/// Mail folders and clients.
#[derive(Clone, Copy, Debug)]
pub struct Mail {
    /// The number of folders.
    pub folders: u64,
    /// The number of messages in each at first.
    pub messages: u64,
    /// The mean size of a message.
    pub mean_bytes: u64,
    /// The number of clients, each a thread.
    pub clients: u64,
    /// The number of operations of each; half of them read.
    pub operations: u64,
}

fn folder(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("folder{number:02}"))
}

fn cur(dir: &Path, number: u64, message: &Message) -> PathBuf {
    folder(dir, number).join("cur").join(message.name())
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).with_context(|| format!("cannot rename {} to {}", from.display(), to.display()))
}

impl Mail {
    fn index_bytes(&self) -> usize {
        (self.messages * INDEX_BYTES_PER_MESSAGE) as usize
    }

    fn index(&self, seed: u64) -> Vec<u8> {
        let mut index = seed.to_le_bytes().to_vec();
        index.extend(bytes(seed, 0, self.index_bytes()));
        index
    }

    fn write_index(&self, folder: &Path, client: u64, seed: u64) -> Result<()> {
        let new = folder.join(format!("{INDEX}.{client}"));
        fs::write(&new, self.index(seed))?;
        rename(&new, &folder.join(INDEX))
    }

    fn read_index(&self, folder: &Path) -> Result<()> {
        let path = folder.join(INDEX);
        let index = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let header = index.first_chunk::<INDEX_HEADER_BYTES>().context("an index without a beginning")?;
        ensure!(index == self.index(u64::from_le_bytes(*header)), "{} is wrong", path.display());
        Ok(())
    }

    fn read(&self, dir: &Path, number: u64, message: &Message) -> Result<()> {
        self.read_index(&folder(dir, number))?;
        let path = cur(dir, number, message);
        let content = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(content == message.content(), "{} is wrong", path.display());
        Ok(())
    }

    fn deliver(&self, dir: &Path, number: u64, message: &Message) -> Result<()> {
        let (folder, name) = (folder(dir, number), message.name());
        let [tmp, new] = ["tmp", "new"].map(|part| folder.join(part).join(&name));
        let mut file = File::create_new(&tmp).with_context(|| format!("cannot make {}", tmp.display()))?;
        file.write_all(&message.content())?;
        file.sync_all()?;
        drop(file);
        rename(&tmp, &new)?;
        rename(&new, &cur(dir, number, message))?;
        Ok(File::open(folder.join("cur"))?.sync_all()?)
    }

    fn apply(&self, dir: &Path, client: u64, number: u64, operation: &Operation) -> Result<()> {
        // The seed of the index that this operation writes.
        let seed = client << 32 | number;
        match operation {
            Operation::Read { folder, message } => self.read(dir, *folder, message),
            Operation::Flag { folder: at, before, after } => {
                rename(&cur(dir, *at, before), &cur(dir, *at, after))?;
                self.write_index(&folder(dir, *at), client, seed)
            }
            Operation::Move { from, to, message } => {
                rename(&cur(dir, *from, message), &cur(dir, *to, message))?;
                self.write_index(&folder(dir, *from), client, seed)?;
                self.write_index(&folder(dir, *to), client, seed)
            }
            Operation::Deliver { folder: at, message } => {
                self.deliver(dir, *at, message)?;
                self.write_index(&folder(dir, *at), client, seed)
            }
            Operation::Delete { folder: at, before, marked } => {
                let path = cur(dir, *at, marked);
                rename(&cur(dir, *at, before), &path)?;
                fs::remove_file(&path).with_context(|| format!("cannot delete {}", path.display()))?;
                self.write_index(&folder(dir, *at), client, seed)
            }
        }
    }
}

impl Workload for Mail {
    fn name(&self) -> &'static str {
        "mail"
    }

    fn about(&self) -> String {
        format!(
            "read, flag, move, deliver and delete mail, {} times, in {} folders of {} messages, with {} clients, cold",
            self.operations * self.clients,
            self.folders,
            self.messages,
            self.clients
        )
    }

    fn writes(&self) -> bool {
        true
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        for number in 0..self.folders {
            let folder = folder(dir, number);
            for part in ["tmp", "new", "cur"] {
                fs::create_dir_all(folder.join(part))?;
            }
            fs::write(folder.join(INDEX), self.index(number))?;
        }
        for client in 0..self.clients {
            for (number, messages) in (0..).zip(Client::new(self, client).into_folders()) {
                for message in messages {
                    fs::write(cur(dir, number, &message), message.content())?;
                }
            }
        }
        Ok(())
    }

    fn run(&self, dir: &Path) -> Result<()> {
        in_threads(self.clients, |client| {
            let mut plan = Client::new(self, client);
            for number in 0..self.operations {
                let operation = plan.next_operation().context("a client has no messages left")?;
                self.apply(dir, client, number, &operation)?;
            }
            Ok(())
        })
    }

    fn check(&self, dir: &Path) -> Result<()> {
        let mut expected: Vec<BTreeMap<String, Message>> = vec![BTreeMap::new(); self.folders as usize];
        for client in 0..self.clients {
            let mut plan = Client::new(self, client);
            for _ in 0..self.operations {
                plan.next_operation().context("a client has no messages left")?;
            }
            for (expected, messages) in expected.iter_mut().zip(plan.into_folders()) {
                expected.extend(messages.into_iter().map(|message| (message.name(), message)));
            }
        }
        for (number, messages) in (0..).zip(expected) {
            for message in messages.values() {
                self.read(dir, number, message)?;
            }
            let folder = folder(dir, number);
            for (part, count) in [("cur", messages.len()), ("new", 0), ("tmp", 0), ("", 4)] {
                let found = fs::read_dir(folder.join(part))?.count();
                ensure!(found == count, "{}/{part} has {found} entries of {count}", folder.display());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_do_is_what_is_checked() {
        let mail = Mail { folders: 3, messages: 20, mean_bytes: 500, clients: 4, operations: 100 };
        let dir = tempfile::tempdir().unwrap();
        mail.prepare(dir.path()).unwrap();
        assert!(mail.check(dir.path()).is_err());
        mail.run(dir.path()).unwrap();
        mail.check(dir.path()).unwrap();
        fs::write(folder(dir.path(), 1).join("cur/more"), "").unwrap();
        assert!(mail.check(dir.path()).is_err());
    }
}
