//! Serves an image as an emulated disk until standard input ends: `serve IMAGE DIR`.
//!
//! `truncate -s 10G IMAGE` makes an image; `DIR/disk` is the disk, which a loop device makes a block device.

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [image, dir] = arguments.as_slice() else { return Err("usage: serve IMAGE DIR".into()) };
    Ok(seekdisk::serve(Path::new(image), Path::new(dir), &|warning| eprintln!("{warning}"))?)
}
