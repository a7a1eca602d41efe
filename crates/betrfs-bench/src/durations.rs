//! About how long the workloads take, as measured once.

use crate::store::Disk;

/// Seconds of one round on each of the four file systems at full scale, making it ready included, on
/// the fast and on the emulated disk of a machine with 2 CPUs; `None` where it was not measured.
const ROUND_SECONDS: [(&str, Option<u32>, Option<u32>); 1] = [("create", None, Some(180))];

/// About how many seconds one round of a workload takes on all four file systems together.
pub fn round_seconds(workload: &str, disk: Disk) -> Option<u32> {
    let (_, fast, hdd) = ROUND_SECONDS.iter().find(|(name, ..)| *name == workload)?;
    match disk {
        Disk::Fast => *fast,
        Disk::Hdd => *hdd,
    }
}
