//! The traits of `std::io`.

use std::io::{self, Read, Seek, SeekFrom, Write};

use betrfs::Error as VolumeError;

use super::File;
use crate::error::{Context, Result};

impl File {
    fn read_on(&self, buffer: &mut [u8]) -> Result<usize> {
        let mut position = self.position.lock();
        let read = self.read_some(*position, buffer).of("read", &self.path)?;
        *position = position.saturating_add(read as u64);
        Ok(read)
    }

    fn write_on(&self, bytes: &[u8]) -> Result<usize> {
        let mut position = self.position.lock();
        let written = if self.access.appends {
            self.append_some(bytes)
        } else {
            self.write_some(*position, bytes).map(|written| (*position, written))
        };
        let (at, written) = written.of("write", &self.path)?;
        // A write of nothing does not go to the end.
        if written > 0 {
            *position = at.saturating_add(written as u64);
        }
        Ok(written)
    }

    fn seek_to(&self, to: SeekFrom) -> Result<u64> {
        let mut position = self.position.lock();
        let place = match to {
            SeekFrom::Start(place) => Some(place),
            SeekFrom::Current(by) => position.checked_add_signed(by),
            SeekFrom::End(by) => self.attr().of("seek in", &self.path)?.size.checked_add_signed(by),
        };
        // As lseek(2) has it.
        let place = place.filter(|place| i64::try_from(*place).is_ok());
        let place = place.ok_or(VolumeError::Invalid("there is no such position"));
        *position = place.of("seek in", &self.path)?;
        Ok(*position)
    }

    fn read_rest(&self, out: &mut Vec<u8>) -> Result<usize> {
        let mut position = self.position.lock();
        let begin = out.len();
        let read = self.append_rest(*position, out);
        // Also what was read before a failure.
        *position = position.saturating_add((out.len() - begin) as u64);
        read.of("read", &self.path)
    }
}

impl Read for &File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.read_on(buffer)?)
    }

    fn read_to_end(&mut self, out: &mut Vec<u8>) -> io::Result<usize> {
        Ok(self.read_rest(out)?)
    }
}

impl Write for &File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.write_on(bytes)?)
    }

    /// Nothing waits in a file; see [`File::sync_all`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        Ok(self.seek_to(to)?)
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }

    fn read_to_end(&mut self, out: &mut Vec<u8>) -> io::Result<usize> {
        (&*self).read_to_end(out)
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}
