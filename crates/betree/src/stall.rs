//! Write stalls: who waits first where memory or log are short.

/// What a caller is about to commit, as a wait for room looks at it. Who writes much waits at each bound, who
/// writes little only some way beyond it: a small change would otherwise wait beside each large writer for
/// room that this one takes at once. All that small writers can take before they wait too is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    Little,
    Much,
}

impl Writes {
    /// Little is a 64th of a memtable at most: 64 KiB with the usual nodes of 4 MiB.
    pub fn of(bytes: usize, memtable_bytes_max: usize) -> Writes {
        if bytes <= memtable_bytes_max / 64 { Writes::Little } else { Writes::Much }
    }

    /// One of two bounds.
    pub fn bound<T>(self, little: T, much: T) -> T {
        match self {
            Writes::Little => little,
            Writes::Much => much,
        }
    }
}
