//! Forged volumes: no name leads out of the directory that is copied to.

use std::fs;
use std::sync::Arc;

use betree::{Batch, DictId, Env};
use betree_std::FileDevice;
use betrfs::{FileType, InodeId, Volume};
use serde_json::json;

use super::{Sample, new};

pub const META: DictId = DictId(0);

/// The key of a name in a directory.
pub fn entry(dir: &[&[u8]], name: &[u8]) -> Vec<u8> {
    let mut key: Vec<u8> = dir.iter().flat_map(|name| [&[0], *name].concat()).collect();
    key.extend_from_slice(&[0, 0]);
    key.extend_from_slice(name);
    key
}

#[test]
fn no_name_leads_out_of_the_copy() {
    let sample = Sample::new("64M");
    let outside = sample.temp.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let volume = sample.open();
    volume.create_with(InodeId::ROOT, b"file", &new(FileType::Regular, 0o600), b"text").unwrap();
    let target = outside.to_str().unwrap();
    volume.symlink(InodeId::ROOT, b"link", target.as_bytes(), 0, 0).unwrap();
    volume.close().unwrap();
    drop(volume);

    let device = Arc::new(FileDevice::open(&sample.path).unwrap());
    let env = Env::open(device, Volume::engine_options(8 << 20)).unwrap();
    let record = env.get(META, &entry(&[], b"file")).unwrap().unwrap();
    let mut batch = Batch::new();
    let forged: [(&[&[u8]], &[u8]); 7] = [
        (&[b"link"], b"through"),
        (&[], b".."),
        (&[b".."], b"above"),
        (&[], b"a/b"),
        (&[b"file"], b"below a file"),
        (&[b"lost dir"], b"found"),
        (&[b"lost dir"], b"\xff"),
    ];
    // Without data, for a file of four bytes: so they are listed for that too.
    for (dir, name) in forged {
        batch.put(META, &entry(dir, name), &record);
    }
    env.commit(&batch).unwrap();
    env.close().unwrap();
    drop(env);

    let (code, missing, said, document) = sample.rescue_with_document();
    assert_eq!(code, Some(4), "{said}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "a file was made outside");
    assert!(!sample.temp.path().join("above").exists());
    let has = |path: &str, part: &str| {
        let found = missing.iter().any(|missing| missing.path == path && missing.part == part);
        assert!(found, "{path}: {part}: {missing:?}");
    };
    for path in ["/link/through", "/..", "/../above", "/a/b", "/file/below a file"] {
        has(path, "all");
    }
    // Its directory has no record, and is made.
    has("/lost dir", "record");
    has("/lost dir/found", "bytes 0-3");
    assert_eq!(fs::read(sample.copy().join("lost dir/found")).unwrap(), [0; 4]);
    assert_eq!(fs::read(sample.copy().join("file")).unwrap(), b"text");
    has("/lost dir/\\xff", "bytes 0-3");
    assert_eq!(missing.len(), 8, "{missing:?}");
    let of_bytes = document["missing"].as_array().unwrap().iter().find(|part| part["path_hex"].is_string());
    let mut of_bytes = of_bytes.unwrap().clone();
    assert!(of_bytes["reason"].take().is_string());
    let expected = json!({
        "path": "/lost dir/\u{fffd}", "path_hex": "2f6c6f7374206469722fff", "part": "bytes",
        "bytes": { "from": 0, "to": 4 }, "reason": null,
    });
    assert_eq!(of_bytes, expected);
}
