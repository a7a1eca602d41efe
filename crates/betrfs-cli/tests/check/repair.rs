//! The options of `betrfs check` that write, their exit codes, and the documents.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use betree::{Batch, DictId, Env};
use betree_std::{FileDevice, StdPlatform};
use betrfs::{OpenMode, OpenOptions, Volume, problem_codes};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use serde_json::Value;
use tempfile::TempDir;

use super::{Sample, betrfs, claims};

const META: DictId = DictId(0);
const DATA: DictId = DictId(1);
/// The value of an attribute of a file that has no record.
const OWNERLESS: &[u8] = b"\0\0nobody\0\xffuser.name";

/// Changes a closed volume's pairs.
fn change(path: &Path, changes: impl FnOnce(&Env, &mut Batch)) {
    let device = Arc::new(FileDevice::open(path).unwrap());
    let env = Env::open(device, Volume::engine_options(8 << 20)).unwrap();
    let mut batch = Batch::new();
    changes(&env, &mut batch);
    env.commit(&batch).unwrap();
    env.close().unwrap();
}

/// Makes the root count more entries than it has.
fn miscount(env: &Env, batch: &mut Batch) {
    let mut root = env.get(META, b"\x05").unwrap().unwrap();
    root[88..96].copy_from_slice(&77u64.to_le_bytes());
    batch.put(META, b"\x05", &root);
}

/// A volume with a wrong count, and with data that belong to nobody.
fn damaged() -> (TempDir, std::path::PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("volume");
    assert!(betrfs(&["mkfs", "--size", "64M"], &path).status.success());
    change(&path, |env, batch| {
        miscount(env, batch);
        batch.put(DATA, OWNERLESS, b"data");
    });
    (temp, path)
}

/// The exit code and standard output.
fn run(path: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = betrfs(&[&["check"], arguments].concat(), path);
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn each_option_writes_what_it_may_and_ends_with_the_bits_of_fsck() {
    let (_temp, path) = damaged();
    let before = fs::read(&path).unwrap();
    let is_as_before = || fs::read(&path).unwrap() == before;
    for (arguments, code) in [(&[][..], 4), (&["-n"], 4), (&["-p"], 0), (&["--undo"], 8), (&["-n", "-y"], 16)]
    {
        let (found, told) = run(&path, arguments);
        assert_eq!(found, Some(code), "{arguments:?}: {told}");
        assert!(is_as_before(), "{arguments:?} wrote something");
    }
    assert!(run(&path, &["-p"]).1.contains("it was closed"));
    // What takes nothing away: the count.
    for safe in [&["-p", "-f"][..], &["-a", "-f"], &["--repair"]] {
        let (code, told) = run(&path, safe);
        assert_eq!(code, Some(5), "{safe:?}: {told}");
        assert!(told.contains("mends: /: ") && !told.contains("takes away"), "{safe:?}: {told}");
        let (code, left) = run(&path, &[]);
        assert!(
            left.contains("[ownerless-data]") && !left.contains("[wrong-entry-counts]"),
            "{safe:?}: {left}"
        );
        assert_eq!(code, Some(4));
        assert_eq!(run(&path, &["--undo"]).0, Some(0), "{safe:?}");
        assert!(run(&path, &[]).1.contains("[wrong-entry-counts]"), "{safe:?}");
    }
    // Everything; what it takes away is listed before what it mends.
    let (code, told) = run(&path, &["-y"]);
    assert_eq!(code, Some(1), "{told}");
    let places = [told.find("[ownerless-data]"), told.find("takes away: /nobody"), told.find("mends: /: ")];
    assert!(places[0] < places[1] && places[1] < places[2] && places[0].is_some(), "{told}");
    assert_eq!(run(&path, &[]), (Some(0), format!("{}: no problem found\n", path.display())));
    assert_eq!(run(&path, &["-y"]).0, Some(0));
}

#[test]
fn one_change_and_one_problem_are_told_in_the_singular() {
    let (_temp, path) = damaged();
    for (arguments, expected) in [
        (&["-p", "-f"][..], "is repaired in part (1 change, 1 problem left): "),
        (&["-y"], "was damaged and is repaired (1 change): "),
    ] {
        let output = betrfs(&[&["check"], arguments].concat(), &path);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(expected), "{told}");
    }
}

