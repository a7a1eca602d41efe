//! Histories of a user without privilege, among files of others: permissions are checked as the kernel does.

use std::fs as system;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use super::{Worlds, run, seeds};

/// The user who has nothing.
const NOBODY: u32 = 65_534;
/// Tells the test, run anew as that user, where the worlds are and which history it is.
const FOLDER: &str = "BETRFS_TEST_FOLDER";
const SEED: &str = "BETRFS_TEST_SEED";
/// How it tells how many operations it tried, and how many succeeded.
const COUNTS: &str = "counts: ";

/// Directories and files of several owners, with modes that keep some users out.
const OWNED: [(&str, u32, u32); 18] = [
    (".", NOBODY, 0o755),
    ("a", NOBODY, 0o755),
    ("a/a", 0, 0o755),
    ("a/b", 0, 0o700),
    ("b", 0, 0o755),
    ("b/c", NOBODY, 0o500),
    ("b/c/d", NOBODY, 0o300),
    ("c", 1, 0o777),
    ("c/e", 1, 0o644),
    ("d", 0, 0o1777),
    ("d/a", 0, 0o666),
    ("d/b", NOBODY, 0o400),
    ("d/c", 1, 0o644),
    ("a/c", 0, 0o644),
    ("a/d", 0, 0o666),
    ("a/e", NOBODY, 0o200),
    ("b/a", NOBODY, 0o644),
    ("b/b", 1, 0o4777),
];

/// Makes what is owned by several in both worlds.
fn settle(worlds: &Worlds) {
    let base = worlds.base();
    base.create_dir("d").unwrap();
    system::create_dir(worlds.theirs.join("d")).unwrap();
    // From below: what keeps others out comes last.
    for (path, uid, mode) in OWNED.iter().rev() {
        let there = worlds.theirs.join(path);
        if !base.exists(path).unwrap() {
            base.write(path, path.as_bytes()).unwrap();
            system::write(&there, path.as_bytes()).unwrap();
        }
        base.chown(path, Some(*uid), Some(*uid)).unwrap();
        chown(&there, Some(*uid), Some(*uid)).unwrap();
        base.set_permissions(path, *mode).unwrap();
        system::set_permissions(&there, system::Permissions::from_mode(*mode)).unwrap();
    }
}

#[test]
fn histories_of_a_user_go_as_those_of_the_system() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        // As that user.
        let seed = std::env::var(SEED).unwrap().parse().unwrap();
        let (tried, succeeded) = run(&mut Worlds::open(Path::new(&folder), seed), seed);
        println!("\n{COUNTS}{tried} {succeeded}");
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root becomes another user: not tried");
        return;
    }
    let (mut tried, mut succeeded) = (0, 0);
    for seed in seeds(4) {
        let folder = tempfile::tempdir().unwrap();
        let worlds = Worlds::new(folder.path(), seed);
        settle(&worlds);
        let volume = worlds.volume.clone();
        worlds.ours.as_ref().unwrap().0.clone().close().unwrap();
        drop(worlds);
        system::set_permissions(folder.path(), system::Permissions::from_mode(0o755)).unwrap();
        chown(&volume, Some(NOBODY), Some(NOBODY)).unwrap();
        let mut user = Command::new(std::env::current_exe().unwrap());
        user.args([
            "--exact",
            "histories::users::histories_of_a_user_go_as_those_of_the_system",
            "--nocapture",
        ]);
        user.env(FOLDER, folder.path()).env(SEED, seed.to_string()).current_dir("/");
        let output = user.uid(NOBODY).gid(NOBODY).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        let counts = said.lines().find_map(|line| line.strip_prefix(COUNTS)?.split_once(' ')).unwrap();
        tried += counts.0.parse::<usize>().unwrap();
        succeeded += counts.1.parse::<usize>().unwrap();
        Worlds::open(folder.path(), seed).compare();
    }
    assert!(succeeded * 10 > tried, "{succeeded} of {tried} succeeded: the histories try little");
}
