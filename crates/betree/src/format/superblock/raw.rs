//! The layout of a superblock: one block. docs/format.md shows it.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use betree_platform::BLOCK_BYTES;
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::identity::{LABEL_BYTES_MAX, MADE_BY_BYTES_MAX, UPSERT_NAME_BYTES_MAX};
use super::{
    DICTS_MAX, DIRECTORY_PARTS_MAX, Decoded, DictRoot, Features, Identity, LogStart, Superblock, TablePlace,
    UpsertId, VERSION,
};
use crate::error::{Error, Result};
use crate::format::tail::TaggedTail;
use crate::settings::Geometry;
use crate::space::BlockRange;

/// The first bytes of a superblock, in every version.
const MAGIC: [u8; 8] = *b"BetrFS\0\x01";
const FLAG_CLEAN: u32 = 1;
/// The room for tagged values in bytes.
pub(super) const TAIL_BYTES_MAX: usize = 2990;

/// In every version, `magic`, `version` and `checksum` have these places and this meaning, so that any
/// program can tell a volume of another version from a damaged one.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    flags: U32,
    volume_id: [u8; 16],
    generation: U64,
    volume_bytes: U64,
    log_offset: U64,
    log_bytes: U64,
    node_bytes: U32,
    basement_bytes: U32,
    fanout_max: U32,
    table_page_bytes: U32,
    next_msn: U64,
    log_epoch: U64,
    log_seq: U64,
    log_position: U64,
    table_offset: U64,
    table_len: U32,
    dict_count: U32,
    table_checksum: U64,
    dicts: [RawDict; DICTS_MAX],
    table_further_parts: [RawPart; DIRECTORY_PARTS_MAX - 1],
    compat: U64,
    ro_compat: U64,
    incompat: U64,
    uuid: [u8; 16],
    made_ns: I64,
    upserts: [RawUpsert; DICTS_MAX],
    made_by_len: u8,
    made_by: [u8; MADE_BY_BYTES_MAX],
    label_len: u8,
    label: [u8; LABEL_BYTES_MAX],
    tail_len: U16,
    tail: [u8; TAIL_BYTES_MAX],
    /// xxh3-64 of all bytes before it.
    checksum: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawDict {
    root_slot: U32,
    root_generation: U32,
    applied_msn: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawPart {
    start_block: U64,
    len_blocks: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawUpsert {
    version: U32,
    name_len: u8,
    name: [u8; UPSERT_NAME_BYTES_MAX],
}

const _: () = assert!(size_of::<Raw>() == BLOCK_BYTES && size_of::<RawDict>() == 16);
const _: () = assert!(size_of::<RawUpsert>() == 32);

/// The generation in a block that begins as a superblock, whole or not.
pub(super) fn generation_of(block: &[u8]) -> Option<u64> {
    let raw = Raw::ref_from_bytes(block).ok()?;
    (raw.magic == MAGIC).then(|| raw.generation.get())
}

impl Superblock {
    /// Fills one block. On an error its contents are unspecified.
    ///
    /// # Errors
    /// [`Error::BadGeometry`] and [`Error::BadIdentity`] for values that [`decode`](Superblock::decode) would
    /// refuse.
    pub(crate) fn encode(&self, block: &mut [u8]) -> Result<()> {
        self.identity.validate()?;
        self.validate().map_err(Error::BadGeometry)?;
        block.fill(0);
        let raw = Raw::mut_from_bytes(block).map_err(|_| Error::BadGeometry("a superblock is one block"))?;
        raw.magic = MAGIC;
        raw.version = VERSION.into();
        raw.flags = if self.clean { FLAG_CLEAN } else { 0 }.into();
        raw.volume_id = self.identity.volume_id;
        raw.generation = self.generation.into();
        raw.volume_bytes = self.volume_bytes.into();
        raw.log_offset = self.log_offset.into();
        raw.log_bytes = self.geometry.log_bytes.into();
        raw.node_bytes = self.geometry.node_bytes.into();
        raw.basement_bytes = self.geometry.basement_bytes.into();
        raw.fanout_max = self.geometry.fanout_max.into();
        raw.table_page_bytes = self.table_page_bytes.into();
        raw.next_msn = self.next_msn.into();
        raw.log_epoch = self.log_start.epoch.into();
        raw.log_seq = self.log_start.seq.into();
        raw.log_position = self.log_start.position.into();
        raw.table_offset = self.table.offset.into();
        raw.table_len = self.table.len.into();
        raw.table_checksum = self.table.checksum.into();
        raw.dict_count = u32::from(self.geometry.dicts).into();
        for (raw, dict) in raw.dicts.iter_mut().zip(&self.dicts) {
            raw.root_slot = dict.slot.into();
            raw.root_generation = dict.generation.into();
            raw.applied_msn = dict.applied_msn.into();
        }
        for (raw, part) in raw.table_further_parts.iter_mut().zip(&self.table.further_parts) {
            raw.start_block = part.start_block.into();
            raw.len_blocks = part.len_blocks.into();
        }
        raw.compat = self.features.compat.into();
        raw.ro_compat = self.features.ro_compat.into();
        raw.incompat = self.features.incompat.into();
        raw.uuid = *self.identity.uuid.as_bytes();
        raw.made_ns = self.identity.made_ns.into();
        for (raw, upsert) in raw.upserts.iter_mut().zip(&self.upserts) {
            raw.version = upsert.version.into();
            raw.name_len = put_text(&mut raw.name, &upsert.name);
        }
        raw.made_by_len = put_text(&mut raw.made_by, &self.identity.made_by);
        raw.label_len = put_text(&mut raw.label, &self.identity.label);
        let tail = self.tail.as_bytes();
        raw.tail_len = (tail.len() as u16).into();
        if let Some(room) = raw.tail.get_mut(..tail.len()) {
            room.copy_from_slice(tail);
        }
        raw.checksum = checksum(raw).into();
        Ok(())
    }

    /// Decodes one block.
    pub(crate) fn decode(block: &[u8]) -> Decoded {
        let Ok(raw) = Raw::ref_from_bytes(block) else { return Decoded::NotOurs };
        if raw.magic != MAGIC {
            return Decoded::NotOurs;
        }
        if raw.checksum.get() != checksum(raw) {
            return Decoded::Bad { why: "the checksum does not fit" };
        }
        match raw.version.get() {
            VERSION => {}
            0 => return Decoded::Bad { why: "there is no such format version" },
            version => return Decoded::OfVersion { version },
        }
        let unknown = Features { incompat: raw.incompat.get(), ..Features::default() }.unknown_incompat();
        if unknown != 0 {
            return Decoded::Incompatible { bits: unknown };
        }
        match Superblock::from_raw(raw).and_then(|s| s.validate().map(|()| s)) {
            Ok(superblock) => Decoded::Good(Box::new(superblock)),
            Err(why) => Decoded::Bad { why },
        }
    }

    fn from_raw(raw: &Raw) -> core::result::Result<Superblock, &'static str> {
        if raw.flags.get() & !FLAG_CLEAN != 0 {
            return Err("unknown flags are set");
        }
        let dicts_count = u8::try_from(raw.dict_count.get()).map_err(|_| "too many dictionaries")?;
        let mut dicts = [DictRoot::default(); DICTS_MAX];
        for (dict, raw) in dicts.iter_mut().zip(&raw.dicts) {
            *dict = DictRoot {
                slot: raw.root_slot.get(),
                generation: raw.root_generation.get(),
                applied_msn: raw.applied_msn.get(),
            };
        }
        let mut further_parts = [BlockRange::default(); DIRECTORY_PARTS_MAX - 1];
        for (part, raw) in further_parts.iter_mut().zip(&raw.table_further_parts) {
            *part = BlockRange { start_block: raw.start_block.get(), len_blocks: raw.len_blocks.get() };
        }
        let (of_dicts, beyond) = raw.upserts.split_at_checked(usize::from(dicts_count)).unwrap_or_default();
        if beyond.iter().any(|raw| raw.as_bytes().iter().any(|byte| *byte != 0)) {
            return Err("a dictionary beyond the last has an upsert function");
        }
        let mut upserts = Vec::with_capacity(of_dicts.len());
        for raw in of_dicts {
            let name = text(&raw.name, raw.name_len).ok_or("the name of an upsert function is senseless")?;
            upserts.push(UpsertId { name, version: raw.version.get() });
        }
        let (tail, behind) = raw
            .tail
            .split_at_checked(usize::from(raw.tail_len.get()))
            .filter(|(_, behind)| behind.iter().all(|byte| *byte == 0))
            .ok_or("the tagged values are longer than their room")?;
        debug_assert!(behind.len() <= TAIL_BYTES_MAX);
        Ok(Superblock {
            identity: Identity {
                volume_id: raw.volume_id,
                uuid: Uuid::from_bytes(raw.uuid),
                label: text(&raw.label, raw.label_len).ok_or("the label is not UTF-8")?,
                made_ns: raw.made_ns.get(),
                made_by: text(&raw.made_by, raw.made_by_len).ok_or("the name of its maker is senseless")?,
            },
            generation: raw.generation.get(),
            clean: raw.flags.get() & FLAG_CLEAN != 0,
            geometry: Geometry {
                node_bytes: raw.node_bytes.get(),
                basement_bytes: raw.basement_bytes.get(),
                fanout_max: raw.fanout_max.get(),
                log_bytes: raw.log_bytes.get(),
                dicts: dicts_count,
            },
            features: Features {
                compat: raw.compat.get(),
                ro_compat: raw.ro_compat.get(),
                incompat: raw.incompat.get(),
            },
            volume_bytes: raw.volume_bytes.get(),
            log_offset: raw.log_offset.get(),
            table_page_bytes: raw.table_page_bytes.get(),
            dicts,
            upserts,
            table: TablePlace {
                offset: raw.table_offset.get(),
                len: raw.table_len.get(),
                checksum: raw.table_checksum.get(),
                further_parts,
            },
            log_start: LogStart {
                epoch: raw.log_epoch.get(),
                seq: raw.log_seq.get(),
                position: raw.log_position.get(),
            },
            next_msn: raw.next_msn.get(),
            tail: TaggedTail::parse(tail).ok_or("the tagged values are out of order")?,
        })
    }
}

/// Copies a text to the start of its room, and returns its length. The caller has checked that it fits.
fn put_text(room: &mut [u8], text: &str) -> u8 {
    if let Some(room) = room.get_mut(..text.len()) {
        room.copy_from_slice(text.as_bytes());
    }
    text.len() as u8
}

/// The text of `len` bytes at the start of a room; `None` if it is not UTF-8, or not followed by zeros only.
fn text(room: &[u8], len: u8) -> Option<String> {
    let (text, rest) = room.split_at_checked(len.into())?;
    let text = core::str::from_utf8(text).ok()?;
    rest.iter().all(|byte| *byte == 0).then(|| text.into())
}

fn checksum(raw: &Raw) -> u64 {
    let bytes = raw.as_bytes();
    xxh3_64(bytes.get(..BLOCK_BYTES - size_of::<U64>()).unwrap_or(bytes))
}
