//! Long random lives of a mount, with the power cut at each of many calls: prefix order over all files.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use betree_sim::Rng;
use rustix::fs::{FallocateFlags, XattrFlags};

use crate::bed::Bed;
use crate::judge::Plan;
use crate::mounted::run;

const NAMES: usize = 12;
const STEPS: usize = 220;

fn a_path(rng: &mut Rng, dir: &Path) -> PathBuf {
    let name = format!("f{}", rng.below(NAMES));
    match rng.below(3) {
        0 => dir.join(name),
        _ => dir.join(format!("d{}", rng.below(3))).join(name),
    }
}

/// Does one thing, which may fail: then it has done nothing.
fn act(rng: &mut Rng, dir: &Path) {
    let (one, other) = (a_path(rng, dir), a_path(rng, dir));
    let data = seeded::bytes(rng.next_u64(), 0, rng.between(1, 60_000));
    let open = || OpenOptions::new().read(true).write(true).open(&one);
    match rng.below(13) {
        0 | 1 => drop(File::create(&one)),
        2 | 3 => drop(OpenOptions::new().append(true).open(&one).map(|mut file| file.write_all(&data))),
        4 => drop(open().map(|file| file.write_all_at(&data, rng.below(90_000) as u64))),
        5 => drop(open().map(|file| file.set_len(rng.below(90_000) as u64))),
        6 => drop(fs::rename(&one, &other)),
        7 => drop(fs::hard_link(&one, &other)),
        8 => drop(fs::remove_file(&one)),
        9 => {
            let _ = rustix::fs::setxattr(&one, "user.a", &data[..data.len().min(300)], XattrFlags::empty());
        }
        10 => {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            drop(open().map(|file| rustix::fs::fallocate(file, mode, rng.below(50_000) as u64, 20_000)));
        }
        11 => {
            let from = format!("d{}", rng.below(3));
            drop(fs::rename(dir.join(from), dir.join(format!("d{}", rng.below(3)))));
        }
        _ => {
            // Whole or not at all under its name; an existing name is refused.
            let copy = dir.join(format!("copy{}", rng.below(4)));
            if rng.percent(50) {
                run(["clone".as_ref(), dir.join("d0").as_os_str(), copy.as_os_str()]);
            } else {
                drop(fs::create_dir(dir.join(format!("d{}", rng.below(3)))));
            }
        }
    }
}

fn sync(rng: &mut Rng, dir: &Path) {
    let of = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).next();
    match of.filter(|_| rng.percent(70)) {
        Some(path) => File::open(path).unwrap().sync_all().unwrap(),
        None => rustix::fs::syncfs(File::open(dir).unwrap()).unwrap(),
    }
}

#[test]
fn every_power_cut_leaves_all_that_was_acknowledged_and_a_prefix_over_all_files() {
    let (mut images, mut older, mut states) = (0, 0, 0);
    for seed in 0..2 {
        let mut rng = Rng::new(seed);
        let mut bed = Bed::new();
        bed.sets_up(|dir| (0..3).for_each(|n| fs::create_dir(dir.join(format!("d{n}"))).unwrap()));
        for _ in 0..STEPS {
            if rng.percent(12) {
                bed.syncs(|dir| sync(&mut rng, dir));
            } else {
                bed.does(|dir| act(&mut rng, dir));
            }
        }
        let seen = bed.survives(Plan { every: 1, fates: 5 });
        println!("seed {seed}: {} images, {} older, {} states", seen.images, seen.older, seen.states.len());
        images += seen.images;
        older += seen.older;
        states += seen.states.len();
    }
    assert!(images >= 200 && older >= 20 && states >= 40, "{images} images, {older} older, {states} states");
}
