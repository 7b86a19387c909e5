//! Aligned bytes that kernels address directly.

use crate::Error;
use onestep_ir::Array;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Alignment of every buffer, in bytes: a cache line, and the widest vector register.
pub const ALIGNMENT: usize = 64;

/// Zeroed, aligned memory of fixed size and address. Kernels write it through [`Buffer::pointer`] while the runtime
/// holds the exclusive borrow that [`crate::Bound::run`] asks for.
#[derive(Debug)]
pub struct Buffer {
    pointer: NonNull<u8>,
    layout: Layout,
    bytes: usize,
}

// SAFETY: a buffer owns its memory, and its methods borrow it as a Vec<u8> would.
unsafe impl Send for Buffer {}
// SAFETY: shared access only reads; writes through the raw pointer are the business of whoever holds the state exclusively.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `bytes` zeros, or the error that the system does not have them.
    pub fn new(bytes: usize) -> Result<Buffer, Error> {
        let refused = Error::Memory { bytes };
        let Some(size) = bytes.max(1).checked_next_multiple_of(ALIGNMENT) else { return Err(refused) };
        let Ok(layout) = Layout::from_size_align(size, ALIGNMENT) else { return Err(refused) };
        // SAFETY: the layout's size is not zero.
        let pointer = unsafe { alloc_zeroed(layout) };
        let Some(pointer) = NonNull::new(pointer) else { return Err(refused) };
        Ok(Buffer { pointer, layout, bytes })
    }

    /// The bytes of an array. The array itself is proof that about so much memory can be had, so where it cannot the process
    /// ends, as with any small allocation.
    pub fn of(array: &Array) -> Buffer {
        Buffer::copy(array.bytes())
    }

    /// These bytes, by the same reasoning.
    pub fn copy(bytes: &[u8]) -> Buffer {
        let b = Buffer::new(bytes.len()).unwrap_or_else(|_| handle_alloc_error(Layout::for_value(bytes)));
        b.write(bytes);
        b
    }

    /// Its address.
    pub fn pointer(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }

    /// Its size.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Overwrites the first bytes.
    pub fn write(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.bytes, "the caller has checked the size");
        // SAFETY: the lengths are checked, the memory is this buffer's, and `bytes` cannot overlap it, since no slice of it
        // is handed out mutably.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.pointer(), bytes.len()) }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is initialised (zeroed at first) and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.pointer(), self.bytes) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { dealloc(self.pointer(), self.layout) }
    }
}
