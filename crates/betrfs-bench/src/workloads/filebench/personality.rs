//! Filebench's personalities as tables: the operations of one loop of a thread.

/// One operation of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Draws the size of the next append, or of the next new file of a drawn size.
    DrawSize,
    /// Makes a file of a size about the mean.
    Create,
    /// Makes a file of the drawn size.
    CreateDrawn,
    /// Appends the drawn size to a file.
    Append,
    /// Reads a whole file.
    Read,
    /// Deletes a file.
    Delete,
    /// Asks for the attributes of a file.
    Stat,
    /// Appends a record to the log that all threads share.
    Log,
}

/// The work of a server's threads.
#[derive(Debug)]
pub struct Personality {
    /// Its name on the command line and in tables.
    pub name: &'static str,
    /// The operations of a loop, in order.
    pub ops: &'static [Op],
}

/// Home directories.
pub const FILE_SERVER: Personality = Personality {
    name: "fileserver",
    ops: &[Op::DrawSize, Op::Create, Op::Append, Op::Read, Op::Delete, Op::Stat],
};

/// A cache whose files lie in one directory.
pub const WEB_PROXY: Personality = Personality {
    name: "webproxy",
    ops: &[Op::Delete, Op::DrawSize, Op::CreateDrawn, Op::Read, Op::Read, Op::Read, Op::Read, Op::Read],
};

/// Files that all threads read, and one log.
pub const WEB_SERVER: Personality = Personality {
    name: "webserver",
    ops: &[
        Op::Read,
        Op::Read,
        Op::Read,
        Op::Read,
        Op::Read,
        Op::Read,
        Op::Read,
        Op::Read,
        Op::Read,
        Op::Read,
        Op::Log,
    ],
};

impl Op {
    /// The operation on a file in words.
    fn verb(self) -> Option<&'static str> {
        match self {
            Op::DrawSize => None,
            Op::Create | Op::CreateDrawn => Some("create"),
            Op::Append => Some("append to"),
            Op::Read => Some("read"),
            Op::Delete => Some("delete"),
            Op::Stat => Some("stat"),
            Op::Log => Some("log to one file"),
        }
    }
}

impl Personality {
    /// Whether the threads share a log.
    pub fn has_log(&self) -> bool {
        self.ops.contains(&Op::Log)
    }

    /// Whether threads make, change or delete files: then each has a share of them for itself.
    pub fn changes_files(&self) -> bool {
        self.ops.iter().any(|op| !matches!(op, Op::DrawSize | Op::Read | Op::Stat | Op::Log))
    }

    /// The work of a number of loops in words.
    pub fn about(&self, loops: u64) -> String {
        let mut counts: Vec<(&str, u64)> = Vec::new();
        for verb in self.ops.iter().filter_map(|op| op.verb()) {
            match counts.iter_mut().find(|(counted, _)| *counted == verb) {
                Some((_, count)) => *count += loops,
                None => counts.push((verb, loops)),
            }
        }
        let counts: Vec<String> = counts.iter().map(|(verb, count)| format!("{verb} {count}")).collect();
        counts.join(", ")
    }
}
