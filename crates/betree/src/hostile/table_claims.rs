//! Blocks that two owners claim where the node table has several pages.

use std::vec::Vec;

use super::claims::{Repaired, lost, rescued, set_place, whole_nodes};
use super::findings::{Teller, assert_is_usable, assert_undone, codes, repaired, told};
use super::repair::{of_several_pages, open_as, pairs};
use super::{open, options};
use crate::check::FindingCode as Code;
use crate::env::Env;
use crate::format::table::StoredPage;
use crate::settings::OpenMode;

/// The nodes of two pages claim the same blocks.
#[test]
fn of_two_nodes_in_different_pages_that_one_is_lost_that_is_not_there() {
    let image = of_several_pages().without_table_copy();
    let nodes = whole_nodes(&image);
    let of_page = |page: usize| {
        let leaves = nodes.iter().filter(move |node| node.height == 0);
        leaves.filter(|node| image.page_of(node.slot).0 == page).step_by(9).take(3).collect::<Vec<_>>()
    };
    let (first, second) = (of_page(0), of_page(1));
    assert!(first.len() == 3 && second.len() == 3);
    for (thief, owner) in first.iter().zip(&second).flat_map(|(a, b)| [(a, b), (b, a)]) {
        let what = std::format!("the node in slot {} where that in slot {} is", thief.slot, owner.slot);
        let mut hostile = image.clone();
        set_place(&mut hostile, thief.slot, owner.part.start_block, owner.part.len_blocks);
        let Repaired { told, noted, pairs, .. } = super::claims::repaired(&hostile, &what);
        let named = std::format!("node {}.", thief.slot.max(owner.slot));
        assert!(told.len() == 1 && told[0].what.starts_with(&named), "{what}: {told:?}");
        assert_eq!(noted.lost, 1, "{what}");
        assert!(pairs == lost(&image, thief.slot).1, "{what}");
    }
}

/// The directory says that a page is where something else is.
#[test]
fn a_page_that_is_where_others_are_is_read_from_its_copy() {
    let image = of_several_pages();
    let expected = pairs(&open_as(&image.device(), OpenMode::ReadOnly));
    let pages = [0, 1].map(|index| image.stored_page(index));
    let node = whole_nodes(&image).into_iter().find(|node| node.height == 0).unwrap();
    let table = image.superblock().table.parts()[0].start_block;
    let places = [node.part.start_block, pages[0].start_block.get(), pages[1].start_block.get(), table, 0, 5];
    let mut refused = 0;
    for (index, start_block) in [0, 1].into_iter().flat_map(|index| places.map(|at| (index, at))) {
        if pages[index].start_block.get() == start_block {
            continue;
        }
        let what = std::format!("page {index} is at block {start_block}");
        let mut hostile = image.clone();
        hostile.set_page(index, StoredPage { start_block: start_block.into(), ..pages[index] });
        let found = codes(&told(Teller::Check, &hostile));
        assert!(found.contains_key(&Code::BadCopy), "{what}: {found:?}");
        assert!(rescued(&hostile).1 == expected, "{what}");
        let is_refused = open(hostile.device()).is_err();
        assert_eq!(is_refused, found.contains_key(&Code::DisputedBlocks), "{what}: {found:?}");
        refused += u32::from(is_refused);
        let after = repaired(&hostile, is_refused);
        assert_eq!(told(Teller::Check, &after), [], "{what}");
        assert!(pairs(&open_as(&after.device(), OpenMode::ReadOnly)) == expected, "{what}");
        assert_is_usable(&after);
        assert_undone(&after, &hostile);
    }
    assert!(refused > 0);
}

/// No slot agrees with a node, so no repair writes. A rescue finds the nodes by their headers.
#[test]
fn without_a_copy_such_a_page_is_lost_and_no_repair_writes() {
    let image = of_several_pages().without_table_copy();
    let expected = pairs(&open_as(&image.device(), OpenMode::ReadOnly));
    let pages = [0, 1].map(|index| image.stored_page(index));
    for (index, other) in [(0, 1), (1, 0)] {
        let mut hostile = image.clone();
        let start_block = pages[other].start_block;
        hostile.set_page(index, StoredPage { start_block, ..pages[index] });
        let found = codes(&told(Teller::Check, &hostile));
        assert!(found.contains_key(&Code::BadNodeTable), "{found:?}");
        let device = hostile.device();
        assert!(Env::open_for_repair(device.clone(), options(), &mut |_| ()).is_err());
        assert!(device.bytes() == hostile.bytes);
        let (codes, left) = rescued(&hostile);
        assert!(codes.contains(&Code::NodesByHeader) && left == expected, "page {index}: {codes:?}");
    }
}
