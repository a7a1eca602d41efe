//! About how long the workloads take.

use bench_harness::disk::DiskKind;

/// Seconds of one round on all four file systems at full scale, preparation included, on the fast and on the
/// emulated disk of a machine with 2 CPUs; `None` where it was not measured.
const ROUND_SECONDS: [(&str, Option<u32>, Option<u32>); 38] = [
    ("unpack", Some(66), Some(100)),
    ("find", Some(46), Some(66)),
    ("grep", Some(84), Some(209)),
    ("archive", Some(94), None),
    ("remove", Some(51), Some(69)),
    ("create", Some(38), Some(180)),
    ("write", Some(9), Some(48)),
    ("read", Some(13), Some(52)),
    ("random", Some(13), Some(237)),
    ("random-beyond", Some(12), Some(298)),
    ("unaligned", Some(19), None),
    ("unaligned-beyond", Some(14), None),
    ("tokubench-1", Some(259), Some(900)),
    ("tokubench-4", Some(259), Some(900)),
    ("delete-large-10", Some(45), None),
    ("delete-large-1", Some(9), None),
    ("rsync", Some(150), None),
    ("rsync-inplace", Some(138), Some(1120)),
    ("rsync-update", Some(116), None),
    ("rsync-update-inplace", Some(119), None),
    ("git-clone", Some(109), Some(284)),
    ("git-diff", Some(79), None),
    ("git-checkout", Some(87), None),
    ("mail", Some(50), Some(462)),
    ("rename-dir-1", Some(3), None),
    ("rename-dir-10", Some(4), None),
    ("rename-dir-100", Some(3), None),
    ("rename-dir-1000", Some(3), None),
    ("rename-dir-10000", Some(7), None),
    ("rename-dir-100000", Some(38), None),
    ("clone-tree", Some(97), None),
    ("clone-tree-snapshot", Some(87), None),
    ("clone-dir", Some(15), None),
    ("clone-write", Some(18), None),
    ("oltp", Some(32), None),
    ("fileserver", Some(24), None),
    ("webserver", Some(24), None),
    ("webproxy", Some(25), None),
];

/// About how many seconds one round of a workload takes on all four file systems together, if that was
/// measured.
pub fn round_seconds(workload: &str, disk: DiskKind) -> Option<u32> {
    let (_, fast, hdd) = ROUND_SECONDS.iter().find(|(name, ..)| *name == workload)?;
    match disk {
        DiskKind::Fast => *fast,
        DiskKind::Hdd => *hdd,
    }
}
