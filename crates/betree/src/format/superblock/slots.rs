//! The four copies of the superblock, and the choice of the one that counts.
//!
//! Generation g is written to the slots 2p and 2p + 1 of its pair p = g & 1: copy A, sync, copy B, sync.
//! While one pair is being written the other is untouched, and a crash leaves at most one bad copy in the
//! pair being written: the first while the second still holds generation g - 2, or the second while the first
//! holds g. So a pair without a good copy is never the trace of a crash. It may have been the newest, so
//! opening fails: the other pair names an old state, and some of its blocks have been reused. A repair looks
//! for what the lost pair named. A copy that is older than that is not the trace of a crash either: its last
//! write was lost.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use betree_platform::BLOCK_BYTES;

use super::{Decoded, Superblock, VERSION, generation_of};
use crate::error::{Error, NO_SUPERBLOCK, Result};
use crate::io::{AlignedBuf, Disk};

/// The number of slots.
const COUNT: usize = 4;
/// The unit that a device writes whole, in bytes.
const SECTOR_BYTES: usize = 512;
/// The bytes of all slots at the volume's start.
pub(crate) const BYTES: u64 = (COUNT * BLOCK_BYTES) as u64;

/// The superblock that counts, and the state of the copies.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub superblock: Superblock,
    /// The bad copies. A crash may leave one without any damage.
    pub bad_slots: Vec<BadSlot>,
    /// Slots of the superblock's own pair that do not hold it.
    missing: Vec<usize>,
}

/// A slot that holds no good superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadSlot {
    /// Byte offset on the volume.
    pub offset: u64,
    pub why: String,
    /// A crash may have left it, while it was written.
    pub may_be_torn: bool,
    /// It was read, and no crash has left it so.
    pub is_rotten: bool,
}

/// A superblock in place of copies that are lost, which stands in memory alone until a repair writes it.
#[derive(Debug)]
pub(crate) enum Made {
    /// No copy is good.
    All(Superblock),
    /// One pair is lost; the generation is one of that pair, and newer than that of the other one.
    Pair(Superblock),
}

impl Made {
    /// Writes it where copies are lost.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn write(&self, disk: &Disk) -> Result<()> {
        match self {
            Made::All(superblock) => write_all(disk, superblock),
            Made::Pair(superblock) => store(disk, superblock),
        }
    }
}

enum Found {
    Good(Box<Superblock>),
    NotOurs,
    /// With the slot's bytes.
    Bad(String, AlignedBuf),
    Unreadable(Error),
}

/// Finds the newest superblock.
///
/// # Errors
/// [`Error::NotAVolume`], [`Error::OlderFormat`], [`Error::NewerFormat`], [`Error::UnknownFeatures`];
/// [`Error::Corrupt`] if both copies of a complete generation are damaged; [`Error::Device`] if no copy can
/// be read.
pub(crate) fn load(disk: &Disk) -> Result<Loaded> {
    let found = read_all(disk)?;
    let newest = match choose(&found)? {
        Some(newest) => newest.clone(),
        None => return Err(nothing_good(found)),
    };
    let pair = pair_of(newest.generation);
    let other_pair = 2 - pair;
    let good = || good_of(&found);
    if good().all(|(slot, _)| slot / 2 != other_pair / 2) {
        return Err(lost_pair(&found, other_pair, newest.generation));
    }
    refuse_truncated(disk, &newest)?;
    let missing = [pair, pair + 1]
        .into_iter()
        .filter(|&slot| good().all(|(s, superblock)| s != slot || *superblock != newest))
        .collect();
    let bad_slots = all_bad(&found, Some(newest.generation));
    Ok(Loaded { superblock: newest, bad_slots, missing })
}

/// The newest copy and the bad ones of a volume that [`load`] refuses because the other pair is lost, and for
/// nothing else.
///
/// # Errors
/// Those of [`load`] that have other reasons.
pub(crate) fn beside_lost_pair(disk: &Disk) -> Result<(Superblock, Vec<BadSlot>)> {
    let found = read_all(disk)?;
    let newest = match choose(&found)? {
        Some(newest) => newest.clone(),
        None => return Err(nothing_good(found)),
    };
    if let error @ Error::NotAVolume { .. } =
        lost_pair(&found, 2 - pair_of(newest.generation), newest.generation)
    {
        return Err(error);
    }
    refuse_truncated(disk, &newest)?;
    let bad_slots = all_bad(&found, Some(newest.generation));
    Ok((newest, bad_slots))
}

