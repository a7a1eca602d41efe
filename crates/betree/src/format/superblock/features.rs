//! Feature words: a bit for each property of a volume that not every version of this program knows.

/// The feature words of a volume. This version knows three bits of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// A program that does not know such a bit may read and change the volume, and keeps the bit.
    pub compat: u64,
    /// A program that does not know such a bit may read the volume, and changes nothing.
    pub ro_compat: u64,
    /// A program that does not know such a bit refuses the volume.
    pub incompat: u64,
}

impl Features {
    /// The bit of `incompat` of a volume with known damage: a repair has put ranges with the sequence number
    /// 0 in the place of what was lost. It stays when the damage has gone.
    pub const KNOWN_DAMAGE: u64 = 1;
    /// The bit of `incompat` of a volume in which changes and pairs ask for a compression of their own. It
    /// stays when none does any more.
    pub const PAIR_COMPRESSION: u64 = 2;
    /// The bit of `incompat` of a volume in which nodes may have two copies. It stays when none has any more.
    pub const NODE_COPIES: u64 = 4;
    /// The bit of `incompat` of a volume on a device that ends where its contents end: what the device lacks
    /// was never written, and reads as zeros.
    pub const OPEN_ENDED: u64 = 8;
    /// The bits of `ro_compat` that this version knows.
    const RO_COMPAT_KNOWN: u64 = 0;
    /// The bits of `incompat` that this version knows.
    const INCOMPAT_KNOWN: u64 =
        Features::KNOWN_DAMAGE | Features::PAIR_COMPRESSION | Features::NODE_COPIES | Features::OPEN_ENDED;

    /// Whether the device may be shorter than the volume.
    pub(crate) fn is_open_ended(self) -> bool {
        self.incompat & Features::OPEN_ENDED != 0
    }

    /// The features because of which this version changes nothing.
    pub(crate) fn unknown_ro_compat(self) -> u64 {
        self.ro_compat & !Features::RO_COMPAT_KNOWN
    }

    /// The features because of which this version refuses the volume.
    pub(crate) fn unknown_incompat(self) -> u64 {
        self.incompat & !Features::INCOMPAT_KNOWN
    }
}
