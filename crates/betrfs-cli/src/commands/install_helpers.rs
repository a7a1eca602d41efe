//! `betrfs install-helpers`: links under the names by which mkfs(8), fsck(8), mount(8) and umount(8) find the
//! program.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Outcome};
use crate::format::print;
use crate::helper::HELPERS;
use crate::place::Place;

/// Types that mount(8) tries if it is given none, one a line; `*` stands for the kernel's own.
const FILESYSTEMS: &str = "etc/filesystems";
const OWN_LINE: &str = "betrfs";
const KERNELS_LINE: &str = "*";
/// The rule by which udev(7) makes links to volumes by label and UUID.
const RULE: &str = "etc/udev/rules.d/65-betrfs.rules";
const RULE_TEXT: &str = include_str!("../../udev/65-betrfs.rules");
/// The place of a package's rule, beside which no other is needed.
const PACKAGED_RULE: &str = "usr/lib/udev/rules.d/65-betrfs.rules";
/// The program in that text.
const RULE_PROGRAM: &str = "/usr/bin/betrfs";

/// Link the program under the names by which mkfs(8), fsck(8), mount(8) and umount(8) look for it
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  betrfs install-helpers              links in /sbin, a line in /etc/filesystems, a rule of udev(7)
  betrfs install-helpers --remove     removes them
With the links, `mount -t betrfs` and lines of /etc/fstab work, and umount(8) unmounts by this program. With the line, \
`mount FILE DIR` finds the type by itself. With the rule, UUID= and LABEL= name volumes on block devices from their \
next event on (`udevadm trigger --subsystem-match=block` makes one). Files and links that are not the program's own are \
never changed. Only root can write there.")]
pub struct Arguments {
    /// Remove the links, the line and the rule
    #[arg(long)]
    remove: bool,
    /// Use this directory instead of /, as for a package
    #[arg(long, default_value = "/", hide_default_value = true)]
    root: PathBuf,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let program = std::env::current_exe()
        .map_err(|error| Failure::new(format!("cannot find the program itself: {error}")))?;
    let dir = arguments.root.join("sbin");
    let names = HELPERS.map(|name| dir.join(name));
    if arguments.remove {
        return remove(&names, &program, &arguments.root);
    }
    // Changes nothing if one of the links could not be made.
    for name in &names {
        if let Some(other) = other_than(name, &program)? {
            return Err(Failure::new(format!(
                "{} is {other}, and not a link to {}; move it away first",
                name.display(),
                program.display()
            )));
        }
    }
    let (rule, text) = (arguments.root.join(RULE), rule_for(&program)?);
    if let Found::Others = found_rule(&rule)? {
        return Err(Failure::new(format!("{} is another's; move it away first", rule.display())));
    }
    fs::create_dir_all(&dir).map_err(|error| failed("make", &dir, &error))?;
    for name in &names {
        match symlink(&program, name) {
            Ok(()) => print(format_args!("{} -> {}", name.display(), program.display()))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed("make", name, &error)),
        }
    }
    if change_filesystems(&arguments.root, with_own_line)? {
        print(format_args!("{}: {OWN_LINE}", arguments.root.join(FILESYSTEMS).display()))?;
    }
    let is_packaged = arguments.root.join(PACKAGED_RULE).exists();
    if !is_packaged && found_rule(&rule)? != Found::Own(text.clone()) {
        write_whole(&rule, &text)?;
        print(rule.display())?;
    }
    Ok(())
}

/// What is at the place of the rule.
#[derive(PartialEq, Eq)]
enum Found {
    Nothing,
    Own(String),
    Others,
}

/// The program's own rule begins with the first line of its text.
fn found_rule(path: &Path) -> Result<Found, Failure> {
    match fs::read_to_string(path) {
        Ok(text) if text.lines().next() == RULE_TEXT.lines().next() => Ok(Found::Own(text)),
        Ok(_) => Ok(Found::Others),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Nothing),
        Err(error) => Err(failed("read", path, &error)),
    }
}

/// The rule that calls this program.
fn rule_for(program: &Path) -> Result<String, Failure> {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@".contains(c);
    match program.to_str().filter(|path| path.chars().all(is_plain)) {
        Some(path) => Ok(RULE_TEXT.replace(RULE_PROGRAM, path)),
        None => Err(Failure::new(format!(
            "a rule of udev(7) cannot name {}: copy the program to a path of letters, digits and -, as /usr/local/bin",
            program.display()
        ))),
    }
}