fn good_of(found: &[Found]) -> impl Iterator<Item = (usize, &Superblock)> {
    found.iter().enumerate().filter_map(|(slot, f)| Some((slot, f.good()?)))
}

/// The newest good copy, if there is one.
///
/// # Errors
/// [`Error::Corrupt`] if good copies contradict each other.
fn choose(found: &[Found]) -> Result<Option<&Superblock>> {
    let Some((_, newest)) = good_of(found).max_by_key(|(_, s)| s.generation) else { return Ok(None) };
    for (slot, other) in good_of(found) {
        let why = if other.identity.volume_id != newest.identity.volume_id {
            "two copies are of different volumes"
        } else if other.generation == newest.generation && other != newest {
            "two copies of one generation differ"
        } else {
            continue;
        };
        return Err(corrupt(slot, 1, String::from(why)));
    }
    Ok(Some(newest))
}

fn refuse_truncated(disk: &Disk, superblock: &Superblock) -> Result<()> {
    let volume_bytes = superblock.volume_bytes;
    if superblock.features.is_open_ended() {
        disk.open_end(volume_bytes);
    }
    if volume_bytes <= disk.len() {
        return Ok(());
    }
    // Who compares it with what `ls` says is to find the same.
    Err(Error::Truncated { volume_bytes, device_bytes: disk.len_in_bytes() })
}

/// The newest good superblock (`None` if no copy is good), even if there may have been a newer one, and the
/// bad copies: for looking at a volume that cannot be opened, without changing it.
///
/// # Errors
/// [`Error::NotAVolume`], [`Error::OlderFormat`], [`Error::NewerFormat`], [`Error::UnknownFeatures`].
pub(crate) fn newest(disk: &Disk) -> Result<(Option<Superblock>, Vec<BadSlot>)> {
    let found = read_all(disk)?;
    let newest = found.iter().filter_map(Found::good).max_by_key(|s| s.generation).cloned();
    if let Some(open_ended) = newest.as_ref().filter(|superblock| superblock.features.is_open_ended()) {
        disk.open_end(open_ended.volume_bytes);
    }
    let bad_slots = all_bad(&found, newest.as_ref().map(|superblock| superblock.generation));
    Ok((newest, bad_slots))
}

/// The first byte of each copy, and its superblock or the reason why it is not valid. A copy of another
/// version does not hide the others.
///
/// # Errors
/// [`Error::NotAVolume`] if the device is too small for them.
pub(crate) fn copies(disk: &Disk) -> Result<Vec<(u64, core::result::Result<Superblock, String>)>> {
    refuse_too_short(disk)?;
    let look = |slot| match read_slot(disk, slot) {
        Ok(Found::Good(superblock)) => Ok(*superblock),
        Ok(found) => Err(found.bad(slot, None).map(|bad| bad.why).unwrap_or_default()),
        Err(error) => Err(error.to_string()),
    };
    Ok((0..COUNT).map(|slot| (offset_of(slot), look(slot))).collect())
}

fn read_all(disk: &Disk) -> Result<Vec<Found>> {
    refuse_too_short(disk)?;
    (0..COUNT).map(|slot| read_slot(disk, slot)).collect()
}

fn refuse_too_short(disk: &Disk) -> Result<()> {
    if disk.len() < BYTES {
        let why = format!("it has fewer than the {BYTES} bytes that the superblocks alone take");
        return Err(Error::NotAVolume { why });
    }
    Ok(())
}

/// The bad copies beside a good one of the generation `newest`, if there is any.
fn all_bad(found: &[Found], newest: Option<u64>) -> Vec<BadSlot> {
    let sibling = |slot: usize| found.get(slot ^ 1).and_then(Found::good);
    let bad = |(slot, f): (usize, &Found)| match f {
        Found::Good(superblock) => out_of_date(slot, superblock.generation, newest?),
        f => f.bad(slot, sibling(slot)),
    };
    found.iter().enumerate().filter_map(bad).collect()
}

/// A good copy whose last write was lost: older than a crash may have left it.
fn out_of_date(slot: usize, generation: u64, newest: u64) -> Option<BadSlot> {
    let is_of_pair = pair_of(newest) / 2 == slot / 2;
    let oldest = newest.saturating_sub(if is_of_pair { 2 } else { 1 });
    (generation < oldest).then(|| BadSlot {
        offset: offset_of(slot),
        why: format!("generation {generation} is out of date beside {newest}: a write of this copy was lost"),
        may_be_torn: false,
        is_rotten: true,
    })
}

