use super::*;

const EXTENT_BYTES: u64 = 4096;
const LIMITS: Limits = Limits { contents_bytes: 1 << 20, header_bytes: 4096, slots: 1, blocks: 1 };
const NEXT_MSN: Msn = 100;

const ORIGIN: Origin = Origin { volume_id: *b"sixteen bytes id", dict: 3, checkpoint: 77 };
const ID: NodeId = NodeId { slot: 5, generation: 6 };

fn header_of(edges: Vec<StoredEdge>, sections: Vec<Section>) -> Header {
    let entries = Entries::Interior(edges);
    let (lo, hi) = (Cut::LOW, Cut::HIGH);
    Header { origin: ORIGIN, id: ID, extent_blocks: 1, height: 1, lo, hi, entries, sections }
}

fn decode(bytes: &[u8]) -> Result<Header, BadHeader> {
    Header::decode(bytes, EXTENT_BYTES, &LIMITS, NEXT_MSN)
}

/// An edge to a child, with a GOTO.
fn edge_to_child() -> StoredEdge {
    let target = NodeId { slot: 8, generation: 9 };
    let (lo, hi) = (Cut::before(*b"a"), Cut::after(*b"a"));
    let goto = Goto { lo, hi, translation: Translation::default(), target, longest_key: 1 };
    StoredEdge {
        hi: Cut::HIGH,
        translation: Translation::default(),
        child: Some(NodeId { slot: 7, generation: 1 }),
        longest_key: 9,
        partition: Vec::new(),
        gotos: Vec::from([goto]),
    }
}

/// Reads back a node of one edge with a partition of these runs.
fn read_back(partition: &[RunRef]) -> Result<Header, BadHeader> {
    let edge = StoredEdge {
        hi: Cut::HIGH,
        translation: Translation::default(),
        child: None,
        longest_key: 0,
        partition: partition.to_vec(),
        gotos: Vec::new(),
    };
    decode(&header_of(Vec::from([edge]), Vec::new()).encode())
}

#[test]
fn each_run_of_a_partition_is_newer_than_those_before() {
    let read = |last_msns: &[Msn]| {
        let run =
            |last_msn: &Msn| RunRef { stored_len: 9, raw_len: 9, last_msn: *last_msn, ..RunRef::default() };
        read_back(&last_msns.iter().map(run).collect::<Vec<_>>()).is_ok()
    };
    assert!(read(&[]) && read(&[1]) && read(&[1, 2, 9]));
    assert!(!read(&[2, 2]) && !read(&[3, 1]) && !read(&[1, 2, 0]) && !read(&[1, 0, 2]));
}

#[test]
fn range_deletes_are_counted_up_to_what_fits() {
    for (ranges, counted) in [(0, 0), (1, 1), (RANGES_MAX, RANGES_MAX), (u32::MAX, RANGES_MAX)] {
        let run = RunRef { stored_as: StoredAs::Zstd, ranges, last_msn: 1, ..RunRef::default() };
        let Ok(Header { entries: Entries::Interior(edges), .. }) = read_back(&[run]) else { panic!() };
        let read = edges[0].partition[0];
        assert_eq!((read.ranges, read.stored_as), (counted, StoredAs::Zstd));
    }
}

#[test]
fn a_run_longer_than_its_stored_bytes_can_hold_is_refused() {
    let stored_len = 10;
    for stored_as in [StoredAs::Raw, StoredAs::Lz4, StoredAs::Zstd] {
        let most = stored_as.raw_len_max(stored_len) as u32;
        assert!(u64::from(most) <= LIMITS.contents_bytes);
        let read = |raw_len| {
            read_back(&[RunRef { stored_len, raw_len, stored_as, last_msn: 1, ..RunRef::default() }])
        };
        assert!(read(most).is_ok(), "{stored_as:?}");
        assert!(read(most + 1).is_err() && read(u32::MAX).is_err(), "{stored_as:?}");
    }
}

#[test]
fn all_runs_of_a_node_together_are_within_its_extent_and_the_limits() {
    let run = |stored_len, raw_len, last_msn| RunRef {
        stored_len,
        raw_len,
        stored_as: StoredAs::Lz4,
        last_msn,
        ..RunRef::default()
    };
    assert!(read_back(&[run(2000, 9000, 1), run(2096, 9000, 2)]).is_ok());
    assert!(read_back(&[run(2000, 9000, 1), run(2097, 9000, 2)]).is_err());
    assert!(read_back(&[run(2048, 1 << 19, 1), run(2048, 1 << 19, 2)]).is_err(), "255 times at most");
    assert!(read_back(&[run(2100, 1 << 19, 1), run(1996, 255 * 1996, 2)]).is_ok());
    let zstd = |raw_len, last_msn| RunRef { stored_as: StoredAs::Zstd, ..run(2048, raw_len, last_msn) };
    assert!(read_back(&[zstd(1 << 19, 1), zstd(1 << 19, 2)]).is_ok());
    assert!(read_back(&[zstd(1 << 19, 1), zstd((1 << 19) + 1, 2)]).is_err());
}

