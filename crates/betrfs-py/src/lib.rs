//! The module `betrfs` for Python: volumes by paths, without a mount.
//!
//! Each method calls the one of the same name in [`betrfs_std`], without Python's lock, and turns a failure
//! into `OSError` with the same number and the paths.
// The classes are made by macros of pyo3, whose expansions hold `unsafe`: a call from C into Rust cannot be
// without. Nothing else here may.
#![deny(unsafe_code)]

mod convert;
mod dir;
mod ending;
mod file;
mod fs;
mod listing;

use pyo3::prelude::*;

#[pymodule]
mod _betrfs {
    #[pymodule_export]
    use super::convert::{Metadata, StatFs, Usage};
    #[pymodule_export]
    use super::dir::Dir;
    #[pymodule_export]
    use super::ending::_end;
    #[pymodule_export]
    use super::file::File;
    #[pymodule_export]
    use super::fs::Fs;
    #[pymodule_export]
    use super::listing::{DirEntry, Walk};
}
