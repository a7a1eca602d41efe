//! Programs in C, compiled with the header and linked with each of the libraries, do what they should.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// What a program gets beside its code: the folder of the libraries.
struct Built {
    libraries: PathBuf,
    folder: PathBuf,
}

/// Runs a command, which must succeed; its output.
fn run(command: &mut Command) -> String {
    let ended = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let output = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success(), "{command:?}: {output}{}", String::from_utf8_lossy(&ended.stderr));
    output
}

impl Built {
    /// The libraries, which cargo builds for no test by itself: nothing in Rust can be linked with them. They
    /// are built as a part of the workspace's tests, with the features of these where `BETRFS_TEST_FEATURES`
    /// says which: with other features all below the crate would be built again.
    fn new(test: &str) -> Built {
        let own = std::env::current_exe().unwrap();
        // TARGET/PROFILE/deps/c-HASH
        let libraries = own.ancestors().nth(2).unwrap().to_owned();
        let profile = match libraries.file_name().unwrap().to_str().unwrap() {
            "debug" => "dev",
            profile => profile,
        };
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.args(["build", "--locked", "-q", "--workspace", "--lib", "--test", "c", "--profile", profile]);
        cargo.arg("--target-dir").arg(libraries.parent().unwrap());
        if let Some(features) = std::env::var_os("BETRFS_TEST_FEATURES") {
            cargo.arg("--features").arg(features);
        }
        run(cargo.current_dir(env!("CARGO_MANIFEST_DIR")));
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Built { libraries, folder }
    }

    /// Compiles a program with what links it with the library.
    fn compile(&self, source: &str, link: &[&str]) -> PathBuf {
        let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let program = self.folder.join("program");
        let mut cc = Command::new("cc");
        cc.args(["-std=c99", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-I"]);
        cc.arg(crate_folder.join("include")).arg(crate_folder.join(source)).arg("-o").arg(&program);
        run(cc.arg("-L").arg(&self.libraries).args(link));
        program
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", &self.libraries);
        command
    }

    fn run(&self, program: &Path, args: &[&Path]) -> String {
        run(self.command(program).args(args))
    }

    /// Runs a program under valgrind, which fails where memory is used wrongly, or is left that nothing leads
    /// to any more.
    fn run_watched(&self, program: &Path, args: &[&Path]) -> String {
        let mut valgrind = self.command(Path::new("valgrind"));
        valgrind.args(["-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
        run(valgrind.arg(program).args(args))
    }
}

#[test]
fn the_example_counts_words_by_the_shared_library() {
    let built = Built::new("words");
    let program = built.compile("examples/words.c", &["-lbetree"]);
    let (store, text) = (built.folder.join("store"), built.folder.join("text"));
    std::fs::write(&text, "The tree, the log; the Tree.").unwrap();
    let names = "dictionary by number\ndictionary words\ndictionary words before\n";
    let first = built.run(&program, &[&store, &text]);
    assert_eq!(first, format!("3 the\n2 tree\n1 log\n{names}"));
    let second = built.run(&program, &[&store, &text]);
    assert_eq!(second, format!("6 the\n4 tree\n2 log\n{names}"));
}

#[test]
fn the_example_moves_money_in_transactions() {
    let built = Built::new("accounts");
    let program = built.compile("examples/accounts.c", &["-lbetree"]);
    let store = built.folder.join("store");
    let moves = |from: &str, to: &str, amount: &str| {
        let ended = built.command(&program).arg(&store).args([from, to, amount]).output().unwrap();
        (ended.status.code(), String::from_utf8(ended.stdout).unwrap())
    };
    assert_eq!(moves("bank", "ada", "100"), (Some(0), "ada 100\nbank -100\nsum 0\n".into()));
    assert_eq!(moves("ada", "alan", "30"), (Some(0), "ada 70\nalan 30\nbank -100\nsum 0\n".into()));
    assert_eq!(moves("alan", "ada", "31"), (Some(1), "ada 70\nalan 30\nbank -100\nsum 0\n".into()));
    assert!(built.folder.join("store.backup").exists());
}

/// What the Rust library needs of the system.
const STATIC: &[&str] = &["-l:libbetree.a", "-lm", "-lpthread", "-ldl"];

#[test]
fn what_the_header_promises_holds_by_the_static_library() {
    let built = Built::new("contract");
    let program = built.compile("tests/contract.c", STATIC);
    built.run_watched(&program, &[&built.folder.join("store")]);
}

#[test]
fn views_transactions_merges_and_backups_are_what_the_header_promises() {
    let built = Built::new("moments");
    let program = built.compile("tests/moments.c", &["-lbetree", "-lpthread"]);
    built.run_watched(&program, &[&built.folder.join("store")]);
}

#[test]
fn a_fork_is_refused_and_leaves_its_parent_s_store() {
    let built = Built::new("forked");
    let program = built.compile("tests/forked.c", STATIC);
    built.run(&program, &[&built.folder.join("store")]);
}