#[test]
fn no_message_is_newer_than_the_volume() {
    let read = |last_msn| read_back(&[RunRef { stored_len: 9, raw_len: 9, last_msn, ..RunRef::default() }]);
    assert!(read(NEXT_MSN - 1).is_ok());
    assert!(read(NEXT_MSN).is_err() && read(Msn::MAX).is_err());
}

#[test]
fn the_best_compression_is_within_the_ratio() {
    for raw_len in [64, 4096, 1 << 20] {
        let raw = alloc::vec![0; raw_len];
        let stored = lz4_flex::block::compress(&raw);
        let most = StoredAs::Lz4.raw_len_max(stored.len() as u32);
        assert!(raw_len as u64 <= most, "{raw_len} bytes in {}", stored.len());
    }
}

#[test]
fn a_header_names_its_node_s_origin_and_is_verified_by_itself() {
    let header = header_of(Vec::from([edge_to_child()]), Vec::new());
    let mut bytes = header.encode();
    assert_eq!(bytes[..4], MAGIC.to_le_bytes());
    assert_eq!(bytes[4..8], (bytes.len() as u32).to_le_bytes());
    assert_eq!(&bytes[16..32], b"sixteen bytes id");
    assert_eq!(bytes[32..40], 77u64.to_le_bytes());
    assert_eq!(bytes[40..48], [5, 0, 0, 0, 6, 0, 0, 0]);
    assert_eq!(bytes[48..60], [1, 0, 0, 0, 3, 1, 0, 0, 1, 0, 0, 0]);
    let read = decode(&bytes).ok().unwrap();
    assert_eq!((read.origin, read.id, read.extent_blocks), (ORIGIN, ID, 1));
    assert_eq!((read.height, read.lo, read.hi), (1, Cut::LOW, Cut::HIGH));
    assert!(Header::checksum(&bytes).is_some());
    for len in 0..bytes.len() {
        assert!(Header::checksum(&bytes[..len]).is_none());
    }
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Header::checksum(&bytes).is_none(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn unknown_sections_are_ignored_unless_they_must_be_known() {
    let section = |kind, offset, len| Section { kind, offset, len, checksum: 1 };
    let read = |sections: &[Section]| {
        decode(&header_of(Vec::from([edge_to_child()]), sections.to_vec()).encode()).map(|h| h.sections)
    };
    let ignorable = [section(0, 0, 4096), section(9, 4096, 0), section(0x7fff, 100, 100)];
    assert_eq!(read(&ignorable), Ok(ignorable.to_vec()));
    for number in [0x8000u16, 0x8009, 0xffff] {
        let unknown = BadHeader::Unknown { what: "a node has a section of kind", number: number.into() };
        assert_eq!(read(&[ignorable[0], section(number, 0, 1)]), Err(unknown));
    }
    assert!(matches!(read(&[section(3, 0, 1), section(3, 0, 1)]), Err(BadHeader::Wrong(_))));
    assert!(matches!(read(&[section(3, 4000, 97)]), Err(BadHeader::Wrong(_))));
    assert!(matches!(read(&[section(3, u32::MAX, u32::MAX)]), Err(BadHeader::Wrong(_))));
}

#[test]
fn a_child_in_another_node_table_is_refused_by_its_number() {
    let bytes = header_of(Vec::from([edge_to_child()]), Vec::new()).encode();
    let places: Vec<usize> = [7u32, 8]
        .map(|slot| bytes.windows(4).rposition(|word| word == slot.to_le_bytes()).unwrap())
        .into_iter()
        .collect();
    for slot_at in places {
        let mut other = bytes.clone();
        other[slot_at + 8..slot_at + 10].copy_from_slice(&300u16.to_le_bytes());
        let what = "a node has a child in the node table of number";
        assert_eq!(decode(&other).err(), Some(BadHeader::Unknown { what, number: 300 }));
    }
}

/// Codecs of volumes in which nothing asks are what they were.
#[test]
fn a_run_keeps_what_it_asks_for_and_how_it_is_stored() {
    for stored_as in [StoredAs::Raw, StoredAs::Lz4, StoredAs::Zstd] {
        for asked in (0..PairCompression::CODES_END).filter_map(PairCompression::from_code) {
            let run = RunRef { stored_as, asked, ranges: RANGES_MAX, last_msn: 1, ..RunRef::default() };
            let Ok(Header { entries: Entries::Interior(edges), .. }) = read_back(&[run]) else { panic!() };
            assert_eq!(edges[0].partition, [run]);
        }
        assert_eq!(stored_as.with_asked(PairCompression::Usual), stored_as as u32);
    }
    assert_eq!(StoredAs::and_asked(PairCompression::CODES_END << 2), None);
}

#[test]
fn a_codec_of_a_later_version_is_named() {
    let run = RunRef { stored_len: 9, raw_len: 9, last_msn: 1, checksum: 0x5a5a_5a5a, ..RunRef::default() };
    let edge = StoredEdge { partition: Vec::from([run]), ..edge_to_child() };
    let mut bytes = header_of(Vec::from([edge]), Vec::new()).encode();
    let checksum_at = bytes.windows(8).position(|word| word == run.checksum.to_le_bytes()).unwrap();
    bytes[checksum_at - 4] = 3;
    let what = "a node has a run of codec";
    assert_eq!(decode(&bytes).err(), Some(BadHeader::Unknown { what, number: 3 }));
}