/// Whether a crash may have left a copy like this: sectors of two superblocks, one of which is the other copy
/// of the pair. The generation is in the first sector.
fn may_be_torn(block: &[u8], sibling: &Superblock) -> bool {
    let Ok(mut good) = AlignedBuf::zeroed(1) else { return false };
    if sibling.encode(good.as_mut_slice()).is_err() {
        return false;
    }
    let first_sector = |block: &[u8]| block.get(..SECTOR_BYTES).map(<[u8]>::to_vec);
    first_sector(block) == first_sector(good.as_slice())
        || generation_of(block).is_some_and(|generation| generation.abs_diff(sibling.generation) == 2)
}

impl Loaded {
    /// A superblock that stands in for copies that are all bad.
    pub(crate) fn made(superblock: Superblock, bad_slots: Vec<BadSlot>) -> Loaded {
        Loaded { superblock, bad_slots, missing: Vec::new() }
    }

    /// Completes an unfinished write of the loaded superblock and replaces a damaged copy of it. Afterwards
    /// it has two good copies. Must run before anything else is written: blocks that only the older
    /// generation uses count as free, and before the repair damage of one copy could lead back to that
    /// generation.
    pub(crate) fn repair_slots(&self, disk: &Disk) -> Result<()> {
        for &slot in &self.missing {
            write_slot(disk, slot, &self.superblock)?;
            disk.sync()?;
        }
        Ok(())
    }
}

/// Makes `superblock` the volume's newest. Everything that it points to must be synced before, and blocks
/// that only the older one uses are freed afterwards. Its generation follows that of the last one stored.
pub(crate) fn store(disk: &Disk, superblock: &Superblock) -> Result<()> {
    store_first(disk, superblock)?;
    store_second(disk, superblock)
}

/// The first half of [`store`]: copy A. Until it is durable, copy B holds the generation before the last.
pub(crate) fn store_first(disk: &Disk, superblock: &Superblock) -> Result<()> {
    store_in(disk, pair_of(superblock.generation), superblock)
}

/// The second half of [`store`]: copy B.
pub(crate) fn store_second(disk: &Disk, superblock: &Superblock) -> Result<()> {
    store_in(disk, pair_of(superblock.generation) + 1, superblock)
}

fn store_in(disk: &Disk, slot: usize, superblock: &Superblock) -> Result<()> {
    // A part of it may have been written, naming blocks that nothing else keeps from reuse.
    write_slot(disk, slot, superblock).map_err(|error| disk.poison_if_full(error))?;
    disk.sync()
}

/// Writes copy A alone of a superblock that names what the one before it names, in spite of an earlier
/// failure. Whatever becomes of this write, the state of the volume is the same: copy B of its pair is whole,
/// as the caller knows, and counts for less than the other pair.
pub(crate) fn store_note(disk: &Disk, superblock: &Superblock) -> Result<()> {
    let mut buf = AlignedBuf::zeroed(1)?;
    superblock.encode(buf.as_mut_slice())?;
    disk.write_note(offset_of(pair_of(superblock.generation)), buf.as_slice())
}

/// Erases the superblocks: the first step of making a volume, so that an interrupted mkfs leaves no old one
/// that points into the new contents.
pub(crate) fn erase(disk: &Disk) -> Result<()> {
    disk.write_at(0, AlignedBuf::zeroed(COUNT)?.as_slice())?;
    disk.sync()
}

/// Fills all slots of an [erased](erase) device with generations 0 and 1 of `superblock`: the last step of
/// making a volume. Everything that it points to must be synced before.
pub(crate) fn format(disk: &Disk, superblock: &Superblock) -> Result<()> {
    for generation in [0, 1] {
        store(disk, &Superblock { generation, ..superblock.clone() })?;
    }
    Ok(())
}

/// The bytes of all slots of a volume that has one state alone, `superblock`: the other pair has it under the
/// generation before.
///
/// # Errors
/// [`Error::NoMemory`], and those of encoding.
pub(crate) fn image(superblock: &Superblock) -> Result<AlignedBuf> {
    let newest = superblock.generation.max(1);
    let mut image = AlignedBuf::zeroed(COUNT)?;
    for (slot, block) in image.as_mut_slice().chunks_exact_mut(BLOCK_BYTES).enumerate() {
        let generation = if pair_of(newest) / 2 == slot / 2 { newest } else { newest - 1 };
        Superblock { generation, ..superblock.clone() }.encode(block)?;
    }
    Ok(image)
}

