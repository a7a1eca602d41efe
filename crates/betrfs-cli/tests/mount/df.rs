//! `betrfs df`: what takes the room on a volume, mounted and closed.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value;

use crate::administration::{json, noise, run, said};
use crate::mounted::{Mounted, SetOnDrop, betrfs, ok, refused};

const MIB: u64 = 1 << 20;

/// The document, whose parts are the whole volume.
fn df(volume: &Path) -> Value {
    let df = json("df", volume, &[]);
    let sum = |names: &[&str]| -> u64 { names.iter().map(|name| bytes(&df, name)).sum() };
    let used = ["data", "metadata", "held", "pending"];
    assert_eq!(sum(&used), bytes(&df, "used"), "{df}");
    assert_eq!(sum(&["superblock", "log", "used", "reserve", "available"]), bytes(&df, "volume"), "{df}");
    assert_eq!(sum(&["used", "reserve", "available"]), bytes(&df, "total"), "{df}");
    assert!(bytes(&df, "shared") <= bytes(&df, "data") + bytes(&df, "metadata"), "{df}");
    assert_eq!(df["unreadable_nodes"], 0);
    df
}

fn bytes(df: &Value, name: &str) -> u64 {
    df[format!("{name}_bytes")].as_u64().unwrap()
}

fn ratio(df: &Value) -> f64 {
    let part = |name: &str| df["compression"][name].as_f64().unwrap();
    part("raw_bytes") / part("stored_bytes")
}

#[test]
fn the_parts_of_a_volume_with_clones_and_a_snapshot_are_all_of_it() {
    let mounted = Mounted::of_size("256M");
    let volume = &mounted.volume;
    let empty = df(volume);
    assert!(bytes(&empty, "data") + bytes(&empty, "metadata") < MIB, "{empty}");
    assert_eq!((bytes(&empty, "volume"), bytes(&empty, "shared")), (256 * MIB, 0));

    mounted.mount();
    fs::create_dir(mounted.path("a")).unwrap();
    fs::write(mounted.path("a/noise"), noise(24 * MIB as usize)).unwrap();
    mounted.umount();
    let single = df(volume);
    assert!((24 * MIB..27 * MIB).contains(&bytes(&single, "data")), "{single}");
    assert!(ratio(&single) < 1.1 && bytes(&single, "shared") == 0, "{single}");

    mounted.mount();
    ok(&betrfs().arg("clone").args([mounted.path("a"), mounted.path("twin")]).output().unwrap());
    ok(&betrfs().args(["snapshot", "create"]).arg(mounted.path("a")).arg("one").output().unwrap());
    let text: Vec<u8> =
        (0..2_000_000u32).flat_map(|line| format!("line {}\n", line / 9).into_bytes()).collect();
    fs::write(mounted.path("text"), &text).unwrap();
    mounted.umount();
    let before = fs::read(volume).unwrap();
    let cloned = df(volume);
    assert!(fs::read(volume).unwrap() == before, "df has written to the closed volume");
    // The copies take no room; the text takes less than it is long.
    let grown = bytes(&cloned, "data") - bytes(&single, "data");
    assert!(grown < text.len() as u64 * 2 / 3, "{grown} for {}: {cloned}", text.len());
    assert!((20 * MIB..30 * MIB).contains(&bytes(&cloned, "shared")), "{cloned}");
    assert!(ratio(&cloned) > 1.2, "{cloned}");

    // The server tells the same, by the directory and by the volume's file.
    mounted.mount();
    let served = df(&mounted.dir);
    for part in ["data", "shared", "log", "volume", "superblock", "node_table"] {
        assert_eq!(bytes(&served, part), bytes(&cloned, part), "{part}: {served} and {cloned}");
    }
    assert_eq!(served["compression"], cloned["compression"]);
    let reads = || mounted.stats()["engine"]["device_reads"].as_u64().unwrap();
    let before = reads();
    assert_eq!(bytes(&df(volume), "data"), bytes(&cloned, "data"));
    // What it looks at is in memory by now.
    assert_eq!(reads(), before);
    let room = rustix::fs::statvfs(&mounted.dir).unwrap();
    assert!(bytes(&served, "available").abs_diff(room.f_bavail * room.f_frsize) < MIB, "{served}");
    assert!(bytes(&served, "reserve") > MIB, "{served}");
    let lines = said(&run("df", &mounted.dir, &[]));
    for word in
        ["volume", "superblocks", "  data", "  metadata", "  held", "  pending", "shared", "compression"]
    {
        assert!(lines.lines().any(|line| line.starts_with(word)), "`{word}` is not in {lines}");
    }
    // What was deleted a moment ago is no data any more.
    fs::remove_file(mounted.path("text")).unwrap();
    let freed = df(&mounted.dir);
    let raw = |told: &Value| told["compression"]["raw_bytes"].as_u64().unwrap();
    assert!(raw(&freed) + text.len() as u64 * 3 / 4 < raw(&served), "{freed} after {served}");
}

#[test]
fn while_files_are_written_the_parts_still_add_up() {
    let mounted = Mounted::of_size("256M");
    mounted.mount();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = SetOnDrop(&is_over);
        scope.spawn(|| {
            for round in 0u64.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let (new, old) = (mounted.path(format!("f{}", round % 8)), mounted.path("old"));
                fs::write(&new, noise(2 * MIB as usize + round as usize)).unwrap();
                fs::rename(&new, &old).unwrap();
                ok(&run("label", &mounted.dir, &[&round.to_string()]));
            }
        });
        let mut told: Vec<Value> = (0..8).map(|_| df(&mounted.dir)).collect();
        let differ = |told: &[Value]| told.windows(2).any(|two| two[0] != two[1]);
        // The machine may leave the other thread without a turn for long.
        while !differ(&told) && told.len() < 200 {
            told.push(df(&mounted.dir));
        }
        assert!(differ(&told), "{told:?}");
    });
}

#[test]
fn what_is_no_volume_is_refused_by_name() {
    let mounted = Mounted::of_size("64M");
    let plain = mounted.dir.join("plain");
    fs::write(&plain, [7; 1 << 16]).unwrap();
    refused(&run("df", &plain, &[]), &[plain.to_str().unwrap(), "not a BetrFS volume"]);
    refused(&run("df", &mounted.dir, &[]), &["no BetrFS volume is mounted on"]);
    refused(&run("df", &mounted.dir.join("none"), &[]), &["none", "No such file"]);
    fs::remove_file(plain).unwrap();
    // Damage of the volume itself ends it with a sentence.
    let mut image = fs::read(&mounted.volume).unwrap();
    image[..16384].fill(0);
    fs::write(&mounted.volume, image).unwrap();
    refused(&run("df", &mounted.volume, &[]), &[mounted.volume.to_str().unwrap()]);
}
