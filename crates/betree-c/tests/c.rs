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
    /// The libraries, which cargo builds for no test by itself: nothing in Rust can be linked with them.
    fn new(test: &str) -> Built {
        let own = std::env::current_exe().unwrap();
        // TARGET/PROFILE/deps/c-HASH
        let libraries = own.ancestors().nth(2).unwrap().to_owned();
        let profile = match libraries.file_name().unwrap().to_str().unwrap() {
            "debug" => "dev",
            profile => profile,
        };
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.args(["build", "--locked", "-q", "-p", "betree-c", "--lib", "--profile", profile]);
        cargo.arg("--target-dir").arg(libraries.parent().unwrap());
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

    fn run(&self, program: &Path, args: &[&Path]) -> String {
        run(Command::new(program).env("LD_LIBRARY_PATH", &self.libraries).args(args))
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
fn what_the_header_promises_holds_by_the_static_library() {
    let built = Built::new("contract");
    // What the Rust library needs of the system.
    let program = built.compile("tests/contract.c", &["-l:libbetree.a", "-lm", "-lpthread", "-ldl"]);
    built.run(&program, &[&built.folder.join("store")]);
}