/// It is no damage: the check could not be made, and nothing is written beside it.
#[test]
fn what_a_later_version_made_is_left_and_a_check_of_it_ends_with_8() {
    let (_temp, path) = damaged();
    change(&path, |_, batch| batch.put(META, b"\x06later", b"x"));
    let before = fs::read(&path).unwrap();
    let beside_damage = [(&[][..], 4), (&["-n"], 4), (&["-p", "-f"], 8), (&["--repair"], 8), (&["-y"], 8)];
    for (arguments, code) in beside_damage {
        let output = betrfs(&[&["check"], arguments].concat(), &path);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
        assert!(told.contains("made by a later version of betrfs"), "{arguments:?}: {told}");
        assert!(fs::read(&path).unwrap() == before, "{arguments:?} wrote something");
    }
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("volume");
    assert!(betrfs(&["mkfs", "--size", "64M"], &path).status.success());
    change(&path, |_, batch| batch.put(META, b"\x06later", b"x"));
    for arguments in [&[][..], &["-y"], &["-p", "-f"]] {
        let (code, told) = run(&path, arguments);
        assert!(code == Some(8) && told.contains("[later-version]"), "{arguments:?}: {told}");
        let json = run(&path, &[&["--format", "json"], arguments].concat()).1;
        let document = super::document(json.as_bytes());
        let error = document["error"].as_str().unwrap_or_default();
        assert!(error.contains("made by a later version of betrfs"), "{document:#}");
        assert_eq!(document["clean"], false);
    }
}

/// A node of a later version is found by the engine, before any name is looked at.
#[test]
fn a_node_of_a_later_version_is_left_whatever_else_is_wrong() {
    let sample = Sample::new();
    change(&sample.path, miscount);
    let mut volume = fs::read(&sample.path).unwrap();
    claims::Places::of(&volume).make_a_leaf_later(&mut volume);
    fs::write(&sample.path, &volume).unwrap();
    for (arguments, code) in [(&[][..], 4), (&["-p", "-f"], 8), (&["-y"], 8)] {
        let output = betrfs(&[&["check"], arguments].concat(), &sample.path);
        let (found, told) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(found.contains("[later-kind]"), "{arguments:?}: {found}");
        assert!(found.contains("[wrong-entry-counts]"), "{arguments:?}: {found}");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
        assert!(told.contains("made by a later version of betrfs"), "{arguments:?}: {told}");
        assert!(fs::read(&sample.path).unwrap() == volume, "{arguments:?} wrote something");
    }
}

const QUESTION: &str = "write these changes?";

enum Answer {
    Text(&'static str),
    /// Instead of an answer, a signal.
    Signal(Signal),
}

/// Runs a check with standard input and error at a terminal, answers, and returns the exit code and what the
/// terminal showed.
fn at_a_terminal(path: &Path, option: &str, answer: Answer) -> (Option<i32>, String) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let terminal = ioctl_tiocgptpeer(&master, flags).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_betrfs"));
    command.args(["check", option]).arg(path).stdout(Stdio::null());
    command.stdin(terminal.try_clone().unwrap()).stderr(terminal);
    let mut check = command.spawn().unwrap();
    // The terminal ends with the last one that has it open.
    drop(command);
    let mut master = File::from(master);
    let mut signal = None;
    match answer {
        // It waits there until it is asked for.
        Answer::Text(text) => master.write_all(text.as_bytes()).unwrap(),
        Answer::Signal(number) => signal = Some(number),
    }
    let (mut shown, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let mut heard = [PollFd::new(&master, PollFlags::IN)];
        let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
        // It would wait for ever for an answer to another question. The terminal and the check end here.
        let is_heard = poll(&mut heard, Some(&limit)) == Ok(1);
        assert!(is_heard, "it is silent after: {}", String::from_utf8_lossy(&shown));
        let Ok(len @ 1..) = master.read(&mut piece) else { break };
        shown.extend_from_slice(&piece[..len]);
        if String::from_utf8_lossy(&shown).contains(QUESTION)
            && let Some(signal) = signal.take()
        {
            kill_process(Pid::from_child(&check), signal).unwrap();
        }
    }
    (check.wait().unwrap().code(), String::from_utf8_lossy(&shown).into_owned())
}

