//! Work in a directory of sources: a build, and git.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::programs::{program, succeed};

const PARTS: u32 = 50;

/// Builds a C program of many parts in a new directory, changes a part, and builds it again.
pub fn build_in_c(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let mut header = String::new();
    let mut sum = String::new();
    for part in 0..PARTS {
        writeln!(header, "int part_{part}(void);").unwrap();
        write!(sum, " + part_{part}()").unwrap();
        write_part(dir, part, part);
    }
    fs::write(dir.join("parts.h"), header).unwrap();
    let main = format!(
        "#include <stdio.h>\n#include \"parts.h\"\nint main(void) {{ printf(\"%d\\n\", 0{sum}); return 0; }}\n"
    );
    fs::write(dir.join("main.c"), main).unwrap();
    let makefile = "OBJECTS := $(patsubst %.c,%.o,$(wildcard *.c))\n\
        program: $(OBJECTS)\n\t$(CC) -o $@ $^\n%.o: %.c parts.h\n\t$(CC) -O1 -c -o $@ $<\n";
    fs::write(dir.join("Makefile"), makefile).unwrap();

    let make = || succeed(program(300, ["make", "-j2", "-C"]).arg(dir));
    let sum = || succeed(&mut program(10, [dir.join("program")]));
    make();
    let expected: u32 = (0..PARTS).sum();
    assert_eq!(sum().trim(), expected.to_string());
    assert!(make().contains("up to date"), "make believes that what it has made is old");
    write_part(dir, 7, 1007);
    let made = make();
    assert_eq!(made.matches(" -c ").count(), 1, "one part changed: {made}");
    assert_eq!(sum().trim(), (expected + 1000).to_string());
}

fn write_part(dir: &Path, part: u32, value: u32) {
    let text = format!("#include \"parts.h\"\nint part_{part}(void) {{ return {value}; }}\n");
    fs::write(dir.join(format!("part_{part}.c")), text).unwrap();
}

/// Puts a tree into git, with git's own files in a new directory `own`, and has git pack and verify all it
/// stored and find the tree unchanged.
pub fn keep_in_git(tree: &Path, own: &Path) {
    let git = |arguments: &[&str]| {
        let settings = ["-c", "user.name=Test", "-c", "user.email=test@invalid", "-c", "gc.auto=0"];
        let mut command: Command = program(1200, ["git"]);
        command.args(settings).args(arguments).current_dir(tree);
        command.env("GIT_DIR", own).env("GIT_WORK_TREE", tree);
        // Ignores the machine's git settings.
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        succeed(&mut command)
    };
    git(&["init", "--quiet"]);
    git(&["add", "--all", "--force"]);
    git(&["commit", "--quiet", "--message", "All of it"]);
    git(&["fsck", "--full"]);
    assert_eq!(git(&["status", "--porcelain"]), "");
    // All in one large file, which is renamed into its place.
    git(&["repack", "-a", "-d", "--quiet"]);
    git(&["fsck", "--full"]);
}
