//! Tests of the node table by itself.

use super::*;
use crate::format::table::{decode_page, encode_page};
use crate::space::Space;

const PER_PAGE: u32 = 4;

/// Reads a table back from the pages of checkpoints that were written one after the other.
fn read(written: &[Option<Vec<u8>>]) -> Table {
    let space = Space::new(0, 64);
    let extent = || space.allocate(1, 1).unwrap();
    let mut table = Table::new(PER_PAGE);
    for (index, page) in written.iter().enumerate() {
        let slots = decode_page(index as u32, page.as_ref().unwrap()).unwrap();
        let place = PagePlace { extent: extent(), copy: None, len_bytes: 0, checksum: 0 };
        table.push_page(place, &slots, |_, _| Ok(extent()), &mut |node| Err(node.why)).unwrap();
    }
    table
}

fn write(table: &mut Table, written: &mut Vec<Option<Vec<u8>>>) {
    for (index, slots) in table.capture().pages() {
        let pages = written.len().max(index as usize + 1);
        written.resize(pages, None);
        written[index as usize] = Some(encode_page(index, &slots));
    }
}

#[test]
fn references_below_zero_are_reported_and_the_node_is_kept() {
    let mut table = Table::new(PER_PAGE);
    let id = table.reserve();
    table.add(id, 0);
    assert_eq!(table.count(id, 2), Some(2));
    assert_eq!(table.count(id, -2), Some(0));
    assert_eq!(table.misfit(), None);
    assert_eq!(table.count(id, -1), Some(1));
    assert_eq!(table.misfit(), Some(miscounted(id)));
    assert_eq!(table.misfit(), None);
    assert_eq!(table.count(id, i64::MAX), Some(1));
    assert_eq!(table.misfit(), Some(miscounted(id)));
}

#[test]
fn a_change_of_a_node_that_is_not_there_is_heard() {
    let mut table = Table::new(PER_PAGE);
    let id = table.reserve();
    table.add(id, 0);
    table.remove(id);
    assert_eq!(table.misfit(), None);
    table.remove(id);
    assert_eq!(table.misfit(), Some(unknown(id)));
    table.touch(id);
    assert_eq!(table.misfit(), Some(unknown(id)));
    // Another node has the slot, and keeps it.
    let next = table.reserve();
    table.add(next, 0);
    assert_eq!(next.slot, id.slot);
    table.remove(id);
    assert_eq!(table.misfit(), Some(unknown(id)));
    assert!(table.holds(next));
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "reserved name"))]
fn a_node_is_added_once() {
    let mut table = Table::new(PER_PAGE);
    let id = table.reserve();
    table.add(id, 0);
    assert_eq!(table.count(id, 1), Some(1));
    table.add(id, 0);
    assert!(matches!(table.misfit(), Some(Error::Internal { .. })));
    assert_eq!(table.references(id), 1);
}

/// A checkpoint that named another node's place would lose both.
#[test]
fn what_a_checkpoint_has_written_is_a_node_that_it_captured() {
    let space = Space::new(0, 64);
    let place = NodePlace { extent: space.allocate(1, 1).unwrap(), header_len: 0, header_checksum: 0 };
    let mut table = Table::new(PER_PAGE);
    let gone = table.reserve();
    table.add(gone, 0);
    table.remove(gone);
    let next = table.reserve();
    table.add(next, 0);
    let mut captured = table.capture();
    assert_eq!(table.written(gone, &place, &mut captured), Err(unknown(gone)));
    assert_eq!(table.written(next, &place, &mut captured), Ok(()));
    assert_eq!(table.place(next).map(|place| place.extent.place(0)), Some(0));
}

/// Unused names are reused from the last one on, so a page may get its first node while the page before
/// it is not full.
#[test]
fn names_given_up_across_pages_leave_every_page_whole() {
    for names in [2, 6, 11] {
        let (mut table, mut written) = (Table::new(PER_PAGE), Vec::new());
        let first: Vec<NodeId> = (0..3).map(|_| table.reserve()).collect();
        first.iter().for_each(|id| table.add(*id, 0));
        write(&mut table, &mut written);

        let unused: Vec<NodeId> = (0..names).map(|_| table.reserve()).collect();
        unused.iter().for_each(|id| table.release_reserved(*id));
        let last = table.reserve();
        table.add(last, 1);
        write(&mut table, &mut written);

        let found: Vec<_> = read(&written).nodes().collect();
        assert_eq!(found, table.nodes().collect::<Vec<_>>(), "{names} names given up");
    }
}
