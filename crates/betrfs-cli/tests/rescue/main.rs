//! `betrfs rescue`: copies of whole, damaged and forged volumes, and the list of what is missing.
#![forbid(unsafe_code)]
// Also in helpers outside of `#[test]` functions.
#![allow(clippy::unwrap_used)]

#[expect(dead_code, reason = "the tests of mounts use the rest")]
#[path = "../mount/mounted.rs"]
mod mounted;
#[path = "../mount/schemas.rs"]
mod schemas;

mod above_damage;
mod access_lists;
mod damaged;
mod forged;
mod interrupted;
mod list_file;
mod log_loss;
mod names_that_change;
mod own_names;
mod repaired;
mod whole;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use betree_sim::Rng;
use betree_std::{FileDevice, StdPlatform};
use betrfs::{FileType, NewNode, Volume};
use serde_json::{Value, json};
use tempfile::TempDir;

const BLOCK_BYTES: usize = 4096;

/// A volume in a folder, and where it is copied to.
struct Sample {
    temp: TempDir,
    path: PathBuf,
}

/// A line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Missing {
    path: String,
    part: String,
    why: String,
}

fn betrfs(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_betrfs")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn new(file_type: FileType, perm: u16) -> NewNode {
    NewNode { file_type, perm, uid: 1234, gid: 4321, rdev: 0, umask: 0 }
}

/// Bytes that do not compress.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

impl Sample {
    fn new(size: &str) -> Sample {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("volume");
        assert!(betrfs(&["mkfs", "--size", size, path.to_str().unwrap()]).status.success());
        Sample { temp, path }
    }

    fn open(&self) -> Volume {
        let options = betrfs::OpenOptions::new(Arc::new(StdPlatform::new()));
        Volume::open(Arc::new(FileDevice::open(&self.path).unwrap()), options).unwrap()
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(&self.path).unwrap()
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(&self.path).unwrap();
        file.write_all_at(bytes, at as u64).unwrap();
    }

    /// The path of a copy, which a rescue makes.
    fn copy(&self) -> PathBuf {
        self.temp.path().join("copy")
    }

    /// Copies the volume out: the exit code, what is missing, and what was said. The volume is not changed.
    fn rescue(&self) -> (Option<i32>, Vec<Missing>, String) {
        let (code, missing, said, _) = self.rescue_with_document();
        (code, missing, said)
    }

    /// The same, and the document for programs, which has what the list has.
    fn rescue_with_document(&self) -> (Option<i32>, Vec<Missing>, String, Value) {
        let before = self.bytes();
        drop(fs::remove_dir_all(self.copy()));
        let list = self.temp.path().join("list");
        drop(fs::remove_file(&list));
        let paths = [&self.path, &self.copy(), &list].map(|path| path.to_str().unwrap().to_owned());
        let output = betrfs(&["rescue", &paths[0], &paths[1], "--list", &paths[2], "--format", "json"]);
        assert!(self.bytes() == before, "the volume was changed");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.contains("panicked"), "{said}");
        let line = |line: &str| {
            let [path, part, why] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
            Missing { path: String::from(path), part: String::from(part), why: String::from(why) }
        };
        let missing: Vec<Missing> = fs::read_to_string(&list).unwrap().lines().map(line).collect();
        assert!(missing.iter().all(|missing| !missing.why.is_empty()), "{missing:?}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        schemas::valid("rescue", &document);
        assert_eq!((&document["volume"], &document["directory"]), (&json!(paths[0]), &json!(paths[1])));
        let parts = document["missing"].as_array().unwrap();
        assert_eq!(parts.len(), missing.len(), "{parts:?}: {missing:?}");
        for (part, line) in parts.iter().zip(&missing) {
            let is_structure = part["part"] == "structure" && line.path == "-" && part["path"].is_null();
            let is_path = part["path"] == line.path || part.get("path_hex").is_some();
            assert!(is_structure || is_path, "{part}: {line:?}");
        }
        let is_missing = output.status.code() == Some(4);
        assert!(document["error"].is_null() && is_missing != parts.is_empty(), "{document}");
        (output.status.code(), missing, said, document)
    }
}
