//! The errors that are counted on a volume: in `stats`, `info`, `list`, `doctor`, `debug` and the metrics.

use std::fs;
use std::os::unix::fs::FileExt;

use serde_json::{Value, json};

use crate::administration::{MIB, json as document, noise, run, said};
use crate::mounted::{Mounted, betrfs, ok, refused};
use crate::schemas::valid;

/// A counted kind without an error.
fn none() -> Value {
    json!({ "count": 0, "first": null, "last": null })
}

/// Damages the stored bytes of a file of noise on a volume that is not mounted.
fn damage(mounted: &Mounted) {
    let all = fs::read(&mounted.volume).unwrap();
    let wanted = &noise(MIB)[500_000..500_040];
    let at = all.windows(wanted.len()).position(|bytes| bytes == wanted).unwrap();
    let volume = fs::OpenOptions::new().write(true).open(&mounted.volume).unwrap();
    volume.write_all_at(&[!wanted[0]], at as u64).unwrap();
    volume.sync_all().unwrap();
}

#[test]
fn errors_are_counted_kept_shown_everywhere_and_reset() {
    let mounted = Mounted::of_size("256M");
    mounted.mount();
    fs::write(mounted.path("file"), noise(MIB)).unwrap();
    let healthy = json!({
        "read": none(), "write": none(), "sync": none(), "checksum": none(), "read_only": null,
    });
    assert_eq!(mounted.stats()["errors"], healthy);
    assert!(said(&run("stats", &mounted.dir, &[])).contains("\nerrors       none\n"));
    mounted.umount();
    // A volume without errors has no tag for them.
    let superblock = |mounted: &Mounted| -> Value {
        let output =
            betrfs().args(["debug", "super"]).arg(&mounted.volume).args(["--format", "json"]).output();
        serde_json::from_str(&said(&output.unwrap())).unwrap()
    };
    let tags = |document: &Value| -> Vec<u64> {
        let tags = document["superblock"]["tags"].as_array().unwrap();
        tags.iter().map(|tag| tag["tag"].as_u64().unwrap()).collect()
    };
    assert!(!tags(&superblock(&mounted)).contains(&5), "{}", superblock(&mounted));
    assert_eq!(superblock(&mounted)["superblock"]["errors"], healthy);

    damage(&mounted);
    let began = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    mounted.mount();
    let failed = fs::read(mounted.path("file")).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    let stats = mounted.stats();
    valid("stats", &stats);
    let errors = &stats["errors"];
    let count = errors["checksum"]["count"].as_u64().unwrap();
    let [first, last] = ["first", "last"].map(|time| errors["checksum"][time].as_u64().unwrap());
    assert!(count >= 1 && first >= began && first < began + 100, "{errors}");
    assert_eq!((&errors["read"], &errors["read_only"]), (&none(), &Value::Null));
    let text = said(&run("stats", &mounted.dir, &[]));
    let line = text.lines().find(|line| line.starts_with("  checksum")).unwrap();
    assert_eq!(line.split_whitespace().nth(1), Some(count.to_string().as_str()), "{text}");
    let page = said(&run("stats", &mounted.dir, &["--format", "prometheus"]));
    let labels = format!("mount=\"{}\",kind=\"checksum\"", mounted.dir.display());
    assert!(page.contains(&format!("betrfs_errors_total{{{labels}}} {count}\n")), "{page}");
    assert!(page.contains(&format!("betrfs_error_timestamp_seconds{{{labels}}} {last}\n")), "{page}");
    let told = format!("{count} checksum, the last at 20");
    for command in ["info", "doctor"] {
        let path = if command == "info" { vec![mounted.path("file")] } else { Vec::new() };
        let text = said(&betrfs().arg(command).args(path).output().unwrap());
        assert!(text.lines().any(|line| line.starts_with("errors ") && line.contains(&told)), "{text}");
    }
    assert_eq!(document("info", &mounted.path("file"), &[])["errors"], *errors);
    // By the volume, of which the mount is found.
    let by_volume = document("info", &mounted.volume, &[]);
    assert_eq!((&by_volume["errors"], &by_volume["dir"]), (errors, &mounted.dir.to_str().unwrap().into()));
    let list: Value =
        serde_json::from_str(&said(&betrfs().args(["list", "--format", "json"]).output().unwrap())).unwrap();
    let own = list["mounts"].as_array().unwrap().iter().find(|mount| mount["dir"] == by_volume["dir"]);
    assert_eq!(own.unwrap()["errors"], *errors);

    // They outlive the mount.
    mounted.umount();
    let closed = document("info", &mounted.volume, &[]);
    assert_eq!(
        (&closed["errors"], &closed["state"], &closed["dir"]),
        (errors, &"closed".into(), &Value::Null)
    );
    assert!(said(&run("info", &mounted.volume, &[])).contains(&told));
    assert_eq!(superblock(&mounted)["superblock"]["errors"], *errors);
    let text = said(&betrfs().args(["debug", "super"]).arg(&mounted.volume).output().unwrap());
    assert!(text.lines().any(|line| line.starts_with("errors ") && line.contains(&told)), "{text}");
    mounted.mount();
    assert_eq!(mounted.stats()["errors"], *errors);

    // Printed once more, and then 0, durably: a copy of this moment has none.
    let last = said(&run("stats", &mounted.dir, &["--reset-errors"]));
    assert!(last.contains(line), "{last}");
    assert_eq!(mounted.stats()["errors"], healthy);
    let copy = mounted.volume.with_file_name("copy");
    fs::copy(&mounted.volume, &copy).unwrap();
    let unclosed = document("info", &copy, &[]);
    assert_eq!((&unclosed["errors"], &unclosed["state"]), (&healthy, &"not-closed".into()));
    mounted.umount();
    assert!(said(&run("info", &mounted.volume, &[])).contains("\nerrors     none\n"));
    assert!(!tags(&superblock(&mounted)).contains(&5));
}

#[test]
fn what_cannot_be_reset_or_told_of_is_refused() {
    let mounted = Mounted::of_size("64M");
    refused(&run("stats", &mounted.dir, &["--reset-errors"]), &["no BetrFS volume is mounted on"]);
    let other = mounted.dir.join("text");
    fs::write(&other, b"no volume").unwrap();
    refused(&run("info", &other, &[]), &["text", "not a BetrFS volume"]);
    ok(&mounted.try_mount(&["-o", "ro"]));
    refused(&run("stats", &mounted.dir, &["--reset-errors"]), &["read-only"]);
}

/// A command opens the volume for a moment, and meets the damage.
#[test]
fn errors_that_a_command_meets_on_a_closed_volume_have_a_time() {
    let mounted = Mounted::of_size("64M");
    let volume = fs::OpenOptions::new().write(true).open(&mounted.volume).unwrap();
    volume.write_all_at(&[0; 4096], 0).unwrap();
    drop(volume);
    let began = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    ok(&run("label", &mounted.volume, &["new"]));
    let errors = document("info", &mounted.volume, &[])["errors"].clone();
    assert_eq!(errors["checksum"]["count"], 1, "{errors}");
    let at = errors["checksum"]["last"].as_u64().unwrap();
    assert!(at >= began && at < began + 100, "{errors}");
}