#[test]
fn on_a_terminal_only_repair_asks_and_only_a_yes_writes() {
    let (_temp, path) = damaged();
    let before = fs::read(&path).unwrap();
    for answer in ["n\n", "\n", "yess\n", "\u{4}"] {
        let (code, shown) = at_a_terminal(&path, "--repair", Answer::Text(answer));
        assert!(code == Some(4) && shown.contains(QUESTION), "{answer:?}: {shown}");
        assert!(fs::read(&path).unwrap() == before, "{answer:?}: something was written");
    }
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (code, shown) = at_a_terminal(&path, "--repair", Answer::Signal(signal));
        assert!(code == Some(32), "{signal:?}: {code:?}: {shown}");
        assert!(fs::read(&path).unwrap() == before, "{signal:?}: something was written");
    }
    // Without a question, what takes nothing away.
    let (code, shown) = at_a_terminal(&path, "-pf", Answer::Text("y\n"));
    assert!(code == Some(5) && !shown.contains(QUESTION), "{shown}");
    let (_, left) = run(&path, &[]);
    assert!(left.contains("[ownerless-data]") && !left.contains("[wrong-entry-counts]"), "{left}");
    let (code, shown) = at_a_terminal(&path, "--repair", Answer::Text("y\n"));
    assert!(code == Some(1) && shown.contains(QUESTION), "{shown}");
    assert_eq!(run(&path, &[]).0, Some(0));
}

/// A name may have line breaks, and what a terminal obeys.
#[test]
fn each_problem_is_one_line_whatever_is_in_names() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("volume");
    assert!(betrfs(&["mkfs", "--size", "64M"], &path).status.success());
    let name = "\0\0odd\nvolume: no problem found\x1b[2J";
    change(&path, |_, batch| batch.put(META, name.as_bytes(), b"\x01\x01 cut short"));
    for arguments in [&[][..], &["-p", "-f"], &["-y"]] {
        let (_, told) = run(&path, arguments);
        assert!(told.contains("odd\\nvolume: no problem found\\u{1b}[2J"), "{arguments:?}: {told}");
        let shown = path.display().to_string();
        assert!(told.lines().all(|line| line.starts_with(&shown)) && !told.contains('\x1b'), "{told}");
    }
}

#[test]
fn each_option_names_the_volume_that_it_cannot_read() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("empty");
    fs::write(&path, []).unwrap();
    for option in ["--undo", "-p", "-n", "-y", "--repair"] {
        let output = betrfs(&["check", option], &path);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(8) && told.contains(path.to_str().unwrap()), "{option}: {told}");
    }
}