/// Writes all slots anew, as those of a volume that has this state alone. All copies were bad; a crash leaves
/// some of them bad.
///
/// # Errors
/// Those of the device.
fn write_all(disk: &Disk, superblock: &Superblock) -> Result<()> {
    disk.write_at(0, image(superblock)?.as_slice())?;
    disk.sync()
}

/// The first of the two slots of a generation.
fn pair_of(generation: u64) -> usize {
    if generation & 1 == 0 { 0 } else { 2 }
}

fn offset_of(slot: usize) -> u64 {
    (slot * BLOCK_BYTES) as u64
}

fn read_slot(disk: &Disk, slot: usize) -> Result<Found> {
    let mut buf = AlignedBuf::zeroed(1)?;
    // One by one: a sector that cannot be read must not hide the copies beside it.
    if let Err(e) = disk.read_at(offset_of(slot), buf.as_mut_slice()) {
        return Ok(Found::Unreadable(e));
    }
    Ok(match Superblock::decode(buf.as_slice()) {
        Decoded::Good(s) if pair_of(s.generation) / 2 != slot / 2 => {
            Found::Bad(format!("generation {} stands in the wrong slot", s.generation), buf)
        }
        Decoded::Good(superblock) => Found::Good(superblock),
        Decoded::NotOurs => Found::NotOurs,
        Decoded::OfVersion { version } if version < VERSION => {
            return Err(Error::OlderFormat { found: version, known: VERSION });
        }
        Decoded::OfVersion { version } => {
            return Err(Error::NewerFormat { found: version, known: VERSION });
        }
        Decoded::Incompatible { bits } => return Err(Error::UnknownFeatures { bits }),
        Decoded::Bad { why } => Found::Bad(String::from(why), buf),
    })
}

fn write_slot(disk: &Disk, slot: usize, superblock: &Superblock) -> Result<()> {
    let mut buf = AlignedBuf::zeroed(1)?;
    superblock.encode(buf.as_mut_slice())?;
    disk.write_at(offset_of(slot), buf.as_slice())
}

fn corrupt(slot: usize, slots: usize, why: String) -> Error {
    Error::Corrupt { what: "superblock", offset: offset_of(slot), len: (slots * BLOCK_BYTES) as u64, why }
}

fn nothing_good(found: Vec<Found>) -> Error {
    for (slot, f) in found.iter().enumerate() {
        if let Found::Bad(why, _) = f {
            return corrupt(slot, 1, format!("no copy is good; in this one {why}"));
        }
    }
    let unreadable = found.into_iter().find_map(|f| match f {
        Found::Unreadable(e) => Some(e),
        _ => None,
    });
    unreadable.unwrap_or_else(|| Error::NotAVolume { why: String::from(NO_SUPERBLOCK) })
}

/// The error for a pair without a good copy, beside one that holds `newest`.
fn lost_pair(found: &[Found], pair: usize, newest: u64) -> Error {
    let of_pair = || found.iter().skip(pair).take(2);
    if newest <= 1 && of_pair().all(|f| matches!(f, Found::NotOurs)) {
        return Error::NotAVolume { why: String::from("mkfs did not finish") };
    }
    let reasons: Vec<String> =
        of_pair().enumerate().filter_map(|(i, f)| Some(f.bad(pair + i, None)?.why)).collect();
    let why = format!(
        "both copies are lost ({}), and generation {newest} beside them may be out of date",
        reasons.join("; ")
    );
    corrupt(pair, 2, why)
}

impl Found {
    fn good(&self) -> Option<&Superblock> {
        match self {
            Found::Good(superblock) => Some(superblock),
            _ => None,
        }
    }

    /// The reason why a copy is bad; `sibling` is the other copy of its pair, if that is good.
    fn bad(&self, slot: usize, sibling: Option<&Superblock>) -> Option<BadSlot> {
        let may_be_torn = match (self, sibling) {
            (Found::Bad(_, block), Some(sibling)) => may_be_torn(block.as_slice(), sibling),
            _ => false,
        };
        let why = match self {
            Found::Good(_) => return None,
            Found::NotOurs => String::from("it does not begin as a superblock"),
            Found::Bad(why, _) => why.clone(),
            Found::Unreadable(e) => e.to_string(),
        };
        let is_rotten = !may_be_torn && !matches!(self, Found::Unreadable(_));
        Some(BadSlot { offset: offset_of(slot), why, may_be_torn, is_rotten })
    }
}

#[cfg(test)]
mod tests;
