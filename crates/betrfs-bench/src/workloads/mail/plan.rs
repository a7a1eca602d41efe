//! The operations of a mail client, decided by numbers alone. Each client has its own messages in all
//! folders: the messages at the end do not depend on the speed of clients.

use super::Mail;
use crate::data::{Rng, bytes, gamma_size};

const SEED: u64 = 0x6d61_696c;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its number, unique among all messages.
    id: u64,
    len: u64,
    /// Its flags in the form of Maildir: sorted letters.
    flags: &'static str,
}

impl Message {
    /// Its file's name.
    pub fn name(&self) -> String {
        format!("{:010}.M{:06}.bench:2,{}", self.id >> 20, self.id & 0xF_FFFF, self.flags)
    }

    /// Its text.
    pub fn content(&self) -> Vec<u8> {
        bytes(self.id, 0, self.len as usize)
    }

    fn with_flags(&self, flags: &'static str) -> Message {
        Message { flags, ..self.clone() }
    }
}

/// An operation of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads a message.
    Read {
        /// Its folder.
        folder: u64,
        /// The message.
        message: Message,
    },
    /// Marks a message as read or important, or removes the mark.
    Flag {
        /// Its folder.
        folder: u64,
        /// The message before.
        before: Message,
        /// The message after.
        after: Message,
    },
    /// Moves a message to another folder.
    Move {
        /// The old folder.
        from: u64,
        /// The new folder.
        to: u64,
        /// The message.
        message: Message,
    },
    /// Delivers a new message.
    Deliver {
        /// Its folder.
        folder: u64,
        /// The message.
        message: Message,
    },
    /// Marks a message as deleted, and deletes it.
    Delete {
        /// Its folder.
        folder: u64,
        /// The message before.
        before: Message,
        /// The message with the mark.
        marked: Message,
    },
}

/// A client, and its messages after the operations drawn so far.
pub struct Client {
    rng: Rng,
    number: u64,
    next: u64,
    mean_bytes: u64,
    folders: Vec<Vec<Message>>,
}

impl Client {
    /// A client with its first messages.
    pub fn new(mail: &Mail, number: u64) -> Client {
        let mut client = Client {
            rng: Rng::of_stream(SEED, number),
            number,
            next: 0,
            mean_bytes: mail.mean_bytes,
            folders: Vec::new(),
        };
        let part = |client: u64| mail.messages * client / mail.clients;
        for _ in 0..mail.folders {
            let messages = (part(number)..part(number + 1)).map(|_| client.message("")).collect();
            client.folders.push(messages);
        }
        client
    }

    /// Its messages, by folder.
    pub fn into_folders(self) -> Vec<Vec<Message>> {
        self.folders
    }

    fn message(&mut self, flags: &'static str) -> Message {
        self.next += 1;
        Message {
            id: (self.number + 1) << 40 | self.next,
            len: gamma_size(&mut self.rng, self.mean_bytes),
            flags,
        }
    }

    /// Picks a message; `None` if there is none.
    fn pick(&mut self) -> Option<(usize, usize)> {
        // In the first folder with messages, from a random one on.
        let from = self.rng.below(self.folders.len());
        let mut order = (from..self.folders.len()).chain(0..from);
        let folder = order.find(|folder| !self.folders[*folder].is_empty())?;
        Some((folder, self.rng.below(self.folders[folder].len())))
    }

    /// The next operation: a read half of the time, else one of the other four with equal chances. `None`
    /// once there are no messages.
    pub fn next_operation(&mut self) -> Option<Operation> {
        let kind = self.rng.below_u64(8);
        let (folder, at) = self.pick()?;
        let number = folder as u64;
        Some(match kind {
            0..4 => Operation::Read { folder: number, message: self.folders[folder][at].clone() },
            4 => {
                let before = self.folders[folder][at].clone();
                let after = before.with_flags(match before.flags {
                    "" => "S",
                    "S" => "FS",
                    _ => "",
                });
                self.folders[folder][at] = after.clone();
                Operation::Flag { folder: number, before, after }
            }
            5 if self.folders.len() > 1 => {
                let to = (folder + 1 + self.rng.below(self.folders.len() - 1)) % self.folders.len();
                let message = self.folders[folder].swap_remove(at);
                self.folders[to].push(message.clone());
                Operation::Move { from: number, to: to as u64, message }
            }
            6 => {
                let before = self.folders[folder].swap_remove(at);
                let marked = before.with_flags("ST");
                Operation::Delete { folder: number, before, marked }
            }
            _ => {
                let message = self.message("");
                self.folders[folder].push(message.clone());
                Operation::Deliver { folder: number, message }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIL: Mail = Mail { folders: 5, messages: 100, mean_bytes: 1000, clients: 4, operations: 0 };

    #[test]
    fn a_client_does_the_same_each_time_and_half_of_it_is_reading() {
        let operations = || {
            let mut client = Client::new(&MAIL, 2);
            (0..4000).map(|_| client.next_operation().unwrap()).collect::<Vec<_>>()
        };
        let first = operations();
        assert_eq!(first, operations());
        let share = |is: fn(&Operation) -> bool| first.iter().filter(|done| is(done)).count();
        assert!((1900..2100).contains(&share(|done| matches!(done, Operation::Read { .. }))));
        for kind in [
            (|done| matches!(done, Operation::Flag { .. })) as fn(&Operation) -> bool,
            |done| matches!(done, Operation::Move { .. }),
            |done| matches!(done, Operation::Deliver { .. }),
            |done| matches!(done, Operation::Delete { .. }),
        ] {
            assert!((400..600).contains(&share(kind)), "{}", share(kind));
        }
        assert!(first.iter().all(|done| !matches!(done, Operation::Move { from, to, .. } if from == to)));
    }

    #[test]
    fn no_two_messages_have_one_name() {
        let mut names = std::collections::BTreeSet::new();
        for client in 0..4 {
            for message in Client::new(&MAIL, client).into_folders().into_iter().flatten() {
                assert!(names.insert(message.name()));
            }
        }
        assert_eq!(names.len(), 500);
    }
}
