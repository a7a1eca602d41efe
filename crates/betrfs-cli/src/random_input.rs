//! Random command lines, values of options and inputs of `kv load`: each is taken or refused with a sentence,
//! and none panics. `BETRFS_EFFORT` scales their number for each test.

use std::ffi::OsString;
use std::io::Cursor;
use std::os::unix::ffi::OsStringExt;

use betrfs_fuzz::mutate::mutate;
use clap::Parser;
use seeded::Rng;

use crate::Arguments;
use crate::commands::kv::pairs::{Form, Pairs, write_pair};
use crate::commands::mount::options::Options;
use crate::helper::command_line;
use crate::size;

const INPUTS: u64 = 3000;
/// Words of command lines; a newline stands between two.
const LINES: &[&str] = &[
    "betrfs\nmkfs\n-f\n-L\nname\n-U\nrandom\nvolume\n1G",
    "betrfs\nmount\nvolume\n/mnt\n-o\nro,noatime,cache_size=256M,metrics=[::1]:9469",
    "/sbin/mount.betrfs\nvolume\n/mnt\n-n\n-t\nbetrfs\n-o\nrw,user,x-systemd.automount",
    "fsck.betrfs\n-a\n-C\nvolume",
    "betrfs\ncheck\n--repair\n-y\n--format\njson\nvolume",
    "betrfs\nresize\n+1G\n/mnt",
    "betrfs\nsnapshot\nprune\n--keep-hourly\n24\n--keep-daily\n7\n/mnt",
    "betrfs\nsnapshot\nrestore\n/mnt\nmonday",
    "betrfs\nscrub\n--rate\n50M\n/mnt",
    "betrfs\ntop\n--interval\n0.5\n/mnt",
    "betrfs\nkv\nfile\nput\ndict\nkey\nvalue\n--for\n1h 30min",
    "betrfs\nkv\nfile\nput\ndict\nkey\nvalue\n--until\n2030-01-01T00:00:00Z",
    "betrfs\ndebug\nnode\nvolume\n12.3",
    "betrfs\nuuid\nvolume\n00000000-0000-4000-8000-000000000000",
];
const SIZES: &[&str] = &["0", "4096", "256M", "8GiB", "1t", " 17 kb ", "18446744073709551615", "16777215T"];
const PAIRS: &[&[u8]] = &[
    b"key,value\n\"a \"\"quoted\"\" key\",\"with a\nline\"\r\n,\nlast,",
    b"\x03\0\0\0key\x05\0\0\0value\0\0\0\0\0\0\0\0",
];

/// Calls `each` with inputs made of a corpus.
fn for_inputs(corpus: &[&[u8]], mut each: impl FnMut(&[u8])) {
    let corpus: Vec<Vec<u8>> = corpus.iter().map(|input| input.to_vec()).collect();
    corpus.iter().for_each(|input| each(input));
    (0..seeded::effort(INPUTS)).for_each(|seed| each(&mutate(&mut Rng::new(seed), &corpus)));
}

fn bytes_of<'t>(texts: &[&'t str]) -> Vec<&'t [u8]> {
    texts.iter().map(|text| text.as_bytes()).collect()
}

#[test]
fn command_lines_are_taken_or_refused() {
    let (mut taken, mut refused) = (0, 0);
    for_inputs(&bytes_of(LINES), |input| {
        let words = input.split(|byte| *byte == b'\n').map(|word| OsString::from_vec(word.to_vec()));
        match Arguments::try_parse_from(command_line(words)) {
            Ok(_) => taken += 1,
            Err(told) => {
                assert!(!told.to_string().trim().is_empty(), "{input:?}");
                refused += 1;
            }
        }
    });
    assert!(taken >= LINES.len() && refused > 0, "{taken} taken, {refused} refused");
}

#[test]
fn mount_options_are_taken_or_refused() {
    let corpus = ["ro,noatime,cache_size=256M,acl,discard", "remount,metrics=9469,nofail,_netdev,nouser"];
    let mut taken = 0;
    for_inputs(&bytes_of(&corpus), |input| {
        let text = String::from_utf8_lossy(input);
        match text.parse::<Options>() {
            // Each of several values counts, and empty ones change nothing.
            Ok(options) => {
                let joined = Options::joined(["", &text, ""]).unwrap();
                assert_eq!(Options { text: options.text.clone(), ..joined }, options);
                taken += 1;
            }
            Err(why) => assert!(!why.is_empty(), "{text}"),
        }
    });
    assert!(taken > 100, "{taken}");
}

#[test]
fn sizes_are_taken_or_refused() {
    let mut taken = 0;
    for_inputs(&bytes_of(SIZES), |input| {
        let text = String::from_utf8_lossy(input);
        match size::parse(&text) {
            // A number of bytes is the same size.
            Ok(bytes) => {
                assert_eq!(size::parse(&bytes.to_string()), Ok(bytes), "{text}");
                taken += 1;
            }
            Err(why) => assert!(why.contains(&*text), "{why}"),
        }
    });
    assert!(taken > SIZES.len(), "{taken}");
}

#[test]
fn pairs_are_read_or_refused_and_come_back() {
    let mut read = 0;
    for_inputs(PAIRS, |input| {
        for form in [Form::Csv, Form::Framed] {
            let mut pairs = Pairs::of(Cursor::new(input), form);
            let mut found = Vec::new();
            while let Ok(Some(pair)) = pairs.next() {
                found.push(pair);
            }
            let mut written = Vec::new();
            found.iter().for_each(|(key, value)| write_pair(form, key, value, &mut written).unwrap());
            let mut again = Pairs::of(Cursor::new(&written[..]), form);
            for pair in found {
                assert_eq!(again.next(), Ok(Some(pair)), "{form:?}: {input:?}");
                read += 1;
            }
            assert_eq!(again.next(), Ok(None), "{form:?}: {input:?}");
        }
    });
    assert!(read > 1000, "{read}");
}