/// The superblock of a volume that was closed tells its size.
#[test]
fn a_truncated_volume_is_told_as_such_by_each_option() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("volume");
    assert!(betrfs(&["mkfs", "--size", "64M"], &path).status.success());
    File::options().write(true).open(&path).unwrap().set_len(32 << 20).unwrap();
    let before = fs::read(&path).unwrap();
    let told = |option: &str| {
        let output = betrfs(&["check", option], &path);
        assert_eq!(output.status.code(), Some(4), "{option}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let plain = told("-n");
    assert!(plain.contains("it should have 67108864 bytes, and has 33554432 bytes"), "{plain}");
    for option in ["-p", "-y", "--repair"] {
        assert_eq!(told(option), plain, "{option}");
    }
    assert!(fs::read(&path).unwrap() == before, "something was written");
}

#[test]
fn the_document_of_a_repair_has_its_changes_and_what_is_left() {
    let (_temp, path) = damaged();
    let document = |arguments: &[&str]| -> Value {
        super::document(run(&path, &[&["--format", "json"], arguments].concat()).1.as_bytes())
    };
    assert_eq!(document(&[])["repair"], Value::Null);
    let told = document(&["-p", "-f"]);
    assert_eq!(told["repair"]["written"], true, "{told:#}");
    let changes = told["repair"]["changes"].as_array().unwrap();
    assert_eq!((changes.len(), &changes[0]["code"]), (1, &"wrong-entry-counts".into()), "{told:#}");
    assert_eq!(changes[0]["loses"], false);
    assert_eq!(told["repair"]["left"]["problems"][0]["code"], "ownerless-data", "{told:#}");
    // What is left would take something away.
    let told = document(&["-p", "-f"]);
    assert_eq!((&told["repair"]["written"], &told["clean"]), (&false.into(), &false.into()), "{told:#}");
    let told = document(&["-y"]);
    assert_eq!(told["repair"]["changes"][0]["loses"], true, "{told:#}");
    assert_eq!((&told["clean"], &told["schema_version"]), (&false.into(), &1.into()));
    assert_eq!(document(&[])["clean"], true);
    // Whatever is done, it is a document.
    let unread = document(&["-p"]);
    assert!(unread["notes"][0].as_str().unwrap().contains("was closed"), "{unread:#}");
    assert_eq!((&unread["clean"], &unread["error"]), (&true.into(), &Value::Null));
    assert_eq!(run(&path, &["--undo", "--format", "json"]).0, Some(16));
}

/// Rot is noted only if the caller agrees to losses; then it is known damage, listed with its file and no
/// problem.
#[test]
fn what_cannot_be_read_is_noted_as_known_damage() {
    let sample = Sample::new();
    change(&sample.path, miscount);
    sample.smash(sample.find(&super::contents(7)[100..132]), 16);
    let (code, told) = run(&sample.path, &["-p", "-f"]);
    assert!(code == Some(5) && !told.contains("known damage"), "{told}");
    let (code, left) = run(&sample.path, &[]);
    assert!(
        code == Some(4) && left.contains("/dir/file7") && !left.contains("[wrong-entry-counts]"),
        "{left}"
    );
    let (code, told) = run(&sample.path, &["-y"]);
    let takes = told.lines().find(|line| line.contains("takes away: ")).unwrap();
    assert!(code == Some(1) && takes.contains("/dir/file7") && takes.ends_with("[bad-piece]"), "{told}");
    let (code, known) = run(&sample.path, &[]);
    assert!(code == Some(0) && known.contains("no problem found"), "{known}");
    assert!(known.contains("/dir/file7 (bytes ") && known.contains("[known-damage]"), "{known}");
    let (report, _) = sample.check();
    assert_eq!(
        (&report["clean"], &report["known_damage"][0]["files"][0]),
        (&true.into(), &"/dir/file7".into())
    );
    assert_eq!(run(&sample.path, &["--undo"]).0, Some(0));
    assert!(run(&sample.path, &[]).1.contains("[bad-piece]"));
}

/// Reads all files of a sample, without a change to its volume.
fn assert_reads_whole(path: &Path) {
    let mut options = OpenOptions::new(Arc::new(StdPlatform::new()));
    options.mode = OpenMode::ReadOnly;
    let volume = Volume::open(Arc::new(FileDevice::open_for_reading(path).unwrap()), options).unwrap();
    for file in 0..20 {
        let node = volume.resolve(format!("/dir/file{file}").as_bytes()).unwrap().node;
        let (mut bytes, expected) = (Vec::new(), super::contents(file));
        volume.read(node, 0, expected.len(), &mut bytes).unwrap();
        assert!(bytes == expected, "/dir/file{file}");
    }
}

/// Without any copy of the superblock a repair makes one, if the caller agrees to losses and nobody else has
/// taken the device since.
#[test]
fn lost_superblocks_are_written_again_but_not_over_what_others_have_made() {
    let sample = Sample::new();
    sample.smash(0, 4 * super::BLOCK_BYTES);
    let lost = fs::read(&sample.path).unwrap();
    for arguments in [&[][..], &["-p", "-f"], &["--repair"]] {
        let output = betrfs(&[&["check"], arguments].concat(), &sample.path);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(8), "{arguments:?}: {told}");
        assert!(
            told.contains("`betrfs check -y`") && told.contains("`betrfs rescue`"),
            "{arguments:?}: {told}"
        );
    }
    assert!(Command::new("mkswap").arg(&sample.path).output().unwrap().status.success());
    let of_others = fs::read(&sample.path).unwrap();
    let output = betrfs(&["check", "-y"], &sample.path);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(8), "{told}");
    assert!(told.contains("is a swap") && told.contains("nothing was written"), "{told}");
    assert!(fs::read(&sample.path).unwrap() == of_others);
    fs::write(&sample.path, &lost).unwrap();
    let (code, told) = run(&sample.path, &["-y"]);
    let takes = told.lines().find(|line| line.contains("takes away: ")).unwrap_or_default();
    assert!(
        code == Some(1) && takes.contains("without label, UUID") && takes.ends_with("[lost-superblocks]"),
        "{told}"
    );
    for _ in 0..2 {
        let (code, told) = run(&sample.path, &[]);
        assert!(code == Some(0) && told.contains("no problem found"), "{told}");
        assert_reads_whole(&sample.path);
        // Taken back, it is as it was found, with superblocks.
        let undone = run(&sample.path, &["--undo"]).1;
        assert!(undone.is_empty() || undone.contains("but its superblocks are whole"), "{undone}");
    }
}

