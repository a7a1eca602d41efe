//! A mount whose disk fails, and one whose disk lies.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use rustix::io::Errno;
use serde_json::{Value, json};

use crate::bed::Bed;
use crate::judge::{Plan, judge};
use crate::mounted::{betrfs, ok};
use crate::recorded_disk::Manner;

fn write_durably(path: &Path) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&seeded::bytes(1, 0, 5000))?;
    file.sync_all()
}

fn errno<T>(result: io::Result<T>) -> Option<Errno> {
    result.err().and_then(|error| error.raw_os_error()).map(Errno::from_raw_os_error)
}

fn document(arguments: &[&OsStr]) -> Value {
    let output = betrfs().args(arguments).args(["--format", "json"]).output().unwrap();
    ok(&output);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn stats(bed: &Bed) -> Value {
    document(&["stats".as_ref(), bed.dir.as_ref()])
}

fn state(bed: &Bed) -> Value {
    stats(bed)["state"].clone()
}

/// The errors that the superblocks tell of.
fn errors_on_disk(bed: &Bed) -> Value {
    document(&["info".as_ref(), bed.disk.file().as_ref()])["errors"].clone()
}

/// After a write or a sync that failed, what is on the disk is not known.
#[test]
fn after_a_failed_write_or_sync_changes_are_refused_until_the_next_mount_and_nothing_durable_is_lost() {
    for manner in [Manner::FailsWrites, Manner::FailsSyncs] {
        let bed = Bed::new();
        write_durably(&bed.path("durable")).unwrap();
        bed.disk.set_manner(manner);
        assert_eq!(errno(write_durably(&bed.path("failed"))), Some(Errno::IO), "{manner:?}");
        assert_eq!(state(&bed)["is"], "read-only", "{manner:?}: {}", state(&bed));
        assert_eq!(errno(File::create(bed.path("later"))), Some(Errno::ROFS), "{manner:?}");
        assert_eq!(errno(fs::rename(bed.path("durable"), bed.path("moved"))), Some(Errno::ROFS));
        assert!(fs::read(bed.path("durable")).unwrap() == seeded::bytes(1, 0, 5000), "reading goes on");
        // A disk that works again is not believed before the volume is opened anew.
        bed.disk.set_manner(Manner::Honest);
        assert_eq!(errno(write_durably(&bed.path("later"))), Some(Errno::ROFS), "{manner:?}");
        let errors = stats(&bed)["errors"].clone();
        let (kind, other) = if manner == Manner::FailsWrites { ("write", "sync") } else { ("sync", "write") };
        assert_eq!((&errors[kind]["count"], &errors[other]["count"]), (&1.into(), &0.into()), "{errors}");
        assert_eq!(errors["read_only"], json!({ "since": state(&bed)["since"], "why": state(&bed)["why"] }));
        // It says that the volume was not closed cleanly. What has failed outlives it all the same.
        let _ = betrfs().arg("umount").arg(&bed.dir).output().unwrap();
        assert_eq!(errors_on_disk(&bed), errors, "{manner:?}");
        bed.mount();
        assert_eq!((&state(&bed)["is"], &stats(&bed)["errors"]), (&"writable".into(), &errors));
        assert!(fs::read(bed.path("durable")).unwrap() == seeded::bytes(1, 0, 5000), "{manner:?}");
        write_durably(&bed.path("again")).unwrap();
        ok(&betrfs().arg("umount").arg(&bed.dir).output().unwrap());
        ok(&betrfs().arg("check").arg(bed.disk.file()).output().unwrap());
    }
}

#[test]
fn a_read_that_fails_is_an_error_of_its_caller_alone() {
    let bed = Bed::new();
    let contents = seeded::bytes(1, 0, 300_000);
    fs::write(bed.path("f"), &contents).unwrap();
    ok(&betrfs().arg("umount").arg(&bed.dir).output().unwrap());
    bed.mount();
    bed.disk.set_manner(Manner::FailsReads);
    assert_eq!(errno(fs::read(bed.path("f"))), Some(Errno::IO));
    assert_eq!(state(&bed)["is"], "writable", "{}", state(&bed));
    write_durably(&bed.path("other")).unwrap();
    bed.disk.set_manner(Manner::Honest);
    assert!(fs::read(bed.path("f")).unwrap() == contents);
    let errors = stats(&bed)["errors"].clone();
    assert!(errors["read"]["count"].as_u64().unwrap() > 0, "{errors}");
    assert_eq!(errors["read_only"], Value::Null);
    ok(&betrfs().arg("umount").arg(&bed.dir).output().unwrap());
    assert_eq!(errors_on_disk(&bed), errors);
    ok(&betrfs().arg("check").arg(bed.disk.file()).output().unwrap());
}

/// Nothing can be promised of such a disk. The test shows that the judge of all other tests here notices
/// what is lost.
#[test]
fn a_disk_that_answers_syncs_and_does_nothing_loses_what_was_acknowledged() {
    let mut bed = Bed::new();
    bed.syncs(|dir| write_durably(&dir.join("kept")).unwrap());
    bed.disk.set_manner(Manner::LiesAboutSyncs);
    for file in 0..5 {
        bed.syncs(|dir| write_durably(&dir.join(format!("f{file}"))).unwrap());
    }
    let (log, states) = bed.end();
    let told = judge(&log, &states, Plan { every: 1, fates: 6 }).unwrap_err();
    // Changes that are gone, or a log with a gap.
    assert!(told.contains("none of the states") || told.contains("is not there"), "{told}");
}
