//! Results for C: buffers from the allocator of C, and handles.

use std::ffi::{c_char, c_void};

use crate::args::Out;
use crate::status::{Failure, Status};

/// A text, or other bytes, in a buffer that a call has returned or a callback gets. A zero that does not
/// count follows it.
#[repr(C)]
pub struct Slice {
    /// The first byte.
    pub data: *const c_char,
    /// The number of bytes.
    pub len: usize,
}

/// A place for bytes, as a buffer of their own.
pub struct OutBytes(Out<*mut u8>, Out<usize>);

impl OutBytes {
    /// # Safety
    /// As [`Out::new`], for both.
    pub unsafe fn new(data: *mut *mut u8, len: *mut usize, what: &str) -> Result<OutBytes, Failure> {
        // SAFETY: the caller's promise. Both are asked, so that each that is there is emptied.
        let (data, len) = unsafe {
            (Out::new(data, std::ptr::null_mut(), what), Out::new(len, 0, &format!("the length of {what}")))
        };
        Ok(OutBytes(data?, len?))
    }

    pub fn set(&self, bytes: &[u8]) -> Result<(), Failure> {
        self.0.set(copy(bytes)?);
        self.1.set(bytes.len());
        Ok(())
    }

    /// Sets two, or none of them.
    pub fn set_both([a, b]: [&OutBytes; 2], [a_bytes, b_bytes]: [&[u8]; 2]) -> Result<(), Failure> {
        let buffer = copy(a_bytes)?;
        // SAFETY: nobody else has the buffer.
        b.set(b_bytes).inspect_err(|_| unsafe { betree_free(buffer.cast()) })?;
        a.0.set(buffer);
        a.1.set(a_bytes.len());
        Ok(())
    }
}

/// A buffer with these bytes and a zero behind.
fn copy(bytes: &[u8]) -> Result<*mut u8, Failure> {
    let buffer = allocate(bytes.len())?;
    // SAFETY: the buffer is new and has a byte more than that.
    unsafe {
        buffer.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        buffer.add(bytes.len()).write(0);
    }
    Ok(buffer)
}

/// A buffer for so many bytes and one more, aligned for anything.
pub fn allocate(len: usize) -> Result<*mut u8, Failure> {
    // SAFETY: it takes any size.
    let buffer: *mut u8 = unsafe { libc::malloc(len.saturating_add(1)) }.cast();
    if buffer.is_null() {
        return Err(Failure::new(Status::BetreeNoMemory, format!("no memory for {len} bytes")));
    }
    Ok(buffer)
}

/// A place for names.
pub struct OutNames(Out<*mut Slice>, Out<usize>);

impl OutNames {
    /// # Safety
    /// As [`Out::new`], for both.
    pub unsafe fn new(names: *mut *mut Slice, count: *mut usize) -> Result<OutNames, Failure> {
        // SAFETY: the caller's promise. Both are asked, so that each that is there is emptied.
        let (names, count) = unsafe {
            (
                Out::new(names, std::ptr::null_mut(), "the place for the names"),
                Out::new(count, 0, "the place for their number"),
            )
        };
        Ok(OutNames(names?, count?))
    }

    pub fn set(&self, names: &[String]) -> Result<(), Failure> {
        let texts: Vec<Option<&[u8]>> = names.iter().map(|name| Some(name.as_bytes())).collect();
        self.0.set(list(&texts)?);
        self.1.set(names.len());
        Ok(())
    }
}

/// One buffer that has the slices first, and then their bytes, each with a zero behind. What is absent has a
/// NULL in its slice.
pub fn list(texts: &[Option<&[u8]>]) -> Result<*mut Slice, Failure> {
    let heads = texts.len() * size_of::<Slice>();
    let buffer = allocate(heads + texts.iter().flatten().map(|text| text.len() + 1).sum::<usize>())?;
    let slices: *mut Slice = buffer.cast();
    let mut at = heads;
    for (number, text) in texts.iter().enumerate() {
        let Some(text) = text else {
            // SAFETY: as below.
            unsafe { slices.add(number).write(Slice { data: std::ptr::null(), len: 0 }) };
            continue;
        };
        // SAFETY: the buffer is new, aligned, and as long as all slices and texts with a zero each.
        unsafe {
            let data = buffer.add(at);
            data.copy_from_nonoverlapping(text.as_ptr(), text.len());
            data.add(text.len()).write(0);
            slices.add(number).write(Slice { data: data.cast(), len: text.len() });
        }
        at += text.len() + 1;
    }
    Ok(slices)
}

/// Frees a buffer that a call has returned; NULL is let be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_free(buffer: *mut c_void) {
    // SAFETY: the caller got it from here, where `malloc` made it, or it is NULL.
    unsafe { libc::free(buffer) }
}

/// A new handle.
pub fn new_handle<T>(of: T) -> *mut T {
    Box::into_raw(Box::new(of))
}

/// Frees a handle; NULL is let be.
///
/// # Safety
/// The pointer is NULL, or from [`new_handle`], and is used by nobody any more.
pub unsafe fn free_handle<T>(handle: *mut T) {
    if !handle.is_null() {
        crate::status::call(|| {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(handle) });
            Ok(Status::BetreeOk)
        });
    }
}
