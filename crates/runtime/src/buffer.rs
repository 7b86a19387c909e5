//! Aligned bytes that kernels address directly.

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
    /// `bytes` zeros.
    pub fn zeroed(bytes: usize) -> Buffer {
        let size = bytes.max(1).next_multiple_of(ALIGNMENT);
        let layout = Layout::from_size_align(size, ALIGNMENT)
            .expect("the planner refuses sizes near the address space");
        // SAFETY: the layout's size is not zero.
        let pointer = unsafe { alloc_zeroed(layout) };
        let pointer = NonNull::new(pointer).unwrap_or_else(|| handle_alloc_error(layout));
        Buffer { pointer, layout, bytes }
    }

    /// The bytes of an array.
    pub fn of(array: &Array) -> Buffer {
        let b = Buffer::zeroed(array.bytes().len());
        b.write(array.bytes());
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
