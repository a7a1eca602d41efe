//! How often each kind of step comes in a history.

use seeded::Rng;

/// The weight of each kind of step.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// [`Step::Commit`](crate::Step::Commit)
    pub commit: usize,
    /// [`Step::Get`](crate::Step::Get)
    pub get: usize,
    /// [`Step::Walk`](crate::Step::Walk)
    pub walk: usize,
    /// [`Step::Ingest`](crate::Step::Ingest)
    pub ingest: usize,
    /// [`Step::Compact`](crate::Step::Compact)
    pub compact: usize,
    /// [`Step::Sync`](crate::Step::Sync)
    pub sync: usize,
    /// [`Step::Checkpoint`](crate::Step::Checkpoint)
    pub checkpoint: usize,
    /// [`Step::Backup`](crate::Step::Backup)
    pub backup: usize,
    /// [`Step::Freeze`](crate::Step::Freeze)
    pub freeze: usize,
    /// The steps on views.
    pub views: usize,
    /// The steps on transactions.
    pub transactions: usize,
    /// [`Step::Pump`](crate::Step::Pump)
    pub pump: usize,
    /// [`Step::Check`](crate::Step::Check)
    pub check: usize,
    /// [`Step::Reopen`](crate::Step::Reopen)
    pub reopen: usize,
    /// [`Step::Abandon`](crate::Step::Abandon)
    pub abandon: usize,
    /// The steps by which values expire; without them, none has a time.
    pub expiry: usize,
    /// [`Step::Grow`](crate::Step::Grow)
    pub grow: usize,
}

impl Mix {
    /// For the contents of dictionaries.
    pub const LAWS: Mix = Mix {
        commit: 50,
        get: 15,
        walk: 12,
        ingest: 0,
        compact: 0,
        sync: 3,
        checkpoint: 3,
        backup: 0,
        freeze: 0,
        views: 0,
        transactions: 0,
        pump: 12,
        check: 2,
        reopen: 2,
        abandon: 1,
        expiry: 0,
        grow: 0,
    };
    /// For views.
    pub const VIEWS: Mix = Mix { commit: 45, views: 40, get: 2, walk: 2, ..Mix::LAWS };
    /// For transactions.
    pub const TRANSACTIONS: Mix =
        Mix { commit: 25, transactions: 70, views: 4, get: 1, walk: 1, ..Mix::LAWS };
    /// For ingests and compactions, beside views and transactions.
    pub const INGESTS: Mix =
        Mix { commit: 25, ingest: 15, compact: 3, transactions: 40, views: 15, get: 1, walk: 1, ..Mix::LAWS };
    /// For backups: much is written between their pieces.
    pub const BACKUPS: Mix = Mix { commit: 45, backup: 25, views: 5, pump: 16, checkpoint: 6, ..Mix::LAWS };
    /// For freezes: much is synced and lost between them.
    pub const FREEZES: Mix = Mix { freeze: 6, sync: 8, abandon: 4, views: 4, transactions: 10, ..Mix::LAWS };
    /// For values that expire.
    pub const EXPIRY: Mix =
        Mix { commit: 40, expiry: 20, views: 24, transactions: 10, pump: 36, ..Mix::LAWS };
    /// For volumes that grow.
    pub const GROWTH: Mix = Mix { grow: 6, backup: 4, checkpoint: 4, ..Mix::LAWS };
    /// For blocks that rot under an environment: much goes down the trees.
    pub const ROT: Mix = Mix { commit: 55, get: 8, walk: 6, sync: 5, checkpoint: 6, pump: 18, ..Mix::LAWS };
    /// For crashes: mostly calls that write.
    pub const CRASHES: Mix = Mix {
        commit: 60,
        get: 2,
        walk: 2,
        ingest: 0,
        compact: 0,
        sync: 14,
        checkpoint: 8,
        backup: 0,
        freeze: 0,
        views: 0,
        transactions: 0,
        pump: 13,
        check: 0,
        reopen: 1,
        abandon: 0,
        expiry: 0,
        grow: 0,
    };

    /// For crashes with ingests and compactions.
    pub const INGEST_CRASHES: Mix = Mix { commit: 40, ingest: 20, compact: 5, ..Mix::CRASHES };

    /// For crashes of volumes that grow.
    pub const GROWTH_CRASHES: Mix = Mix { grow: 10, ..Mix::CRASHES };

    /// For crashes with transactions and views.
    pub const TRANSACTION_CRASHES: Mix = Mix { commit: 10, transactions: 90, views: 8, ..Mix::CRASHES };

    /// For crashes with a long log: commits only, so that recovery replays much and fills the cache. Syncs
    /// come so often that no checkpoint takes the place of the log.
    pub const LONG_LOG: Mix = Mix {
        commit: 70,
        get: 0,
        walk: 0,
        ingest: 0,
        compact: 0,
        sync: 30,
        checkpoint: 0,
        backup: 0,
        freeze: 0,
        views: 0,
        transactions: 0,
        pump: 0,
        check: 0,
        reopen: 0,
        abandon: 0,
        expiry: 0,
        grow: 0,
    };

    /// Chooses a kind of step.
    pub(crate) fn choose(&self, rng: &mut Rng) -> Kind {
        let parts = [
            (self.commit, Kind::Commit),
            (self.get, Kind::Get),
            (self.walk, Kind::Walk),
            (self.ingest, Kind::Ingest),
            (self.compact, Kind::Compact),
            (self.sync, Kind::Sync),
            (self.checkpoint, Kind::Checkpoint),
            (self.backup, Kind::Backup),
            (self.freeze, Kind::Freeze),
            (self.views, Kind::Views),
            (self.transactions, Kind::Transactions),
            (self.pump, Kind::Pump),
            (self.check, Kind::Check),
            (self.reopen, Kind::Reopen),
            (self.abandon, Kind::Abandon),
            (self.expiry, Kind::Expiry),
            (self.grow, Kind::Grow),
        ];
        let mut at = rng.below(parts.iter().map(|(part, _)| part).sum());
        for (part, kind) in parts {
            if at < part {
                return kind;
            }
            at -= part;
        }
        Kind::Commit
    }
}

/// A kind of step.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Commit,
    Get,
    Walk,
    Ingest,
    Compact,
    Sync,
    Checkpoint,
    Backup,
    Freeze,
    Views,
    Transactions,
    Pump,
    Check,
    Reopen,
    Abandon,
    Expiry,
    Grow,
}
