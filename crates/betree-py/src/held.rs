//! What objects of Python stand for.

use std::ops::Deref;

use pyo3::prelude::*;

use crate::ending::detach;

/// What an object stands for, which is dropped without Python's lock. The last handle of a store closes it,
/// and a view lets go of what it holds: both wait for threads of the store, and these may wait for Python's
/// lock, to call a merge.
pub struct Held<T: Send>(Option<T>);

impl<T: Send> Held<T> {
    pub fn new(of: T) -> Held<T> {
        Held(Some(of))
    }
}

impl<T: Send> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(of) => of,
            None => unreachable!("it is taken by its drop alone"),
        }
    }
}

impl<T: Send> Drop for Held<T> {
    fn drop(&mut self) {
        let last = self.0.take();
        // While Python ends there is no lock to give away.
        let mut last = Some(last);
        if Python::try_attach(|py| detach(py, || drop(last.take()))).is_none() {
            drop(last);
        }
    }
}