/// Of two pairs of copies that belong together one is enough: `-y` finds the newest state, says what it took,
/// and can be taken back.
#[test]
fn two_lost_superblocks_are_mended_as_four_are() {
    let sample = Sample::new();
    let whole = fs::read(&sample.path).unwrap();
    for at in [0, 2 * super::BLOCK_BYTES as u64] {
        fs::write(&sample.path, &whole).unwrap();
        sample.smash(at, 2 * super::BLOCK_BYTES);
        for (arguments, code) in [(&[][..], 4), (&["-p"], 4), (&["--repair"], 4)] {
            let output = betrfs(&[&["check"], arguments].concat(), &sample.path);
            let told = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
            assert!(told.contains("`betrfs check -y` mends"), "{arguments:?}: {told}");
        }
        let (code, told) = run(&sample.path, &["-y"]);
        let takes = told.lines().find(|line| line.contains("takes away: ")).unwrap_or_default();
        assert!(code == Some(1) && takes.ends_with("[lost-superblocks]"), "{told}");
        let is_said = ["no newer node table is found", "a newer checkpoint, whose node table is whole"];
        assert!(is_said.iter().any(|said| takes.contains(said)), "{told}");
        for arguments in [&[][..], &["--undo"], &[]] {
            assert_eq!(run(&sample.path, arguments).0, Some(0), "{arguments:?}");
            assert_reads_whole(&sample.path);
        }
    }
}

#[test]
fn the_document_on_checks_has_every_code_with_what_a_repair_does() {
    let text = include_str!("../../../../docs/check.md");
    let rows: BTreeSet<_> = text.lines().filter(|line| line.starts_with("| `")).collect();
    for (code, remedy) in problem_codes() {
        let (word, how) = match remedy {
            betree::Remedy::Mended(how) => ("mended", how),
            betree::Remedy::Dropped(how) => ("taken away", how),
            betree::Remedy::Left(how) => ("left", how),
        };
        let is_row = |row: &&&str| {
            row.starts_with(&format!("| `{code}` | ")) && row.ends_with(&format!(" | {word} | {how} |"))
        };
        assert!(rows.iter().any(|row| is_row(&row)), "{code} | {word} | {how}");
    }
}