fn remove(names: &[PathBuf], program: &Path, root: &Path) -> Outcome {
    for name in names {
        // Keeps another program's link.
        if fs::read_link(name).is_ok_and(|target| target == program) {
            fs::remove_file(name).map_err(|error| failed("remove", name, &error))?;
            print(format_args!("removed {}", name.display()))?;
        }
    }
    if change_filesystems(root, without_own_line)? {
        print(format_args!("removed {OWN_LINE} from {}", root.join(FILESYSTEMS).display()))?;
    }
    let rule = root.join(RULE);
    if let Found::Own(_) = found_rule(&rule)? {
        fs::remove_file(&rule).map_err(|error| failed("remove", &rule, &error))?;
        print(format_args!("removed {}", rule.display()))?;
    }
    Ok(())
}

/// Describes the file at a path, unless it is absent or a link to the program.
fn other_than(name: &Path, program: &Path) -> Result<Option<String>, Failure> {
    let kind = match fs::symlink_metadata(name) {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("look at", name, &error)),
    };
    if !kind.is_symlink() {
        return Ok(Some("something else".to_owned()));
    }
    let target = fs::read_link(name).map_err(|error| failed("read", name, &error))?;
    Ok((target != program).then(|| format!("a link to {}", target.display())))
}

/// Applies `change` to the list of types; returns whether it changed. Removes the file if the list is empty.
fn change_filesystems(root: &Path, change: fn(&str) -> String) -> Result<bool, Failure> {
    let path = root.join(FILESYSTEMS);
    let old = match fs::read_to_string(&path) {
        Ok(list) => list,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed("read", &path, &error)),
    };
    let new = change(&old);
    if new == old {
        return Ok(false);
    }
    if new.is_empty() {
        fs::remove_file(&path).map_err(|error| failed("remove", &path, &error))?;
        return Ok(true);
    }
    write_whole(&path, &new)?;
    Ok(true)
}

/// Writes a file by a rename, so that its readers see the old text or the new one.
fn write_whole(path: &Path, text: &str) -> Outcome {
    let dir = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(dir).map_err(|error| failed("make", dir, &error))?;
    let written = Place::of(path).and_then(|place| place.write_whole(text.as_bytes()));
    written.map_err(|error| failed("write", path, &error))
}

/// The list with our type before the kernel's; for an empty list, just these two.
fn with_own_line(list: &str) -> String {
    if list.lines().any(|line| line.trim() == OWN_LINE) {
        return list.to_owned();
    }
    if list.is_empty() {
        return format!("{OWN_LINE}\n{KERNELS_LINE}\n");
    }
    let mut lines: Vec<&str> = list.lines().collect();
    let at = lines.iter().position(|line| line.trim() == KERNELS_LINE).unwrap_or(lines.len());
    lines.insert(at, OWN_LINE);
    lines.join("\n") + "\n"
}

/// The list without our type; empty if only the kernel's would be left, which mount(8) tries without a list.
fn without_own_line(list: &str) -> String {
    let own = |line: &&str| line.trim() == OWN_LINE;
    if !list.lines().any(|line| own(&line)) {
        return list.to_owned();
    }
    let rest: Vec<&str> = list.lines().filter(|line| !own(line)).collect();
    if rest.iter().all(|line| line.trim() == KERNELS_LINE || line.trim().is_empty()) {
        return String::new();
    }
    rest.join("\n") + "\n"
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("cannot {what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_types_has_our_line_once_and_before_the_kernels() {
        for (old, new) in [
            ("", "betrfs\n*\n"),
            ("ext4\n", "ext4\nbetrfs\n"),
            ("ext4\nvfat", "ext4\nvfat\nbetrfs\n"),
            ("ext4\n*\n", "ext4\nbetrfs\n*\n"),
            ("# mine\n\n*\n", "# mine\n\nbetrfs\n*\n"),
        ] {
            assert_eq!(with_own_line(old), new);
            assert_eq!(with_own_line(new), new);
            let left = without_own_line(new);
            assert_eq!(left.trim_end(), if old.is_empty() { "" } else { old.trim_end() });
            assert_eq!(without_own_line(&left), left);
        }
    }
}
