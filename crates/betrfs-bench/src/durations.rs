//! About how long the workloads take, as measured once.

use crate::store::Disk;

/// Seconds of one round on each of the four file systems at full scale, making it ready included, on
/// the fast and on the emulated disk of a machine with 2 CPUs; `None` where it was not measured.
const ROUND_SECONDS: [(&str, Option<u32>, Option<u32>); 22] = [
    ("unpack", Some(135), Some(210)),
    ("find", Some(50), Some(82)),
    ("grep", Some(130), Some(345)),
    ("remove", Some(90), Some(81)),
    ("create", Some(90), Some(180)),
    ("write", Some(26), Some(43)),
    ("read", Some(30), Some(49)),
    ("random", Some(28), Some(243)),
    ("rsync-inplace", None, Some(1120)),
    ("git-clone", None, Some(406)),
    ("mail", None, Some(486)),
    ("delete-large-1", Some(13), None),
    ("rename-dir-1", Some(7), None),
    ("rename-dir-100", Some(6), None),
    ("rename-dir-10000", Some(10), None),
    ("rename-dir-100000", Some(50), None),
    ("clone-dir", Some(17), None),
    ("clone-write", Some(18), None),
    ("oltp", Some(40), None),
    ("fileserver", Some(58), None),
    ("webserver", Some(29), None),
    ("webproxy", Some(38), None),
];

/// About how many seconds one round of a workload takes on all four file systems together.
pub fn round_seconds(workload: &str, disk: Disk) -> Option<u32> {
    let (_, fast, hdd) = ROUND_SECONDS.iter().find(|(name, ..)| *name == workload)?;
    match disk {
        Disk::Fast => *fast,
        Disk::Hdd => *hdd,
    }
}
