//! `betrfs map`: the bytes of a file are where it says.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::administration::{json, noise, run, said};
use crate::mounted::{Mounted, betrfs, ended_with, ok, refused};
use crate::program::program_beside;

const BLOCK: usize = 4096;
const MIB: usize = 1 << 20;

fn number(value: &Value) -> usize {
    value.as_u64().unwrap() as usize
}

/// The parts of a file, which follow one another without a gap up to its end.
fn parts(file: &Path) -> Vec<Value> {
    let map = json("map", file, &[]);
    let parts = map["parts"].as_array().unwrap().clone();
    let mut end = 0;
    for part in &parts {
        assert_eq!(number(&part["offset_bytes"]), end, "{map}");
        end += number(&part["length_bytes"]);
    }
    assert_eq!((end, end), (number(&map["size_bytes"]), fs::metadata(file).unwrap().len() as usize));
    parts
}

fn are_shared(parts: &[Value]) -> Vec<bool> {
    parts.iter().filter_map(|part| part["extent"]["is_shared"].as_bool()).collect()
}

/// Asserts that each block of a part is in one of its runs on the volume, none of which is compressed.
fn stored_there(volume: &Path, part: &Value, data: &[u8]) {
    let volume = File::open(volume).unwrap();
    let mut stored = Vec::new();
    for run in part["extent"]["runs"].as_array().unwrap() {
        assert_eq!(run["codec"], "none", "{part}");
        assert_eq!(run["stored_bytes"], run["raw_bytes"], "{part}");
        let before = stored.len();
        for range in run["device"].as_array().unwrap() {
            let mut bytes = vec![0; number(&range["length_bytes"])];
            volume.read_exact_at(&mut bytes, range["offset_bytes"].as_u64().unwrap()).unwrap();
            stored.extend(bytes);
        }
        assert_eq!(stored.len() - before, number(&run["stored_bytes"]), "{part}");
    }
    let from = number(&part["offset_bytes"]);
    let runs = part["extent"]["runs"].as_array().unwrap().len();
    for block in data[from..from + number(&part["length_bytes"])].chunks(BLOCK) {
        // Of a block that was written in two parts, each run may have one.
        assert!((1..=runs).contains(&pieces(&stored, block)), "a block is not where its part is: {part}");
    }
}

/// In how many pieces a block stands in other bytes, each as long as can be; 0 if it does not.
fn pieces(stored: &[u8], block: &[u8]) -> usize {
    let mut rest = block;
    let mut count = 0;
    while !rest.is_empty() {
        let begin = &rest[..rest.len().min(8)];
        let places = stored.windows(begin.len()).enumerate().filter(|(_, window)| *window == begin);
        let same =
            |(at, _): (usize, &[u8])| stored[at..].iter().zip(rest).take_while(|(a, b)| a == b).count();
        let Some(longest) = places.map(same).max() else { return 0 };
        rest = &rest[longest..];
        count += 1;
    }
    count
}

#[test]
fn the_bytes_of_a_file_are_where_the_map_says_also_those_of_a_copy() {
    let mounted = Mounted::of_size("256M");
    mounted.mount();
    let data = noise(8 * MIB + 1000);
    fs::create_dir(mounted.path("dir")).unwrap();
    let file = mounted.path("dir/file");
    fs::write(&file, &data).unwrap();
    assert!(parts(&file).iter().any(|part| part["place"] == "memory"), "nothing is in memory");
    mounted.remount();
    let written = parts(&file);
    assert!(written.iter().all(|part| part["place"] == "device"), "{written:?}");
    assert!(written.len() > 8 && !are_shared(&written).contains(&true), "{written:?}");
    written.iter().for_each(|part| stored_there(&mounted.volume, part, &data));

    ok(&betrfs().arg("clone").args([mounted.path("dir"), mounted.path("copy")]).output().unwrap());
    mounted.remount();
    for name in ["dir/file", "copy/file"] {
        let shared = parts(&mounted.path(name));
        let are_shared = are_shared(&shared);
        let count = are_shared.iter().filter(|is_shared| **is_shared).count();
        assert!(count * 10 > are_shared.len() * 9, "{name}: {count} of {}", are_shared.len());
        shared.iter().for_each(|part| stored_there(&mounted.volume, part, &data));
    }
    // A new block lies elsewhere, and in memory at first; its neighbours stay.
    let changed = [7; BLOCK];
    File::options().write(true).open(&file).unwrap().write_all_at(&changed, 5 * BLOCK as u64).unwrap();
    let covers = |part: &&Value| {
        let from = number(&part["offset_bytes"]);
        (from..from + number(&part["length_bytes"])).contains(&(5 * BLOCK))
    };
    let own = parts(&file);
    let block = own.iter().find(covers).unwrap();
    assert_eq!((&block["place"], number(&block["length_bytes"])), (&"memory".into(), BLOCK));
    let copied = parts(&mounted.path("copy/file"));
    stored_there(&mounted.volume, copied.iter().find(covers).unwrap(), &data);

    let lines = said(&run("map", &file, &["--offset", "1M", "--length", "64K"]));
    assert!(lines.lines().nth(1).unwrap().trim_start().starts_with("1048576"), "{lines}");
    assert!(lines.contains(" leaf shared\n") && lines.contains(" none "), "{lines}");
    let part = json("map", &file, &["--offset", "1M", "--length", "64K"]);
    let part = part["parts"].as_array().unwrap();
    let len: usize = part.iter().map(|part| number(&part["length_bytes"])).sum();
    assert_eq!((number(&part[0]["offset_bytes"]), len), (MIB, 64 << 10));
    let reads = || mounted.stats()["engine"]["device_read_bytes"].as_u64().unwrap();
    let before = reads();
    parts(&mounted.path("copy/file"));
    assert!(reads() - before < MIB as u64, "{} bytes were read for a map", reads() - before);
}

#[test]
fn holes_are_told_and_what_is_no_file_is_refused() {
    let mounted = Mounted::of_size("64M");
    mounted.mount();
    let file = mounted.path("sparse");
    let open = File::create(&file).unwrap();
    open.write_all_at(&noise(BLOCK), 0).unwrap();
    open.write_all_at(&noise(BLOCK), 4 << 20).unwrap();
    open.set_len(1 << 40).unwrap();
    drop(open);
    mounted.remount();
    let told: Vec<(Value, usize)> =
        parts(&file).iter().map(|part| (part["place"].clone(), number(&part["length_bytes"]))).collect();
    let hole = |length: usize| (Value::from("hole"), length);
    let data = (Value::from("device"), BLOCK);
    let expected = [data.clone(), hole((4 << 20) - BLOCK), data, hole((1 << 40) - (4 << 20) - BLOCK)];
    assert_eq!(told, expected);
    File::create(mounted.path("empty")).unwrap();
    assert!(parts(&mounted.path("empty")).is_empty());

    fs::set_permissions(mounted.volume.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let as_nobody =
        Command::new(program_beside(&mounted)).arg("map").arg(&file).uid(65_534).output().unwrap();
    refused(&as_nobody, &["only root and the user who mounted the volume may"]);
    refused(&run("map", &mounted.dir, &[]), &["it is no file"]);
    refused(&run("map", &mounted.path("none"), &[]), &["none", "No such file"]);
    refused(&run("map", Path::new("/proc/version"), &[]), &["no BetrFS mount"]);
    ended_with(&run("map", &file, &["--length", "0"]), 2, &["invalid value"]);
    ended_with(&run("map", &file, &["--offset", "-1"]), 2, &["value"]);
}
