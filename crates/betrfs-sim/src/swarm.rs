//! Swarm testing (Groce and others, "Swarm Testing", ISSTA 2012): each seed leaves some kinds of steps out
//! and skews others. A mix of everything hardly ever comes far with anything.

use seeded::Rng;

/// Declares the kinds with their usual weights.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $weight:literal,)*) => {
        /// A kind of step.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// All kinds with their usual weights.
            pub const ALL: [(Kind, usize); [$($weight),*].len()] = [$((Kind::$kind, $weight)),*];
        }
    };
}

kinds! {
    /// Makes a file or another object without contents.
    Create = 10,
    /// Makes a file with contents.
    CreateWith = 6,
    /// Makes a directory.
    Mkdir = 10,
    /// Makes a symbolic link.
    Symlink = 2,
    /// Makes an open file without a name.
    CreateUnnamed = 2,
    /// Adds a name.
    Link = 6,
    /// Removes a name.
    Unlink = 8,
    /// Removes a directory.
    Rmdir = 3,
    /// Removes everything below a directory.
    RemoveBelow = 3,
    /// Renames.
    Rename = 10,
    /// Exchanges two names.
    Exchange = 4,
    /// Writes.
    Write = 12,
    /// Appends.
    Append = 4,
    /// Allocates, punches, zeroes.
    Fallocate = 5,
    /// Copies between files.
    CopyRange = 3,
    /// Sets a size.
    Truncate = 6,
    /// Sets other attributes.
    SetAttr = 4,
    /// Sets or removes an extended attribute.
    Xattr = 6,
    /// Sets flags.
    SetFlags = 1,
    /// Clones.
    Clone = 5,
    /// Clones onto an empty object.
    CloneOnto = 2,
    /// Takes a snapshot.
    Snapshot = 4,
    /// Removes a snapshot.
    RemoveSnapshot = 2,
    /// Brings a directory back to a snapshot.
    Restore = 3,
    /// Opens.
    Open = 5,
    /// Looks up and holds.
    Hold = 2,
    /// Opens what is held.
    OpenHeld = 2,
    /// Closes.
    Close = 4,
    /// Reads attributes.
    Stat = 3,
    /// Reads bytes.
    Read = 4,
    /// Looks for data or a hole.
    Seek = 2,
    /// Lists a directory.
    List = 3,
    /// Goes on with a listing.
    ListOn = 4,
    /// Other questions.
    Ask = 2,
    /// Syncs a file or directory.
    Fsync = 5,
    /// Syncs everything.
    Sync = 2,
    /// Does background work.
    Pump = 5,
    /// Makes a checkpoint.
    Checkpoint = 2,
    /// Lets time pass.
    Wait = 1,
    /// Checks the volume.
    Check = 1,
    /// Compares everything.
    Compare = 1,
    /// Closes and opens.
    Reopen = 1,
    /// Ends the program.
    Kill = 1,
    /// Cuts the power.
    Crash = 3,
    /// Makes the disk fail.
    Fault = 3,
    /// Makes the disk sound.
    Heal = 2,
    /// Sets properties of a directory; only in some histories, as the next.
    SetProperties = 0,
    /// Sets or clears a quota.
    SetQuota = 0,
    /// Has the kernel forget some of its memory; only by the protocol, as the next two.
    Shrink = 0,
    /// Has the kernel send the FORGETs that wait.
    Forget = 0,
    /// Sends a request that must be refused.
    Provoke = 0,
}

/// The kinds of steps of a history, with their weights.
#[derive(Clone, Debug)]
pub struct Swarm {
    weights: Vec<(Kind, usize)>,
}

impl Swarm {
    /// The kinds of a seed. Those that make objects always stay.
    pub fn draw(rng: &mut Rng) -> Swarm {
        let out_percent = *rng.pick(&[0, 20, 40, 60]);
        let mut weights = Vec::new();
        for (kind, usual) in Kind::ALL.into_iter().filter(|(_, usual)| *usual > 0) {
            let stays = matches!(kind, Kind::Create | Kind::Mkdir | Kind::Write);
            let skew = *rng.pick(&[1, 1, 1, 3, 10]);
            if stays || !rng.percent(out_percent) {
                weights.push((kind, usual * skew));
            }
        }
        Swarm { weights }
    }

    /// The same without the kinds that are not `kept`.
    #[must_use]
    pub fn only(&self, kept: impl Fn(Kind) -> bool) -> Swarm {
        Swarm { weights: self.weights.iter().copied().filter(|(kind, _)| kept(*kind)).collect() }
    }

    /// The same with another kind of this weight.
    #[must_use]
    pub fn and(mut self, kind: Kind, weight: usize) -> Swarm {
        self.weights.push((kind, weight));
        self
    }

    /// The next kind.
    pub fn choose(&self, rng: &mut Rng) -> Kind {
        let mut at = rng.below(self.weights.iter().map(|(_, weight)| weight).sum());
        for (kind, weight) in &self.weights {
            if at < *weight {
                return *kind;
            }
            at -= weight;
        }
        Kind::Create
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_leave_different_kinds_out_and_none_is_never_drawn() {
        let swarms: Vec<Swarm> = (0..200).map(|seed| Swarm::draw(&mut Rng::new(seed))).collect();
        let with = |kind| swarms.iter().filter(|swarm| swarm.weights.iter().any(|(k, _)| *k == kind)).count();
        assert_eq!((with(Kind::Create), with(Kind::Write)), (200, 200));
        for (kind, _) in Kind::ALL.into_iter().filter(|(_, usual)| *usual > 0) {
            assert!(with(kind) > 100, "{kind:?}");
        }
        assert!(with(Kind::Crash) < 180 && with(Kind::Clone) < 180);
        let mut rng = Rng::new(1);
        let quiet = swarms[0].only(|kind| kind != Kind::Crash);
        assert!((0..5000).all(|_| quiet.choose(&mut rng) != Kind::Crash));
    }
}
