//! What no program in C can bring about.

use std::ffi::CStr;

use crate::status::{Failure, Status, betree_last_error, call};

fn last_error() -> String {
    // SAFETY: it is a text that ends with a zero, and no call of this thread fails meanwhile.
    unsafe { CStr::from_ptr(betree_last_error()) }.to_string_lossy().into_owned()
}

#[test]
fn a_panic_becomes_a_status_and_its_words_the_last_error() {
    assert_eq!(call(|| panic!("so it {}", "goes")), Status::BetreePanic);
    assert_eq!(last_error(), "so it goes");
    assert_eq!(call(|| panic!("plainly")), Status::BetreePanic);
    assert_eq!(last_error(), "plainly");
    assert_eq!(call(|| std::panic::panic_any(7)), Status::BetreePanic);
    assert_eq!(last_error(), "a panic");
}

#[test]
fn the_last_error_is_a_thread_s_own_and_stays_until_the_next() {
    assert_eq!(last_error(), "");
    let refused = || Err(Failure::new(Status::BetreeBadName, "a\0b"));
    assert_eq!(call(refused), Status::BetreeBadName);
    assert_eq!(call(|| Ok(Status::BetreeNotFound)), Status::BetreeNotFound);
    assert_eq!(last_error(), "a\\0b");
    assert_eq!(std::thread::spawn(last_error).join().unwrap(), "");
}
