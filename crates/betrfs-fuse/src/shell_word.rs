//! Paths in commands that a message proposes: written such that a shell takes each as one word.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path as one word of a shell's command: as it is where nothing in it means something to a shell, else in
/// quotes. Bytes that are no text, and control characters, stand as escapes, which bash(1), zsh(1) and ksh(1)
/// know.
pub fn shell_word(path: &Path) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=:,@%".contains(c);
    match path.to_str() {
        Some(text) if !text.is_empty() && text.chars().all(is_plain) => text.to_owned(),
        Some(text) if !text.contains(char::is_control) => format!("'{}'", text.replace('\'', r"'\''")),
        _ => {
            let mut word = String::from("$'");
            for byte in path.as_os_str().as_bytes() {
                match byte {
                    b'\'' | b'\\' => word.extend(['\\', char::from(*byte)]),
                    b' '..=b'~' => word.push(char::from(*byte)),
                    // A string takes any text.
                    _ => _ = write!(word, "\\x{byte:02x}"),
                }
            }
            word + "'"
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_takes_it_as_one_word_with_the_same_bytes() {
        let names: [&[u8]; 10] = [
            b"/mnt/a-b_c.d",
            b"",
            b"my dir",
            b"it's",
            b"$HOME `x` \"y\" \\",
            b"*?[a]{b,c}~!#&;|<>()",
            "/ü".as_bytes(),
            b"a\nb\t'c' \\n",
            b"\xff\xfe1",
            b"\x1b[2J",
        ];
        for name in names {
            let word = shell_word(Path::new(OsStr::from_bytes(name)));
            assert!(!word.contains(char::is_control), "{word:?}");
            let printed =
                Command::new("bash").args(["-c", &format!("printf '%s|' {word}")]).output().unwrap().stdout;
            assert_eq!(printed, [name, b"|"].concat(), "{word}");
        }
        assert_eq!(shell_word(Path::new("/mnt/a")), "/mnt/a");
    }
}
