//! The output of `betrfs debug` for golden volumes, whole and damaged.
#![forbid(unsafe_code)]
// Also outside of `#[test]` functions, in what they share.
#![allow(clippy::unwrap_used)]

mod damage;
#[path = "../mount/schemas.rs"]
mod schemas;
mod whole;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const BLOCK_BYTES: usize = 4096;

/// A copy of a golden volume.
struct Golden {
    _temp: TempDir,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Golden {
    fn new(name: &str) -> Golden {
        let image = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../fixtures/format-6/{name}.zst"));
        let bytes = zstd::decode_all(fs::File::open(image).unwrap()).unwrap();
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("volume");
        fs::write(&path, &bytes).unwrap();
        Golden { _temp: temp, path, bytes }
    }

    /// Other contents of the volume from now on.
    fn set(&mut self, bytes: Vec<u8>) {
        fs::write(&self.path, &bytes).unwrap();
        self.bytes = bytes;
    }

    /// Changes a byte of the volume.
    fn flip(&mut self, at: u64) {
        let mut bytes = self.bytes.clone();
        bytes[usize::try_from(at).unwrap()] ^= 0x10;
        self.set(bytes);
    }

    /// Runs a subcommand: its name, and the arguments behind the volume. It changes nothing.
    fn run(&self, subcommand: &str, more: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_betrfs"));
        command.args(["debug", subcommand]).arg(&self.path).args(more).stdin(Stdio::null());
        let output = command.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code().is_some() && !told.contains("panicked"),
            "{subcommand} {more:?}: {told}"
        );
        assert!(fs::read(&self.path).unwrap() == self.bytes, "{subcommand} has changed the volume");
        output
    }

    /// The document of a subcommand, and its exit code.
    fn document(&self, subcommand: &str, more: &[&str]) -> (Value, i32) {
        let output = self.run(subcommand, &[more, &["--format", "json"]].concat());
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        schemas::valid(&format!("debug-{subcommand}"), &document);
        assert_eq!(document["volume"], self.path.to_str().unwrap());
        (document, output.status.code().unwrap())
    }

    /// The document about a whole volume.
    fn whole(&self, subcommand: &str, more: &[&str]) -> Value {
        let (document, code) = self.document(subcommand, more);
        assert_eq!((code, list(&document["problems"]).len()), (0, 0), "{document:#}");
        assert_eq!(document["error"], Value::Null);
        document
    }

    /// The lines for people about a whole volume.
    fn lines(&self, subcommand: &str, more: &[&str]) -> String {
        let output = self.run(subcommand, more);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// The item of a list with this value in a field.
fn with<'v>(items: &'v Value, field: &str, value: &str) -> &'v Value {
    list(items).iter().find(|item| item[field] == value).unwrap()
}
